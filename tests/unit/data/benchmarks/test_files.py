"""The files of a data set: where they are expected, which are missing, and which have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.types import UserError
from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.benchmarks.files import compare_checksums, digests, find_layout_files, folder_of, write_checksums
from silohash.data.catalogue import open_archive
from tests.benchmark_files import write_wikipedia


@pytest.fixture
def wikipedia(tmp_path: Path) -> Path:
    return write_wikipedia(tmp_path / "files" / "wikipedia")


def test_files_are_looked_for_where_one_says_then_in_the_shared_place_then_here(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    assert folder_of("coco") == Path("data/coco")
    assert folder_of("coco", str(tmp_path)) == tmp_path
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    assert folder_of("coco") == Path("data/coco")
    (tmp_path / "coco").mkdir()
    assert folder_of("coco") == tmp_path / "coco"


def test_one_missing_file_is_named_beside_those_that_are_there(wikipedia: Path) -> None:
    (wikipedia / "test_txt.mat").unlink()
    with pytest.raises(UserError) as error:
        open_archive("wikipedia", options={"root": str(wikipedia), "layout": "dscmr"})
    said = str(error.value)
    assert "missing  **/test_txt.mat" in said
    assert "present  **/train_img.mat" in said
    assert "layout raw" not in said
    state = find_layout_files(benchmarks()["wikipedia"].layouts[0], wikipedia)
    assert [entry.need.pattern for entry in state.found if entry.missing] == ["**/test_txt.mat"]
    assert not state.complete


def test_checksums_tell_files_that_changed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    before = digests(tmp_path, [tmp_path / "a", tmp_path / "b"])
    assert compare_checksums(tmp_path, before) == {}
    write_checksums(tmp_path, before)
    (tmp_path / "b").write_text("changed")
    after = digests(tmp_path, [tmp_path / name for name in ("a", "b", "c")])
    assert compare_checksums(tmp_path, after) == {"a": "as noted", "b": "differs", "c": "not noted"}
    (tmp_path / "checksums.json").write_text("[1]")
    with pytest.raises(UserError, match=r"checksums\.json is damaged .*should be an object.*--write-checksums"):
        compare_checksums(tmp_path, after)
