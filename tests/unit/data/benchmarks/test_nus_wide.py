"""NUS-WIDE: the collectors' release, written small in its layout and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import BadLine, FilesDiffer, MissingFile
from silohash.data.benchmarks.nus_wide import NUS_WIDE
from tests.unit.data.benchmarks.drawing import draw, write
from tests.unit.data.benchmarks.found import names_of

RAW = next(layout for layout in NUS_WIDE.layouts if layout.name == "raw")


NUS_NAMES = [f"concept{number:02d}" for number in range(81)]


def write_nus(root: Path, items: int = 40) -> None:
    write(root, "ImageList/Imagelist.txt", *(f"class{row % 3}\\{row:04d}_{row}.jpg" for row in range(items)))
    for number, name in enumerate(NUS_NAMES):
        often = (7 * number) % 81
        lines = ["1" if row * 81 < often * items else "0" for row in range(items)]
        write(root, f"Groundtruth/AllLabels/Labels_{name}.txt", *lines)
    tags = [["1" if (row + column) % 9 == 0 else "0" for column in range(1000)] for row in range(items)]
    write(root, "NUS_WID_Tags/AllTags1k.txt", *("\t".join(row) + "\t" for row in tags))
    write(root, "NUS_WID_Tags/TagList1k.txt", *(f"tag{column}" for column in range(1000)))


def test_the_collectors_release(tmp_path: Path) -> None:
    write_nus(tmp_path)
    assert not RAW.missing(tmp_path)
    raw = RAW.read(tmp_path)
    assert raw.ids[:2].tolist() == ["class0/0000_0.jpg", "class1/0001_1.jpg"]
    assert raw.image is None
    assert raw.text is not None
    assert not isinstance(raw.text, str)
    assert raw.text.dtype == np.float32
    assert np.array_equal(np.asarray(raw.text)[4], [(4 + column) % 9 == 0 for column in range(1000)])
    assert raw.labels is not None
    often = [[(7 * number) % 81, name] for number, name in enumerate(NUS_NAMES)]
    counts = {name: -(-int(value) * 40 // 81) for value, name in often}
    assert len(raw.label_names) == 21
    assert list(raw.label_names) == sorted(raw.label_names)
    assert min(counts[name] for name in raw.label_names) >= sorted(counts.values())[-21]
    assert raw.labels.sum(axis=0).tolist() == [counts[name] for name in raw.label_names]
    assert RAW.read(tmp_path, classes=81).label_names == tuple(NUS_NAMES)
    assert len(RAW.read(tmp_path, classes=10).label_names) == 10


def test_the_release_with_words_pictures_and_stated_splits(tmp_path: Path) -> None:
    write_nus(tmp_path)
    draw(tmp_path, "Flickr/class0/0000_0.jpg", "Flickr/class1/0001_1.jpg")
    write(tmp_path, "ImageList/TrainImagelist.txt", "class0\\0000_0.jpg", "class2\\0002_2.jpg")
    write(tmp_path, "ImageList/TestImagelist.txt", "class1\\0001_1.jpg")
    raw = RAW.read(tmp_path, text="words")
    assert names_of(raw)[:3] == ("class0/0000_0.jpg", "class1/0001_1.jpg", "")
    assert raw.notes["items whose picture is missing or damaged"].startswith("38,")
    assert raw.text is not None
    assert str(raw.text[0]).split()[:3] == ["tag0", "tag9", "tag18"]
    assert {name: rows.tolist() for name, rows in raw.stated.items()} == {"train": [0, 2], "query": [1]}
    write(tmp_path, "ImageList/TestImagelist.txt", "class1\\0001_1.jpg", "class9\\9.jpg")
    with pytest.raises(FilesDiffer, match=r"TestImagelist\.txt"):
        RAW.read(tmp_path)


def test_files_of_other_lengths_are_refused(tmp_path: Path) -> None:
    write_nus(tmp_path)
    path = tmp_path / "Groundtruth/AllLabels/Labels_concept05.txt"
    path.write_text(path.read_text()[2:])
    with pytest.raises(FilesDiffer, match=r"Labels_concept05\.txt.*39.*Imagelist\.txt.*40"):
        RAW.read(tmp_path)
    write_nus(tmp_path)
    tags = tmp_path / "NUS_WID_Tags/AllTags1k.txt"
    lines = tags.read_text().splitlines()
    tags.write_text("\n".join([*lines[:9], lines[9][2:], *lines[10:]]))
    with pytest.raises(BadLine, match=r"AllTags1k\.txt.*10.*999.*columns.*1,000"):
        RAW.read(tmp_path)
    path.unlink()
    with pytest.raises(MissingFile, match=r"80.*81"):
        RAW.read(tmp_path)


def test_choices_of_the_published_protocols() -> None:
    assert {rule.name: rule.numpy_seed for rule in NUS_WIDE.published if rule.numpy_seed} == {"torchcmh": 7}
    readers = {rule.name: rule.reader["classes"] for rule in NUS_WIDE.published if "classes" in rule.reader}
    assert readers["ucch"] == 10
