from __future__ import annotations

from pathlib import Path

import pytest

from silohash.service.items.records import Record, Records
from silohash.types import UserError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "put").iterdir())


def test_a_record_is_read_as_it_was_written(folder: Path) -> None:
    records = Records(folder)
    assert records.read("a/b ü") is None
    written = records.write(Record(id="a/b ü", text="red", labels=("x", "y")), b"content", ".png")
    assert records.read("a/b ü") == written
    assert (folder / "put" / written.picture).read_bytes() == b"content"
    assert written.picture.endswith(".png")
    assert len(list(records.paths())) == 1


def test_a_replaced_or_removed_item_leaves_no_picture(folder: Path) -> None:
    records = Records(folder)
    first = records.write(Record(id="a"), b"first", ".png")
    second = records.write(Record(id="a"), b"second", ".jpg")
    assert first.picture != second.picture
    assert names(folder) == sorted([second.picture, next(records.paths()).name])
    assert records.write(Record(id="a", text="no picture", picture="ignored")).picture == ""
    assert len(names(folder)) == 1
    records.remove("a")
    assert names(folder) == []
    records.remove("a")


def test_pictures_of_interrupted_writes_are_removed(folder: Path) -> None:
    records = Records(folder)
    kept = records.write(Record(id="a"), b"first", ".png")
    stem = kept.picture.rpartition("-")[0]
    for name in (f"{stem}-000000000000.png", "fedcba-000000000000.png"):
        (folder / "put" / name).write_bytes(b"left over")
    damaged = folder / "put" / "0123.json"
    damaged.write_text("{")
    (folder / "put" / "0123-ffffffffffff.png").write_bytes(b"of the damaged record")
    records.remove_leftovers()
    assert names(folder) == sorted(["0123.json", "0123-ffffffffffff.png", f"{stem}.json", kept.picture])


def test_a_damaged_record_is_named_and_can_be_replaced(folder: Path) -> None:
    records = Records(folder)
    records.write(Record(id="a", text="red"))
    path = next(records.paths())
    path.write_text("{")
    with pytest.raises(UserError, match=rf"{path.name}.*put the item again"):
        records.read("a")
    records.write(Record(id="a", text="blue"))
    assert records.read("a") == Record(id="a", text="blue")
