"""The folder of a run: its paths, creating and opening it, and what it reads only once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.config.load import ResolvedConfig, resolve
from silohash.data.archive import Archive
from silohash.data.partition.base import Partition, partition
from silohash.files import read_json
from silohash.runtime import run as module
from silohash.runtime.run import Run, archive_of, runs
from silohash.types import UserError
from tests.runs import tiny_config, write_archive

ENVIRONMENT: dict[str, object] = {"python": "3.11.9"}
NOT_A_RUN = r"does not hold a run: it has no config\.toml\. Train one: silohash train CONFIG --out"
FILES = {
    "config_path": "config.toml",
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
    return archive_of(resolved.config)


@pytest.fixture(scope="module")
def parts(archive: Archive) -> Partition:
    return partition(archive, "iid", 3, 0)


@pytest.fixture
def run(tmp_path: Path, resolved: ResolvedConfig, parts: Partition) -> Run:
    return Run.create(tmp_path / "mine", resolved, parts, ENVIRONMENT)


def test_paths_of_a_run() -> None:
    run = Run(Path("runs") / "mine")
    assert {name: getattr(run, name).relative_to(run.folder).as_posix() for name in FILES} == FILES


def test_the_name_of_a_run_is_that_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Run(Path("runs/mine")).name == "mine"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert Run(Path()).name == "here"


def test_a_new_run_holds_what_is_known_before_its_first_round(
    run: Run, resolved: ResolvedConfig, archive: Archive, parts: Partition
) -> None:
    assert {path.name for path in run.folder.iterdir()} == {"config.toml", "partition.json", "environment.json"}
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
    assert [found.folder for found in runs([run.folder, run.folder])] == [run.folder, run.folder]
    assert runs([]) == []


def test_a_folder_that_holds_a_run_is_not_overwritten(run: Run, resolved: ResolvedConfig, parts: Partition) -> None:
    before = {path: path.read_bytes() for path in run.folder.iterdir()}
    message = r"already holds a run\. Continue it with: silohash resume .*mine; or choose another folder with --out"
    with pytest.raises(UserError, match=message):
        run.check_free()
    with pytest.raises(UserError, match=message):
        Run.create(run.folder, resolved, parts, {"python": "another"})
    assert {path: path.read_bytes() for path in run.folder.iterdir()} == before


def test_a_folder_that_does_not_hold_a_run(tmp_path: Path, run: Run) -> None:
    Run(tmp_path).check_free()
    run.check()
    for call in (
        Run.open,
        lambda folder: runs([run.folder, folder]),
        lambda folder: Run(folder).check(),
        lambda folder: Run(folder).config,
        lambda folder: Run(folder).partition,
        lambda folder: Run(folder).model,
    ):
        with pytest.raises(UserError, match=NOT_A_RUN):
            call(tmp_path)


def test_everything_is_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Run.open(run.folder)
    calls: list[str] = []
    for name in ("read_config", "resolve", "open_archive", "read_partition"):
        function = getattr(module, name)

        def counted(*arguments: object, name: str = name, function=function, **options: object) -> object:
            calls.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, counted)
    for _ in range(2):
        assert read.partition is read.partition
        assert read.resolved is read.resolved
        assert read.config is read.config
        assert read.archive is read.archive
    assert sorted(calls) == ["open_archive", "read_config", "read_partition", "resolve"]


def test_a_given_config_is_not_read_from_the_folder(tmp_path: Path, resolved: ResolvedConfig, run: Run) -> None:
    assert Run(tmp_path / "nowhere", resolved).config is resolved.config
    assert Run(tmp_path / "nowhere", resolved).resolved is resolved
    run.config_path.write_text("broken", encoding="utf-8")
    assert run.config is resolved.config
    with pytest.raises(UserError, match="config"):
        _ = Run.open(run.folder).config


def test_an_archive_with_other_items_is_rejected(run: Run, tmp_path: Path) -> None:
    other = write_archive(tmp_path / "other", count=31)
    read = Run.open(run.folder)
    read.__dict__["archive"] = archive_of(tiny_config(other))
    with pytest.raises(UserError, match='was not made for the items of "other"'):
        _ = read.partition


@pytest.mark.parametrize(("modality", "missing"), [("image", "text"), ("text", "image")])
def test_an_archive_of_one_modality(folder: Path, modality: str, missing: str) -> None:
    found = archive_of(tiny_config(folder, data={"modality": modality}))
    assert found.has(modality).all()
    assert not found.has(missing).any()
    assert found.values(missing) is None
    both = archive_of(tiny_config(folder))
    assert both.has("image").all()
    assert both.has("text").all()


def test_options_and_protocol_are_given_to_the_reader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, object, object]] = []
    monkeypatch.setattr(module, "open_archive", lambda name, path, *, options: calls.append((name, path, options)))
    archive_of(tiny_config(folder, data={"options": {"labels": "place"}}))
    named = {"path": None, "name": "nus-wide", "options": {"root": "/data"}}
    archive_of(tiny_config(folder, data={**named, "protocol": "fedcafe"}))
    archive_of(tiny_config(folder, data=named))
    assert calls == [
        (None, folder, {"labels": "place"}),
        ("nus-wide", None, {"root": "/data", "protocol": "fedcafe"}),
        ("nus-wide", None, {"root": "/data"}),
    ]
