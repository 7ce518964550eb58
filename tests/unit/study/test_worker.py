"""Runs of a study in a child process: exit codes, logs, and who may work in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import InUse, UserError, WrongValue
from silohash.base.memory import read_peak
from silohash.run.folder import Run
from silohash.study import worker
from tests.runs import tiny, write_archive
from tests.studies import held_by_another_thread


@contextmanager
def separate_streams(folder: Path) -> Iterator[None]:
    """Gives the worker streams that it may redirect."""
    with (
        (folder / "out").open("w") as out,
        (folder / "err").open("w") as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        yield


def fails_with(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> list[Any]:
    calls: list[Any] = []

    def train_or_resume(folder: Path, config: Mapping[str, Any], *, figures: bool, drawn: list[Any]) -> None:
        calls.append((folder, config, figures, *drawn))
        os.write(sys.stdout.fileno(), b"from a library\n")
        if error is not None:
            raise error

    monkeypatch.setattr(worker, "train_or_resume", train_or_resume)
    return calls


def request(folder: Path) -> bytes:
    return json.dumps(
        {"folder": str(folder), "config": {"seed": 3}, "figures": False, "drawn": [{"kind": "tsne"}]}
    ).encode()


@pytest.mark.parametrize(
    ("error", "code", "last"),
    [
        (None, 0, "from a library"),
        (UserError("train.batch is too large."), 2, "train.batch is too large."),
        (ValueError("a bug"), 1, "ValueError: a bug"),
    ],
)
def test_code_and_log_of_a_run(
    error: BaseException | None, code: int, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fails_with(monkeypatch, error)
    folder = tmp_path / "runs" / "a"
    with separate_streams(tmp_path):
        assert json.loads(worker.answer(request(folder))) == {"code": code}
    assert calls == [(folder, {"seed": 3}, False, {"kind": "tsne"})]
    lines = (folder / "log.txt").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("from a library", last)
    with separate_streams(tmp_path):
        worker.answer(request(folder))
    again = (folder / "log.txt").read_text().splitlines()
    assert (again[: len(lines)], again[-1]) == (lines, last)
    assert len(again) >= 2 * len(lines)


def test_interruption_is_logged_and_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(monkeypatch, KeyboardInterrupt())
    with separate_streams(tmp_path), pytest.raises(KeyboardInterrupt):
        worker.answer(request(tmp_path / "a"))
    assert (tmp_path / "a" / "log.txt").read_text().endswith("Interrupted. Finished rounds are kept.\n")


def test_folder_of_another_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LOCK_SECONDS", 0.1)
    with held_by_another_thread(tmp_path / "run"), pytest.raises(InUse):
        worker.train_or_resume(tmp_path / "run", {}, figures=False)


def test_wrong_config_leaves_no_run(tmp_path: Path) -> None:
    with pytest.raises(WrongValue, match=r"\[data\] is missing"):
        worker.train_or_resume(tmp_path / "run", {}, figures=True)
    assert not (tmp_path / "run" / "config.toml").exists()


@pytest.mark.parametrize(("is_measured", "kept"), [(True, 7), (False, None)])
def test_peak_memory_of_a_run_is_kept(
    is_measured: bool, kept: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silohash.run.config.load.load_resolved", lambda config: config)
    monkeypatch.setattr("silohash.training.experiment.train", lambda config, folder, **options: Run(folder))
    monkeypatch.setattr("silohash.base.memory.start_measuring", lambda: is_measured)
    monkeypatch.setattr("silohash.base.memory.peak_bytes", lambda: 7)
    worker.train_or_resume(tmp_path, {}, figures=False)
    assert read_peak(Run(tmp_path).memory_path) == kept


def test_a_finished_run_keeps_its_model_and_figures_without_a_checkpoint(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60)
    run = Run(tmp_path / "run")
    worker.train_or_resume(run.folder, tiny(archive, federated={"rounds": 1, "local_epochs": 1}), figures=False)
    assert run.checkpoint.exists(), "a trial's model and checkpoint are deleted when it has a score"
    worker.train_or_resume(run.folder, {}, figures=True)
    assert not run.checkpoint.exists()
    model = (run.model_folder / "model.json").stat().st_mtime_ns
    rounds, figures = run.rounds_path.read_bytes(), run.results_path.read_bytes()
    run.results_path.unlink()
    worker.train_or_resume(run.folder, {}, figures=True)
    assert run.results_path.read_bytes() == figures
    assert run.rounds_path.read_bytes() == rounds
    assert (run.model_folder / "model.json").stat().st_mtime_ns == model, "it is evaluated again, not trained again"


@pytest.mark.whole_run
def test_process_ends_with_its_input() -> None:
    command = [sys.executable, "-m", "silohash.study.worker"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
