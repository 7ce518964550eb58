from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from silohash.base.errors import DamagedFile
from silohash.data.formats.folder import read_folder
from silohash.data.pictures.formats import SUFFIXES
from silohash.service.items import scan as scan_module
from silohash.service.items.scan import SETTLED_SECONDS, FolderScanner, Record, Records
from tests.served import png

LATER = 10.0
"""Seconds after which all files of a test count as complete."""


def later() -> float:
    return time.time() + LATER


def test_pictures_without_metadata_are_items(folder: Path) -> None:
    (folder / "sub").mkdir()
    for name in ("a.png", "sub/b.JPG", ".hidden.png", "c.png.part", "labels.txt", "notes.txt", "put/d.png"):
        (folder / name).write_bytes(b"content")
    scan = FolderScanner(folder).scan(later())
    assert {name: item.picture for name, item in scan.items.items()} == {"a.png": "a.png", "sub/b.JPG": "sub/b.JPG"}
    assert (scan.complete, scan.unsettled) == (True, False)
    assert list(scan.problems) == ["notes.txt"]
    assert "does not end like that of a PNG, JPEG, WebP, GIF, BMP, TIFF" in scan.problems["notes.txt"]


def test_pictures_without_metadata_have_the_texts_beside_them(folder: Path) -> None:
    for name in ("a.png", "b.jpg", "c.png"):
        (folder / name).write_bytes(b"content")
    (folder / "a.txt").write_text("boats", encoding="utf-8")
    (folder / "b.jpg.txt").write_bytes(b"caf\xe9")
    scanner = FolderScanner(folder)
    scan = scanner.scan(later())
    assert {name: item.text for name, item in scan.items.items()} == {"a.png": "boats", "c.png": ""}
    assert scan.problems == {"b.jpg": "the text beside it is not UTF-8"}
    (folder / "a.txt").write_text("ships", encoding="utf-8")
    assert scanner.scan(later()).items["a.png"].stamp != scan.items["a.png"].stamp


def test_texts_beside_pictures_are_read_once_and_kept_while_unreadable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def reading(path: Path) -> str:
        read.append(path.name)
        if len(read) == 2:
            raise PermissionError(13, "Permission denied")
        return "boats"

    monkeypatch.setattr(scan_module, "read_beside", reading)
    (folder / "a.png").write_bytes(b"content")
    (folder / "a.txt").write_text("boats", encoding="utf-8")
    scanner = FolderScanner(folder)
    assert [scanner.scan(later()).items["a.png"].text for _ in range(2)] == ["boats", "boats"]
    assert read == ["a.txt"]
    (folder / "a.txt").write_text("ships", encoding="utf-8")
    scan = scanner.scan(later())
    assert (scan.items, scan.waiting) == ({}, {"a.png"})
    assert "cannot be read" in scan.problems["a.png"]


def test_a_pipe_is_not_a_picture(folder: Path) -> None:
    os.mkfifo(folder / "a.png")
    assert FolderScanner(folder).scan(later()).problems == {"a.png": 'the picture "a.png" is not a file'}
    (folder / "b.png").mkdir()
    (folder / "metadata.csv").write_text("file_name,text\nb.png,words\n")
    scan = FolderScanner(folder).scan(later())
    assert not scan.items
    assert 'the picture "b.png" is not a file' in scan.problems.values()


def test_a_file_that_has_just_changed_waits(folder: Path) -> None:
    (folder / "a.png").write_bytes(b"content")
    changed = (folder / "a.png").stat().st_ctime
    scanner = FolderScanner(folder)
    for seconds, settled in ((0.0, False), (SETTLED_SECONDS - 0.01, False), (SETTLED_SECONDS + 0.01, True)):
        scan = scanner.scan(changed + seconds)
        assert (set(scan.items) == {"a.png"}) is settled
        assert scan.waiting == (set() if settled else {"a.png"})
        assert scan.unsettled is not settled
    os.utime(folder / "a.png", (0, 0))  # as a program does that copies the times of a file
    assert scanner.scan((folder / "a.png").stat().st_ctime).waiting == {"a.png"}


def test_an_item_whose_file_cannot_be_looked_at_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(b"content")
    stat = Path.stat

    def failing(path: Path, **options: bool) -> os.stat_result:
        if path.name == "a.png":
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", failing)
    scan = FolderScanner(folder).scan(later())
    assert (set(scan.items), scan.waiting, scan.complete) == ({"b.png"}, {"a.png"}, True)
    assert scan.problems == {"a.png": 'the picture "a.png" cannot be read (Input/output error)'}


def test_rows_of_metadata_are_items(folder: Path) -> None:
    (folder / "a.png").write_bytes(b"content")
    (folder / "unnamed.png").write_bytes(b"content")
    (folder / "metadata.csv").write_text(
        "file_name,id,text,labels,split\n"
        "a.png,one,red square,red|square,\n"
        ",two,blue,,database\n"
        ",held,out,,query\n"
        ",two,again,,\n"
        "gone.png,three,,,\n"
        "../x.png,four,,,\n"
        ",five,,,\n"
    )
    scan = FolderScanner(folder).scan(later())
    one, two = scan.items["one"], scan.items["two"]
    assert set(scan.items) == {"one", "two"}
    assert (one.picture, one.text, one.labels) == ("a.png", "red square", ("red", "square"))
    assert (two.picture, two.text, two.labels) == ("", "blue", ())
    assert scan.problems == {
        "row 5": 'the id "two" occurs in an earlier row',
        "three": 'the picture "gone.png" is missing',
        "row 7": 'the picture "../x.png" lies outside the folder',
        "five": "there is neither a picture nor a text",
    }


def test_names_that_another_system_typed(folder: Path) -> None:
    (folder / "sub").mkdir()
    for name in ("sub/u\u0308.png", "B.PNG"):
        (folder / name).write_bytes(b"content")
    (folder / "metadata.csv").write_text(
        "id,file_name,labels\none,sub\\\u00fc.png,sea|sea\u200b\ntwo,b.png,bo\u200dat\nthree,./sub/u\u0308.png,boat\n"
    )
    scan = FolderScanner(folder).scan(later())
    found = {name: (item.picture, item.labels) for name, item in scan.items.items()}
    assert found == {"one": ("sub/u\u0308.png", ("sea",)), "three": ("sub/u\u0308.png", ("bo\u200dat",))}
    assert scan.problems == {"two": 'the picture "b.png" is missing (did you mean "B.PNG"?)'}


def test_rows_are_left_out_as_by_a_first_indexing(folder: Path) -> None:
    (folder / "metadata.csv").write_text(
        "id,text,labels,split\na,red,boat,train\nb,red,boat,qurey\nc,red,car,train\nd,red,sky|boat,query\n"
    )
    (folder / "labels.txt").write_text("boat\nsky\n")
    scanner = FolderScanner(folder)
    scan = scanner.scan(later())
    problems = {
        "row 3": 'the split "qurey" is not one of query, test, database, validation, train',
        "row 4": 'the label "car" is not allowed',
    }
    assert (set(scan.items), scan.problems) == ({"a"}, problems)
    archive = read_folder(folder)
    assert archive.ids.tolist() == ["a", "d"]
    assert [line.split(": ")[1].split(";")[0] for line in archive.card.skipped] == list(problems.values())
    (folder / "labels.txt").write_text("boat\nsky\ncar\n")
    scan = scanner.scan((folder / "labels.txt").stat().st_ctime + 0.5)
    assert (set(scan.items), scan.complete, scan.unsettled) == ({"a"}, False, True)
    assert set(scanner.scan(later()).items) == {"a", "c"}


def test_links_out_of_the_folder_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"content")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    scan = FolderScanner(folder).scan(later())
    assert (scan.items, scan.problems) == ({}, {"link.png": "it is a link that leads out of the folder"})
    (folder / "metadata.csv").write_text("file_name,text\nlink.png,red\n")
    scan = FolderScanner(folder).scan(later())
    assert scan.problems == {"row 2": 'the picture "link.png" is a link that leads out of the folder'}


def test_metadata_that_is_being_written_removes_nothing(folder: Path) -> None:
    metadata = folder / "metadata.csv"
    metadata.write_text("id,text\na,red\n")
    scanner = FolderScanner(folder)
    assert set(scanner.scan(later()).items) == {"a"}
    metadata.write_text("id,text\n")
    scan = scanner.scan(metadata.stat().st_ctime + 0.5)
    assert (set(scan.items), scan.complete, scan.unsettled) == ({"a"}, False, True)
    scan = scanner.scan(later())
    assert (set(scan.items), scan.complete) == ({"a"}, False)
    assert "metadata.csv has no rows" in scan.problems["metadata.csv"]
    metadata.write_text("id,text\nb,blue\n")  # of another size, in case its time is still the same
    scan = scanner.scan(later())
    assert (set(scan.items), scan.complete, scan.problems) == ({"b"}, True, {})


@pytest.mark.parametrize("change", ["text", "labels", "picture", "content"])
def test_the_stamp_changes_with_the_item(folder: Path, change: str) -> None:
    (folder / "a.png").write_bytes(b"content")
    (folder / "b.png").write_bytes(b"content")
    row = {"file_name": "a.png", "id": "one", "text": "red", "labels": "x"}

    def stamp() -> str:
        (folder / "metadata.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
        return FolderScanner(folder).scan(later()).items["one"].stamp

    before = stamp()
    assert stamp() == before
    if change == "content":
        (folder / "a.png").write_bytes(b"other content")
    else:
        row |= {"text": {"text": "blue"}, "labels": {"labels": "y"}, "picture": {"file_name": "b.png"}}[change]
    assert stamp() != before


def test_what_programs_put_takes_precedence(folder: Path) -> None:
    (folder / "a.png").write_bytes(b"content")
    scanner = FolderScanner(folder)
    records = scanner.records
    written = records.write(Record(id="a.png", text="red"), png(), ".png")
    records.write(Record(id="gone", deleted=True))
    scan = scanner.scan(later())
    item = scan.items["a.png"]
    assert (item.put, item.text, item.picture) == (True, "red", f"put/{written.picture}")
    assert item == scanner.of_record(written)
    assert scan.items["gone"].deleted
    assert scanner.names == {"a.png"}
    records.write(Record(id="a.png", text="blue"))
    assert scanner.scan(later()).items["a.png"].text == "blue"
    next(records.paths()).write_text("{")
    scan = scanner.scan(later())
    assert not scan.complete
    assert len(scan.problems) == 1


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_pictures_of_every_format_are_items(folder: Path, suffix: str) -> None:
    (folder / f"a{suffix}").write_bytes(b"content")
    scan = FolderScanner(folder).scan(later())
    assert (list(scan.items), scan.problems) == ([f"a{suffix}"], {})


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
