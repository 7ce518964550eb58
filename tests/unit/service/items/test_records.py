from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import DamagedFile
from silohash.service.items.records import Record, Records


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
    for name in (f"{stem}-000000000000.png", f"{'fedc' * 8}-000000000000"):
        (folder / "put" / name).write_bytes(b"left over")
    other = "0123456789abcdef" * 2
    (folder / "put" / f"{other}.json").write_text("{")
    of_damaged = f"{other}-ffffffffffff.png"
    of_user = ["tee-shot.jpg", "notes.txt", "cafe-000000000000.png"]
    for name in (of_damaged, *of_user):
        (folder / "put" / name).write_bytes(b"content")
    records.remove_leftovers()
    assert names(folder) == sorted([f"{other}.json", of_damaged, *of_user, f"{stem}.json", kept.picture])


def test_a_damaged_record_is_named_and_can_be_replaced(folder: Path) -> None:
    records = Records(folder)
    records.write(Record(id="a", text="red"))
    path = next(records.paths())
    path.write_text("{")
    with pytest.raises(DamagedFile, match=f"{path.name}.*item"):
        records.read("a")
    records.write(Record(id="a", text="blue"))
    assert records.read("a") == Record(id="a", text="blue")
