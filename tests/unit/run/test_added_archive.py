"""Names of archives that are indexed as additional silos: which are refused, and which index is replaced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from silohash.base.errors import AlreadyExists, InvalidName
from silohash.data.archive import Archive
from silohash.data.formats.folder import read_folder
from silohash.run.added_archive import MOST_CHARACTERS, NOTE, check_added, doubled_sentence, note_added
from silohash.run.folder import Run
from tests.runs import train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("added")
    archive = write_archive(folder / "archive", count=36, text="words")
    return train(archive, folder / "run", federated={"rounds": 1})


@pytest.fixture
def run(trained: Run, tmp_path: Path) -> Run:
    """The run with an empty folder for indexes."""
    run = Run(tmp_path / "run", trained.resolved)
    run.__dict__["stored_partition"] = trained.partition
    return run


def added(run: Run, archive: Archive, name: str) -> Path:
    """Make a folder as an index of an archive leaves it."""
    folder = run.index_folder / name
    folder.mkdir(parents=True)
    (folder / "text.sqlite").touch()
    note_added(folder, archive)
    return folder


def archive_in(folder: Path, seed: int = 5) -> Archive:
    return read_folder(write_archive(folder, count=12, text="words", seed=seed))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "a/b", "/a", "a\\b", "a\nb", "a\0b", "a\x1b[2J", "\x7f", "n" * (MOST_CHARACTERS + 1)],
)
def test_names_that_are_refused(run: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName, match="--name"):
        check_added(run, archive_in(tmp_path / "more"), name)
    assert not run.folder.exists()


@pytest.mark.parametrize("name", ["a", "a.b", "a b", "bäume", "日本", "n" * MOST_CHARACTERS, "-x", "archive.json"])
def test_names_that_are_free(run: Run, tmp_path: Path, name: str) -> None:
    check_added(run, archive_in(tmp_path / "more"), name)


@pytest.mark.parametrize("name", ["silo-1", "silo-3", "SILO-2", "silo-\u200b1"])
def test_names_of_silos_are_refused(run: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(AlreadyExists, match="which is also the name of a silo of the run"):
        check_added(run, archive_in(tmp_path / "more"), name)


def test_another_archive_of_the_same_name_is_refused(run: Run, tmp_path: Path) -> None:
    first, second = archive_in(tmp_path / "a" / "pictures"), archive_in(tmp_path / "b" / "pictures", seed=6)
    folder = added(run, first, "pictures")
    for name in ("pictures", "Pictures"):
        with pytest.raises(AlreadyExists, match="a/pictures"):
            check_added(run, second, name)
    check_added(run, second, "other")
    check_added(run, first, "pictures")
    assert sorted(path.name for path in folder.iterdir()) == [NOTE, "text.sqlite"]


def test_the_same_folder_or_the_same_content_is_the_same_archive(run: Run, tmp_path: Path) -> None:
    added(run, archive_in(tmp_path / "pictures"), "pictures")
    changed = archive_in(tmp_path / "pictures", seed=6)
    check_added(run, changed, "pictures")
    moved = archive_in(tmp_path / "elsewhere" / "pictures")
    check_added(run, moved, "pictures")
    shutil.rmtree(tmp_path / "pictures")
    check_added(run, moved, "pictures")


def test_archives_without_a_folder_and_a_digest_are_different(run: Run) -> None:
    from tests.archives import made_up_archive

    archive = made_up_archive(20)
    folder = added(run, archive, "made-up")
    assert json.loads((folder / NOTE).read_text()) == {"digest": "", "folder": None}
    with pytest.raises(AlreadyExists, match="made-up"):
        check_added(run, archive, "made-up")
    shutil.rmtree(folder)
    digested = archive.with_digest()
    added(run, digested, "made-up")
    check_added(run, digested, "made-up")


@pytest.mark.parametrize("content", [None, "", "[]", "{", "{}"])
def test_an_index_without_a_readable_note_is_not_replaced(run: Run, tmp_path: Path, content: str | None) -> None:
    folder = run.index_folder / "more"
    folder.mkdir(parents=True)
    check_added(run, archive_in(tmp_path / "more"), "more")
    (folder / "text.sqlite").touch()
    if content is not None:
        (folder / NOTE).write_text(content)
    with pytest.raises(AlreadyExists, match=r"state.*more"):
        check_added(run, archive_in(tmp_path / "more"), "more")


def test_an_archive_of_the_run_itself_is_found_twice(run: Run, trained: Run, tmp_path: Path) -> None:
    from dataclasses import replace

    assert doubled_sentence(run, trained.archive) == "", "no silo of the run is indexed"
    (run.index_folder / run.silo_names[0]).mkdir(parents=True)
    assert doubled_sentence(run, trained.archive).startswith(
        f"The run was trained on {trained.archive.folder}, so items"
    )
    linked = tmp_path / "linked"
    linked.symlink_to(trained.archive.folder)
    assert doubled_sentence(run, read_folder(linked)) != ""
    assert doubled_sentence(run, archive_in(tmp_path / "more")) == ""
    assert doubled_sentence(run, replace(trained.archive, folder=None)) == ""
