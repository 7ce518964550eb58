"""Attacks on whole runs: a planted leak is found, and where nothing leaks the attacker guesses."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import NotSupported
from silohash.base.files import write_bytes
from silohash.run.folder import Run
from silohash.training.leakage.leaks import Attacker, Leak, protection
from tests import runs

PRIVATE = {
    "local": {"name": "csq"},
    "federated": {"rounds": 2, "local_epochs": 10},
    "features": {m: {"standardize": False, "equal_lengths": True} for m in ("image", "text")},
    "exchange": {"keep_updates": True, "privacy": {"unit": "record", "noise_multiplier": 50.0, "repeatable": True}},
}  # fmt: skip
UPDATES, COUNTS = "updates of the last round", "counts of labels before the first round"


def trained(folder: Path, **sections: Any) -> Run:
    archive = runs.write_archive(folder / "archive", count=240, text="given")
    settings = {
        "partition": {"kind": "dirichlet", "silos": 3, "beta": 0.5},
        "federated": {"rounds": 2, "local_epochs": 30},
        "evaluate": {"validation": 0.0}, "model": {"hidden": 64, "dropout": 0.0},
        "exchange": {"keep_updates": True},
    }  # fmt: skip
    return runs.train(archive, folder / "run", **{**settings, **sections})


@pytest.fixture(scope="module")
def overfitted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("overfitted"), local={"name": "csq"})


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("private"), **PRIVATE)


def found(run: Run) -> dict[tuple[str, str], Leak]:
    return {(leak.attack.partition(" ")[0], leak.seen): leak for leak in Attacker(run).leaks()}


def test_an_overfitted_run_reveals_members_and_label_shares(overfitted: Run) -> None:
    leaks = found(overfitted)
    assert leaks["membership", UPDATES].low > 0.55
    assert leaks["label", UPDATES].value > 0.7
    assert leaks["label", COUNTS].value == 1.0
    assert leaks["labels", "its codes"].low > 0.7
    assert leaks["image", "its codes"].value > 0.1
    assert protection(overfitted) == "none"
    assert Attacker(overfitted).missing() == ""


def test_noise_hides_members_and_no_counts_are_sent(overfitted: Run, private: Run) -> None:
    leaks, before = found(private), found(overfitted)
    membership = leaks["membership", UPDATES]
    assert membership.low < 0.5 < membership.high
    assert membership.high < before["membership", UPDATES].value
    assert leaks["label", COUNTS].value == 0.5
    assert protection(private).startswith("noise per record, epsilon ")


def test_updates_without_training_reveal_nothing(overfitted: Run, tmp_path: Path) -> None:
    """The same run with updates that equal what the server sent."""
    shutil.copytree(overfitted.folder, tmp_path / "run")
    run = Run(tmp_path / "run", overfitted.given)
    received = Attacker(run).received
    origin = received.origin()
    for silo, update in list(received.updates()):
        same = replace(update, params={name: origin.params[name] for name in update.params})
        write_bytes(received.folder / f"{silo}.safetensors", same.encode())
    leaks = found(run)
    assert leaks["membership", UPDATES].value == 0.5
    assert leaks["label", UPDATES].value == 0.5


def test_codes_of_another_model_reveal_nothing(overfitted: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    attacker = Attacker(overfitted)
    monkeypatch.setattr(
        attacker, "_codes", lambda rows: {m: generator.choice([-1.0, 1.0], (len(rows), 16)) for m in ("image", "text")}
    )
    leaks = {leak.attack: leak for leak in attacker.of_codes()}
    assert abs(leaks["membership of an item"].value - 0.5) < 0.15
    assert abs(leaks["labels of an item"].value - 0.5) < 0.1
    assert leaks["image vector of an item"].value < 0.02


def test_items_drawn_with_replacement_are_not_audited(tmp_path: Path) -> None:
    drawn = {"kind": "iid", "silos": 3, "bootstrap": "train"}
    run = trained(tmp_path, partition=drawn, federated={"rounds": 1, "local_epochs": 1})
    with pytest.raises(NotSupported, match="bootstrap"):
        list(Attacker(run).leaks())


def test_a_run_that_kept_nothing_says_what_is_missing(overfitted: Run, tmp_path: Path) -> None:
    shutil.copytree(overfitted.folder, tmp_path / "run", ignore=shutil.ignore_patterns("received"))
    attacker = Attacker(Run(tmp_path / "run", overfitted.given))
    assert attacker.missing() == (
        "run did not keep the updates of its last round, so they were not attacked. Train it again with "
        "--set exchange.keep_updates=true."
    )
    assert not any(leak.seen == UPDATES for leak in attacker.leaks())


def test_class_statistics_are_attacked(tmp_path: Path) -> None:
    run = trained(tmp_path, federated={"name": "fedproc", "rounds": 2, "local_epochs": 2, "min_count": 1})
    leak = found(run)["label", "class statistics of the last round"]
    assert leak.value > 0.95
