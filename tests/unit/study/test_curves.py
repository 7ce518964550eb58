"""The curves of a run: losses, scores, precision and recall, with the places where they are drawn."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import NotMeasured
from silohash.base.files import write_json
from silohash.run.events import RoundRecord, SiloRecord
from silohash.run.folder import Run
from silohash.study.curves import over_rounds, within_radius
from silohash.study.results import RunResult
from tests.synthetic_studies import records


def run_with(*rounds: RoundRecord, folder: Path = Path("run")) -> RunResult:
    return RunResult({}, 0, folder, (), {}, rounds)


def test_values_of_each_curve_over_the_rounds() -> None:
    run = run_with(*records(3))
    assert over_rounds(run, "rounds", "loss") == (range(1, 4), pytest.approx([2.0, 1.0, 2 / 3]))
    assert over_rounds(run, "rounds", "relative loss")[1] == pytest.approx([1.0, 0.5, 1 / 3])
    assert over_rounds(run, "rounds", "validation")[1] == pytest.approx([0.3, 0.4, 0.5])


def test_rounds_without_a_loss_or_a_score() -> None:
    first, *others = records(3)
    run = run_with(replace(first, loss=None, validation=None), *others)
    assert over_rounds(run, "rounds", "loss")[1] == pytest.approx([nan, 1.0, 2 / 3], nan_ok=True)
    assert over_rounds(run, "rounds", "validation")[1] == pytest.approx([nan, 0.4, 0.5], nan_ok=True)
    assert np.isnan(over_rounds(run, "rounds", "relative loss")[1]).all()
    without = run_with(replace(first, loss=0.0), *others)
    assert np.isnan(over_rounds(without, "rounds", "relative loss")[1]).all()
    assert over_rounds(run_with(), "seconds", "relative loss") == ([], [])


def test_seconds_are_those_of_the_training_of_all_silos() -> None:
    silos = [SiloRecord("a", 1, 0.0, 1.5), SiloRecord("b", 1, 0.0, 0.25)]
    run = run_with(*(replace(record, silos=silos) for record in records(3)))
    assert over_rounds(run, "seconds", "loss")[0] == [1.75, 3.5, 5.25]


def test_recall_and_precision_of_a_task_as_they_were_stored(tmp_path: Path) -> None:
    run = run_with(folder=tmp_path)
    with pytest.raises(NotMeasured, match="silohash evaluate"):
        within_radius(run, "i2t")
    stored = [{"task": "i2t", "precision": [None, 0.5], "recall": [0.0, 1.0], "prior": 0.5}]
    write_json(Run(tmp_path).curves_path, stored)
    recall, precision = within_radius(run, "i2t")
    assert recall == (0.0, 1.0)
    assert precision == pytest.approx((nan, 0.5), nan_ok=True)
    assert within_radius(run, "t2i") == ((), ())
