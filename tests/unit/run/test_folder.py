"""The folder of a run: its paths, creating and opening it, and what it reads only once."""

from __future__ import annotations

import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import (
    AlreadyExists,
    DataChanged,
    ForeignFiles,
    InvalidFile,
    NotARun,
    UnwritableFile,
    UserError,
)
from silohash.base.files import read_json
from silohash.data import catalogue
from silohash.data.archive import Archive
from silohash.data.partitions import base
from silohash.data.partitions.base import Partition, partition
from silohash.run.config import load
from silohash.run.config.load import ResolvedConfig, resolve
from silohash.run.folder import Run, archive_of
from tests.runs import tiny_config, write_archive

ENVIRONMENT: dict[str, object] = {"python": "3.11.9"}
NOT_A_RUN = r"does not hold a run: it has no config\.toml\. Train one: silohash train CONFIG --out"
FILES = {
    "config_path": "config.toml",
    "fingerprint_path": "archive.safetensors",
    "checkpoint": "checkpoint",
    "model_folder": "model",
    "card_path": "model/card.md",
    "index_folder": "index",
    "onnx_folder": "onnx",
    "rounds_path": "rounds.jsonl",
    "results_path": "results.csv",
    "per_query_path": "per_query.safetensors",
    "curves_path": "curves.json",
    "examples_path": "examples.json",
    "report_path": "report.html",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 30 items."""
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=30)


@pytest.fixture(scope="module")
def resolved(folder: Path) -> ResolvedConfig:
    return resolve(tiny_config(folder))


@pytest.fixture(scope="module")
def archive(resolved: ResolvedConfig) -> Archive:
    return archive_of(resolved.config.data)


@pytest.fixture(scope="module")
def parts(archive: Archive) -> Partition:
    return partition(archive, "iid", 3, 0)


@pytest.fixture
def run(tmp_path: Path, resolved: ResolvedConfig, parts: Partition, archive: Archive) -> Run:
    run = Run(tmp_path / "mine", resolved)
    run.describe(parts, ENVIRONMENT, archive)
    return run


def test_paths_of_a_run() -> None:
    run = Run(Path("runs") / "mine")
    assert {name: getattr(run, name).relative_to(run.folder).as_posix() for name in FILES} == FILES


def test_the_name_of_a_run_is_that_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Run(Path("runs/mine")).name == "mine"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert Run(Path()).name == "here"


def test_runs_in_a_folder_that_is_not_a_run_are_named(tmp_path: Path) -> None:
    for name in ("pooled", "federated"):
        (tmp_path / "demo" / name).mkdir(parents=True)
        (tmp_path / "demo" / name / "config.toml").touch()
    (tmp_path / "demo" / "policies").mkdir()
    demo = tmp_path / "demo"
    with pytest.raises(NotARun) as refused:
        Run.open(demo)
    assert str(refused.value) == (
        f'"{demo}" does not hold a run, but folders in it do. Choose one of them: {demo / "federated"}, {demo / "pooled"}'
    )
    for number in range(5):
        (demo / f"x{number}").mkdir()
        (demo / f"x{number}" / "config.toml").touch()
    with pytest.raises(NotARun, match="x2"):
        Run.open(demo)


def test_a_new_run_holds_what_is_known_before_its_first_round(
    run: Run, resolved: ResolvedConfig, archive: Archive, parts: Partition
) -> None:
    assert {path.name for path in run.folder.iterdir()} == {
        "config.toml",
        "partition.json",
        "environment.json",
        "archive.safetensors",
    }
    assert read_json(run.folder / "environment.json", dict[str, Any]) == ENVIRONMENT
    read = Run.open(run.folder)
    assert read == run
    assert read.config == resolved.config
    assert read.resolved.config == resolved.config
    assert (read.partition.kind, read.partition.seed) == ("iid", 0)
    for found, silo in zip(read.partition.silos, parts.silos, strict=True):
        assert found.name == silo.name
        assert np.array_equal(found.rows, silo.rows)
    assert read.archive.ids.tolist() == archive.ids.tolist()
    assert read.rounds() == []


def test_a_folder_that_holds_a_run_is_refused(run: Run) -> None:
    message = r"already holds a run\. Continue it with: silohash resume .*mine; or choose another folder with --out"
    with pytest.raises(AlreadyExists, match=message):
        run.check_free()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["report.html", "config.toml", "results.csv", "partition.json", "model/weights.bin", "notes.txt"]
)
def test_files_of_the_user_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / "theirs" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    first = Path(name).parts[0]
    message = rf'theirs" already holds files that do not belong to a run: {first}\. Choose a new or an empty folder'
    with pytest.raises(ForeignFiles, match=message):
        Run(tmp_path / "theirs").check_free()
    assert tree(tmp_path / "theirs") == {name: b"mine"}


def test_several_files_of_the_user_are_counted(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt", ".hidden"):
        (tmp_path / name).touch()
    with pytest.raises(ForeignFiles, match=r"a\.txt.*2.*more"):
        Run(tmp_path).check_free()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UnwritableFile, match=r"file.*directory"):
        Run(tmp_path / "file").check_free()


@pytest.mark.parametrize("name", ["policies", "log.txt", ".gitkeep", ".lock"])
def test_what_may_be_there_before_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    Run(tmp_path).check_free()


def test_an_interrupted_creation_is_repeated(
    tmp_path: Path, resolved: ResolvedConfig, parts: Partition, archive: Archive
) -> None:
    for name in (".lock", "partition.json", "environment.json", "archive.safetensors"):
        (tmp_path / name).write_text("{}")
    run = Run(tmp_path, resolved)
    run.check_free()
    run.describe(parts, ENVIRONMENT, archive)
    assert run.config == resolved.config
    assert read_json(tmp_path / "environment.json", dict[str, object]) == ENVIRONMENT


def test_writing_holds_the_lock_and_cleans_first(run: Run) -> None:
    left = [run.folder / ".inputs", run.folder / "index" / f".a.{2**22 + 1}.7.part"]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "part").touch()
    with run.writing():
        assert not any(folder.exists() for folder in left)
        assert (run.folder / ".lock.json").exists()
        with run.writing():
            left[0].mkdir()
        with run.writing():
            assert left[0].exists()  # entered again by the same thread, which may be training
        failed: list[BaseException] = []

        def compete() -> None:
            try:
                Run(run.folder).check_free()
            except UserError as error:
                failed.append(error)

        thread = threading.Thread(target=compete)
        thread.start()
        thread.join()
    assert re.search(rf"mine is in use by process {os.getpid()} on .+ since 20\d\d-", str(failed[0]))
    assert not (run.folder / ".lock.json").exists()
    with pytest.raises(AlreadyExists):
        run.check_free()


def test_a_folder_that_does_not_hold_a_run(tmp_path: Path, run: Run) -> None:
    Run(tmp_path / "new").check_free()
    run.check()
    for call in (
        Run.open,
        lambda folder: Run(folder).check(),
        lambda folder: Run(folder).config,
        lambda folder: Run(folder).partition,
        lambda folder: Run(folder).model,
    ):
        with pytest.raises(UserError, match=NOT_A_RUN):
            call(tmp_path / "new")


def test_everything_is_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Run.open(run.folder)
    calls: list[str] = []
    owners = {"read_config": load, "resolve": load, "open_archive": catalogue, "read_partition": base}
    for name, owner in owners.items():
        function = getattr(owner, name)

        def counted(*arguments: object, name: str = name, function=function, **options: object) -> object:
            calls.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)
    for _ in range(2):
        assert read.partition is read.partition
        assert read.resolved is read.resolved
        assert read.config is read.config
        assert read.archive is read.archive
    assert sorted(calls) == ["open_archive", "read_config", "read_partition", "resolve"]


def test_the_folder_of_the_archive_is_known_without_the_rest_of_the_config(
    run: Run, folder: Path, resolved: ResolvedConfig, tmp_path: Path
) -> None:
    assert Run(run.folder).data_path == folder == Run(tmp_path / "nowhere", resolved).data_path
    for content, found in (
        ('[data]\npath = "../archive"', run.folder.parent / "archive"),
        ('[data]\nname = "glyphs"', None),
        ("data = 3", None),
        ("[data]\npath = 3", None),
    ):
        run.config_path.write_text(content, encoding="utf-8")
        assert Run(run.folder).data_path == found
    run.config_path.write_text("[data", encoding="utf-8")
    with pytest.raises(InvalidFile, match="TOML"):
        _ = Run(run.folder).data_path


def test_a_given_config_is_not_read_from_the_folder(tmp_path: Path, resolved: ResolvedConfig, run: Run) -> None:
    assert Run(tmp_path / "nowhere", resolved).config is resolved.config
    assert Run(tmp_path / "nowhere", resolved).resolved is resolved
    run.config_path.write_text("broken", encoding="utf-8")
    assert run.config is resolved.config
    with pytest.raises(InvalidFile, match="config"):
        _ = Run.open(run.folder).config


def test_an_archive_with_other_items_is_rejected(run: Run, tmp_path: Path) -> None:
    other = write_archive(tmp_path / "other", count=31)
    read = Run.open(run.folder)
    read.__dict__["archive"] = archive_of(tiny_config(other).data)
    with pytest.raises(DataChanged, match="other"):
        _ = read.partition


@pytest.fixture
def trained(tmp_path: Path) -> Run:
    """A run over an archive of its own, opened again."""
    folder = write_archive(tmp_path / "data" / "birds", count=30)
    settings = resolve(tiny_config(folder))
    found = archive_of(settings.config.data)
    Run(tmp_path / "run", settings).describe(partition(found, "iid", 3, 0), ENVIRONMENT, found)
    return Run.open(tmp_path / "run")


def test_an_archive_that_has_changed_is_refused_with_what_changed(trained: Run, tmp_path: Path) -> None:
    metadata = tmp_path / "data" / "birds" / "metadata.csv"
    before = metadata.read_text(encoding="utf-8")
    metadata.write_text(before.replace("number 7,", "number seven,"), encoding="utf-8")
    again = f"index {tmp_path / 'run'} {tmp_path / 'data' / 'birds'} --name NEW"
    with pytest.raises(UserError) as refused:
        _ = trained.archive
    assert str(refused.value) == (
        f'The archive "birds" has changed since {tmp_path / "run"} was trained: 1 item with another caption (item-007). '
        f"Restore it, train a new run, or search it as it is now with: silohash {again}"
    )
    with pytest.raises(DataChanged):
        _ = trained.partition
    assert trained.silo_names == ("silo-1", "silo-2", "silo-3")
    metadata.write_text(before, encoding="utf-8")
    assert len(trained.partition) == 3


def test_a_copied_archive_is_the_same(trained: Run, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "birds"
    shutil.copytree(tmp_path / "data" / "birds", moved, copy_function=shutil.copyfile)
    shutil.rmtree(tmp_path / "data")
    missing = r"birds, does not exist\. If it was moved, set path in the table \[data\] of .*config\.toml\."
    with pytest.raises(UserError, match=missing):
        _ = trained.archive
    text = trained.config_path.read_text(encoding="utf-8")
    trained.config_path.write_text(text.replace(str(tmp_path / "data"), str(moved.parent)), encoding="utf-8")
    again = Run.open(trained.folder)
    assert len(again.archive) == 30
    assert again.config.digest() == trained.config.digest()


def test_the_copy_of_a_run_without_the_digests_of_its_archive_is_not_compared(trained: Run, tmp_path: Path) -> None:
    trained.fingerprint_path.unlink()
    metadata = tmp_path / "data" / "birds" / "metadata.csv"
    text = metadata.read_text(encoding="utf-8")
    metadata.write_text(text.replace("number 7,", "number seven,"), encoding="utf-8")
    assert len(trained.archive) == 30
    metadata.write_text(text.replace("item-007", "item-700"), encoding="utf-8")
    with pytest.raises(DataChanged, match="birds"):
        _ = Run.open(trained.folder).partition


@pytest.mark.parametrize(("modality", "missing"), [("image", "text"), ("text", "image")])
def test_an_archive_of_one_modality(folder: Path, modality: str, missing: str) -> None:
    found = archive_of(tiny_config(folder, data={"modality": modality}).data)
    assert found.has(modality).all()
    assert not found.has(missing).any()
    assert found.values(missing) is None
    both = archive_of(tiny_config(folder).data)
    assert both.has("image").all()
    assert both.has("text").all()


def test_options_and_protocol_are_given_to_the_reader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, object, object]] = []
    monkeypatch.setattr(catalogue, "open_archive", lambda name, path, *, options: calls.append((name, path, options)))
    archive_of(tiny_config(folder, data={"options": {"labels": "place"}}).data)
    named = {"path": None, "name": "nus-wide", "options": {"root": "/data"}}
    archive_of(tiny_config(folder, data={**named, "protocol": "fedcafe"}).data)
    archive_of(tiny_config(folder, data=named).data)
    assert calls == [
        (None, folder, {"labels": "place"}),
        ("nus-wide", None, {"root": "/data", "protocol": "fedcafe"}),
        ("nus-wide", None, {"root": "/data"}),
    ]
