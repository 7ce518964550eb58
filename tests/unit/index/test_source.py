"""The folder of a silo's picture files: stored, read again, and searched for a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import DamagedFile
from silohash.base.files import write_json
from silohash.index.source import SOURCE, PictureSource, find_file


def test_a_folder_within_the_archive_moves_with_it(tmp_path: Path) -> None:
    source = PictureSource.of(tmp_path / "old" / "pictures", tmp_path / "old")
    assert source == PictureSource(tmp_path / "old" / "pictures", "pictures")
    assert list(source.folders(tmp_path / "new")) == [tmp_path / "new" / "pictures", tmp_path / "old" / "pictures"]
    assert list(source.folders(None)) == [tmp_path / "old" / "pictures"]
    itself = PictureSource.of(tmp_path / "old", tmp_path / "old")
    assert list(itself.folders(tmp_path / "new")) == [tmp_path / "new", tmp_path / "old"]


@pytest.mark.parametrize("data_path", [None, Path("/elsewhere")])
def test_a_folder_elsewhere_stays_where_it_is(tmp_path: Path, data_path: Path | None) -> None:
    source = PictureSource.of(tmp_path / "more", data_path)
    assert source.within is None
    assert list(source.folders(tmp_path / "new")) == [tmp_path / "more"]


def test_relative_folders_are_stored_as_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert PictureSource.of(Path("a/b"), Path("a")) == PictureSource(tmp_path / "a" / "b", "b")


def test_sources_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert PictureSource.read(tmp_path) is None
    for source in (PictureSource(tmp_path / "p", "p"), PictureSource(tmp_path / "q")):
        source.write(tmp_path)
        assert PictureSource.read(tmp_path) == source


@pytest.mark.parametrize("content", [[], {}, "x", None, {"folder": 7}, {"folder": "/p", "within": 3}])
def test_damaged_sources_are_refused(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / SOURCE, content)
    with pytest.raises(DamagedFile, match=r"source\.json .*Index the silo again: silohash index"):
        PictureSource.read(tmp_path)


def test_the_first_folder_with_the_file_is_taken(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (second / "sub").mkdir(parents=True)
    (second / "sub" / "a.jpg").touch()
    assert find_file((first, second), "sub/a.jpg") == second / "sub" / "a.jpg"
    (first / "sub").mkdir(parents=True)
    (first / "sub" / "a.jpg").touch()
    assert find_file((first, second), "sub/a.jpg") == first / "sub" / "a.jpg"
    assert find_file((first, second), "b.jpg") is None
    assert find_file((first, second), "sub") is None, "a folder is not a picture"
    assert find_file((), "sub/a.jpg") is None


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "sub/../../secret", "", "a\0b", 7, None, ["a"], "x" * 5000]
)
def test_names_that_lead_out_of_the_folder_are_ignored(tmp_path: Path, name: object) -> None:
    (tmp_path / "secret").touch()
    (tmp_path / "in" / "sub").mkdir(parents=True)
    assert find_file((tmp_path / "in",), name) is None
