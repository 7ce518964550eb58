"""A file is read again only if its size or time has changed, and its digest is that of its content."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from silohash.base.files import digest_bytes
from silohash.base.stamps import (
    FILES,
    PICTURES,
    SETTLED_NANOSECONDS,
    file_digests,
    forget,
    read_table,
    remember,
    silently_changed,
    table_path,
)
from silohash.data.pictures.checking import check_pictures

OLD = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))


def write(path: Path, content: bytes, at: int = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(at, at))
    return path


def test_an_unchanged_file_is_read_once(tmp_path: Path, read: list[str]) -> None:
    for name in ("a", "b"):
        write(tmp_path / "data" / name, name.encode())
    expected = {"a": digest_bytes(b"a"), "b": digest_bytes(b"b")}
    assert file_digests(tmp_path / "data", ["a", "b"]) == expected
    assert file_digests(tmp_path / "data", ["b", "a"]) == expected
    assert read == ["a", "b"]


@pytest.mark.parametrize(("content", "at"), [(b"c", OLD + 1), (b"cc", OLD), (b"a", OLD + 1)])
def test_a_file_of_another_size_or_time_is_read_again_alone(
    tmp_path: Path, read: list[str], content: bytes, at: int
) -> None:
    for name in ("a", "b"):
        write(tmp_path / "data" / name, name.encode())
    file_digests(tmp_path / "data", ["a", "b"])
    write(tmp_path / "data" / "a", content, at)
    assert file_digests(tmp_path / "data", ["a", "b"]) == {"a": digest_bytes(content), "b": digest_bytes(b"b")}
    assert read == ["a", "b", "a"]


def test_names_of_other_calls_are_remembered(tmp_path: Path, read: list[str]) -> None:
    for name in ("a", "b"):
        write(tmp_path / "data" / name, b"")
        file_digests(tmp_path / "data", [name])
    file_digests(tmp_path / "data", ["a", "b"])
    assert read == ["a", "b"]


def test_a_copy_has_the_same_digests_although_its_times_differ(tmp_path: Path, read: list[str]) -> None:
    write(tmp_path / "data" / "a", b"content")
    shutil.copytree(tmp_path / "data", tmp_path / "copy", copy_function=shutil.copyfile)
    assert file_digests(tmp_path / "data", ["a"]) == file_digests(tmp_path / "copy", ["a"])
    assert len(read) == 2


def test_a_file_that_was_just_written_is_not_remembered(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change again within the resolution of its time."""
    now = [OLD + SETTLED_NANOSECONDS]
    monkeypatch.setattr("silohash.base.stamps.time", SimpleNamespace(time_ns=lambda: now[0]))
    write(tmp_path / "data" / "a", b"a")
    for _ in range(2):
        file_digests(tmp_path / "data", ["a"])
    assert read == ["a", "a"]
    now[0] += 1
    for _ in range(2):
        file_digests(tmp_path / "data", ["a"])
    assert read == ["a", "a", "a"]


def test_a_file_whose_writer_knows_its_digest_is_not_read_until_it_changes(tmp_path: Path, read: list[str]) -> None:
    for name in ("a", "b"):
        write(tmp_path / "data" / name, name.encode(), time.time_ns())
    remember(tmp_path / "data", {"a": digest_bytes(b"a")})
    remember(tmp_path / "data", {"b": digest_bytes(b"b")})
    expected = {"a": digest_bytes(b"a"), "b": digest_bytes(b"b")}
    assert file_digests(tmp_path / "data", ["a", "b"]) == expected
    assert read == []
    write(tmp_path / "data" / "a", b"c", OLD)
    assert file_digests(tmp_path / "data", ["a", "b"]) == {**expected, "a": digest_bytes(b"c")}
    assert read == ["a"]
    with pytest.raises(FileNotFoundError):
        remember(tmp_path / "data", {"c": digest_bytes(b"c")})


def test_contents_are_read_again_on_request(tmp_path: Path) -> None:
    """A change that keeps size and time is not seen until the digests are forgotten."""
    folder = tmp_path / "data"
    same = write(folder / "deep" / "same", b"same")
    quiet = write(folder / "deep" / "quiet", b"1111")
    loud = write(folder / "loud", b"1")
    gone = write(folder / "gone", b"1")
    file_digests(folder / "deep", ["same", "quiet"])
    file_digests(folder, ["loud", "gone"])
    write(quiet, b"2222")
    write(loud, b"22", OLD + 1)
    assert file_digests(folder / "deep", ["quiet"])["quiet"] == digest_bytes(b"1111")
    before = forget(folder)
    assert set(before) == {same, quiet, loud, gone}
    assert read_table(FILES, folder) == {}
    assert file_digests(folder / "deep", ["same", "quiet"])["quiet"] == digest_bytes(b"2222")
    file_digests(folder, ["loud"])
    assert silently_changed(folder, before) == [quiet]


def test_pictures_are_forgotten_too(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.png", b"not a picture")
    check_pictures(tmp_path / "data", ["a.png"])
    assert read_table(PICTURES, tmp_path / "data")["a.png"].problem
    assert set(forget(tmp_path / "data")) == {tmp_path / "data" / "a.png"}
    assert read_table(PICTURES, tmp_path / "data") == {}


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": [1, 2]}', '{"a": ["1", 2, "x"]}'])
@pytest.mark.parametrize("kind", [FILES, PICTURES])
def test_a_damaged_table_is_read_as_empty(tmp_path: Path, content: str, kind: str) -> None:
    write(table_path(kind, tmp_path), content.encode())
    assert read_table(kind, tmp_path) == {}


def test_without_a_writable_cache_every_file_is_read(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(write(tmp_path / "file", b"")))
    write(tmp_path / "data" / "a", b"a")
    for _ in range(2):
        assert file_digests(tmp_path / "data", ["a"]) == {"a": digest_bytes(b"a")}
    assert read == ["a", "a"]
