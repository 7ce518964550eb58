"""A run that was stopped and resumed is the run that was not: model, figures and records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from silohash.measure.evaluation import evaluate_run
from silohash.methods.federated import FEDERATED_METHODS
from silohash.run.events import read_rounds
from silohash.run.folder import Run
from silohash.training import experiment
from tests.runs import Records, same_files, tiny_config, train, write_archive, write_config

pytestmark = pytest.mark.whole_run

ROUNDS = 4


class Stopping(Records):
    """Ends the process's training in the middle of a round, as Ctrl-C would."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def round(self, record) -> None:
        super().round(record)
        if record.round == self.at:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=90)


def rounds_of(run: Run) -> list[dict]:
    """Records without what depends on the clock."""
    silos = [[replace(silo, seconds=0.0) for silo in record.silos] for record in run.rounds()]
    return [asdict(replace(r, seconds=0.0, silos=s)) for r, s in zip(run.rounds(), silos, strict=True)]


def figures_of(run: Run) -> list[dict]:
    return [asdict(replace(row, run="")) for row in evaluate_run(run).rows]


def same(first: Run, second: Run) -> bool:
    return (
        same_files(first.model_folder, second.model_folder)
        and same_files(first.checkpoint, second.checkpoint)
        and rounds_of(first) == rounds_of(second)
        and figures_of(first) == figures_of(second)
    )


VARIANTS = {
    "fedridge": ("fedridge", {"reveal_items": True}),
    "fedcca": ("fedcca", {"reveal_items": True}),
    "fedsums": ("fedsums", {"reveal_items": True, "fraction": 1.0}),
    "fedcafe, means": ("fedcafe", {"memory_rows": "mean"}),
    "fedcmr, all": ("fedcmr", {"share": "all"}),
    "pepfch": ("pepfch", {"hyper_rate": 0.1}),
}


@pytest.mark.parametrize("variant", sorted({*FEDERATED_METHODS.names(), *VARIANTS}))
def test_stopped_twice_and_resumed(archive: Path, tmp_path: Path, variant: str) -> None:
    name, params = VARIANTS.get(variant, (variant, {}))
    sections = {"federated": {"name": name, "rounds": ROUNDS, "fraction": 0.6, **params}}
    sections |= {"local": {"name": "scm", "variant": "orth", "bits": 16}} if name == "fedsums" else {}
    whole = train(archive, tmp_path / "whole", **sections)
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        train(archive, stopped, Stopping(at=1), **sections)
    assert not Run(stopped).model_folder.exists()
    with pytest.raises(KeyboardInterrupt):
        experiment.resume(Run.open(stopped), observers=[Stopping(at=2)])
    listener = Records()
    resumed = experiment.resume(Run.open(stopped), observers=[listener])
    assert listener.first_round == 2
    assert same(whole, resumed)


@pytest.mark.parametrize("kind", ["int8", "top_k"])
def test_what_a_compression_left_out_survives(archive: Path, tmp_path: Path, kind: str) -> None:
    sections = {"federated": {"rounds": ROUNDS, "fraction": 0.6}, "exchange": {"compression": {"kind": kind}}}
    whole = train(archive, tmp_path / "whole", **sections)
    with pytest.raises(KeyboardInterrupt):
        train(archive, tmp_path / "stopped", Stopping(at=1), **sections)
    assert same(whole, experiment.resume(Run.open(tmp_path / "stopped")))


def test_a_run_with_encrypted_sums_continues_with_its_key(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    sections = {"federated": {"rounds": ROUNDS}, "exchange": {"encryption": "ckks"}}
    with pytest.raises(KeyboardInterrupt):
        train(archive, tmp_path / "stopped", Stopping(at=1), **sections)
    resumed = experiment.resume(Run.open(tmp_path / "stopped"))
    plain = train(archive, tmp_path / "plain", federated=sections["federated"])
    found, expected = ([row.value for row in evaluate_run(one).rows] for one in (resumed, plain))
    assert found == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("unit", ["record", "silo"])
def test_stopped_under_privacy_and_resumed(archive: Path, tmp_path: Path, unit: str) -> None:
    sections = {
        "federated": {"rounds": ROUNDS, "fraction": 0.6}, "local": {"name": "csq"}, "evaluate": {"validation": 0.0},
        "features": {m: {"standardize": False, "equal_lengths": True} for m in ("image", "text")},
        "exchange": {"privacy": {"unit": unit, "repeatable": True}},
    }  # fmt: skip
    whole = train(archive, tmp_path / "whole", **sections)
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        train(archive, stopped, Stopping(at=1), **sections)
    resumed = experiment.resume(Run.open(stopped))
    assert same(whole, resumed)
    assert [record.privacy for record in resumed.rounds()] == [record.privacy for record in whole.rounds()]


def test_stopped_before_the_first_checkpoint(archive: Path, tmp_path: Path) -> None:
    whole = train(archive, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(archive, tmp_path / "stopped", Stopping(at=0))
    assert not Run(tmp_path / "stopped").checkpoint.exists()
    assert same(whole, experiment.resume(Run.open(tmp_path / "stopped")))


def test_resuming_a_finished_run_changes_nothing(archive: Path, tmp_path: Path) -> None:
    run = train(archive, tmp_path / "run")
    before = {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()}
    experiment.resume(Run.open(run.folder))
    assert {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()} == before


HELD = """
import time
from silohash.cli import main
from silohash.run.events import JsonLines

record = JsonLines.round

def hold_or_record(lines, done):
    if done.round == 8:
        time.sleep(600)
    record(lines, done)

JsonLines.round = hold_or_record
main()
"""
"""A command that goes on for long enough to be killed before it has recorded its ninth round, however busy the machine."""


def test_killed_process_is_resumed(archive: Path, tmp_path: Path) -> None:
    """SIGKILL, which nothing can catch, at whatever moment it falls."""
    sections = {"federated": {"rounds": 12, "local_epochs": 4}}
    config = write_config(tmp_path / "run.toml", archive, **sections)
    command = [sys.executable, "-c", HELD, "train", str(config), "--out", str(tmp_path / "killed")]
    with subprocess.Popen(
        command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ)
    ) as process:
        records, deadline = tmp_path / "killed" / "rounds.jsonl", time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            if records.exists() and records.read_text().count("\n") >= 2:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    done = len(read_rounds(records))
    assert 2 <= done < 12
    assert same(train(archive, tmp_path / "whole", **sections), experiment.resume(Run.open(tmp_path / "killed")))
    assert Run(tmp_path / "killed").config == tiny_config(archive, **sections)
