"""IAPR TC-12: the collectors' release, written small in its layout and read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import BadLine, FilesDiffer
from silohash.data.benchmarks.iapr import IAPR_TC12
from tests.unit.data.benchmarks.drawing import draw, write
from tests.unit.data.benchmarks.found import labels_of, names_of

RAW = next(layout for layout in IAPR_TC12.layouts if layout.name == "raw")


def write_iapr(root: Path) -> None:
    draw(root, "images/00/25.jpg", "images/01/1000.jpg")
    for number, folder, title in [(25, "00", "Plaza & church"), (1000, "01", "Niño")]:
        write(
            root,
            f"annotations_complete_eng/{folder}/{number}.eng",
            "<DOC>",
            f"<DOCNO>annotations/{folder}/{number}.eng</DOCNO>",
            f"<TITLE>{title}</TITLE>",
            f"<DESCRIPTION>a description of {number};\n  more of it &amp; so on;</DESCRIPTION>",
            "<NOTES></NOTES>",
            "<LOCATION>Quito, Ecuador</LOCATION>",
            "</DOC>",
            encoding="latin-1",
        )
    write(root, "saiapr_tc-12/wlist.txt", "1 sky-blue", "2\tman", "7 group of persons")
    write(root, "saiapr_tc-12/00/labels.txt", "25\t1\t7", "25\t2\t1")
    write(root, "saiapr_tc-12/01/labels.txt", "1000 1 7", "4000 1 1")


def test_the_collectors_release(tmp_path: Path) -> None:
    write_iapr(tmp_path)
    assert not RAW.missing(tmp_path)
    raw = RAW.read(tmp_path)
    assert raw.ids.tolist() == ["25", "1000"]
    assert names_of(raw) == ("images/00/25.jpg", "images/01/1000.jpg")
    assert raw.text is not None
    assert raw.text[0] == "a description of 25; more of it & so on;"
    assert labels_of(raw) == [["sky-blue", "group of persons"], ["group of persons"]]
    assert raw.label_names == ("sky-blue", "group of persons")
    assert raw.notes["segments of missing pictures"] == "1"
    whole = RAW.read(tmp_path, concepts=275, fields="title|location")
    assert whole.label_names == ("sky-blue", "man", "group of persons")
    assert whole.text is not None
    assert whole.text.tolist() == ["Plaza & church Quito, Ecuador", "Niño Quito, Ecuador"]


def test_bad_lines_are_named(tmp_path: Path) -> None:
    write_iapr(tmp_path)
    write(tmp_path, "saiapr_tc-12/01/labels.txt", "1000 1 7", "1000 1")
    with pytest.raises(BadLine, match=r"01/labels\.txt.*1000"):
        RAW.read(tmp_path)
    write(tmp_path, "saiapr_tc-12/01/labels.txt", "1000 1 8")
    with pytest.raises(FilesDiffer, match="8"):
        RAW.read(tmp_path)
