"""Wikipedia: the collectors' release, written small in its layout and read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import BadLine, MissingFile
from silohash.data.benchmarks.wikipedia import WIKIPEDIA
from tests.unit.data.benchmarks.arrays import dscmr, items, read
from tests.unit.data.benchmarks.drawing import draw, write
from tests.unit.data.benchmarks.found import labels_of, names_of

RAW = next(layout for layout in WIKIPEDIA.layouts if layout.name == "raw")


def write_release(root: Path) -> None:
    write(root, "trainset_txt_img_cat.list", "aa-1\tp1\t2", "bb-2\tp2\t1")
    write(root, "testset_txt_img_cat.list", "cc-3\tp3\t2")
    write(root, "categories.list", "art", "biology")
    draw(root, "images/biology/p1.jpg", "images/art/p2.jpg", "images/biology/p3.jpg")
    head = '<?xml version="1.0" encoding="UTF-8" ?>'
    write(
        root,
        "texts/aa-1.xml",
        head,
        "<article><title>Not this</title><text>The <b>cell</b> &lt; 1 mm",
        "</text></article>",
    )
    write(root, "texts/bb-2.xml", head, "<document>A painting.</document>")


def test_the_collectors_release(tmp_path: Path) -> None:
    write_release(tmp_path)
    assert not RAW.missing(tmp_path)
    raw = RAW.read(tmp_path)
    assert raw.ids.tolist() == ["aa-1", "bb-2", "cc-3"]
    assert labels_of(raw) == [["biology"], ["art"], ["biology"]]
    assert raw.text is not None
    assert raw.text.tolist() == ["The cell < 1 mm", "A painting.", ""]
    assert {name: rows.tolist() for name, rows in raw.stated.items()} == {"train": [0, 1], "query": [2]}
    assert names_of(raw)[0] == "images/biology/p1.jpg"
    assert raw.notes["items whose text is missing"] == "1"
    write(tmp_path, "testset_txt_img_cat.list", "cc-3\tp3\t3")
    with pytest.raises(BadLine, match=r"testset_txt_img_cat\.list.*line.*2"):
        RAW.read(tmp_path)


def test_missing_files_are_listed(tmp_path: Path) -> None:
    write_release(tmp_path)
    (tmp_path / "categories.list").unlink()
    assert [need.pattern for need in RAW.missing(tmp_path)] == ["**/categories.list"]
    with pytest.raises(MissingFile, match=r"categories\.list"):
        RAW.read(tmp_path)


def test_wikipedia_with_its_validation_part(tmp_path):
    some = items(count=723)
    dscmr(tmp_path, some, train=30)
    stated = read(tmp_path, "wikipedia", "dscmr").stated
    assert stated["validation"].tolist() == list(range(30, 261))
    assert stated["query"].tolist() == list(range(261, 723))
    assert stated["database"].tolist() == list(range(30))
