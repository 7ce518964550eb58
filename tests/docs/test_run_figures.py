"""Figures of runs are merged, and differences of a table are corrected for their number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.run_figures import DIFFERENT, EQUAL, figures, holm, marks, store


def test_p_values_are_corrected_step_by_step() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("cell", "mark"),
    [
        ([5.0, 5.1, 4.9, 5.0, 5.0], DIFFERENT),
        ([-5.0, -5.1, -4.9, -5.0, -5.0], DIFFERENT),
        ([0.0, 0.1, -0.1, 0.0, 0.0], EQUAL),
        ([0.3, 0.31, 0.3, 0.29, 0.3], EQUAL),  # it differs from 0, by less than counts
        ([0.0, 0.0, 0.0, 0.0, 0.0], EQUAL),
        ([9.0, -5.0, 7.0, -1.0, 2.0], ""),
    ],
)
def test_marks(cell: list[float], mark: str) -> None:
    assert marks([cell]) == [mark]


def test_what_one_difference_shows_is_not_enough_among_many() -> None:
    cell, noise = [2.0, 3.0, 1.0, 2.5, 2.2], [9.0, -5.0, 7.0, -1.0, 2.0]
    assert marks([cell]) == [DIFFERENT]
    assert marks([cell, *[noise] * 40])[0] == ""


def test_figures_of_other_runs_are_kept(tmp_path: Path) -> None:
    def ran(study: str, seed: int, value: float) -> Path:
        run = tmp_path / study / "runs" / f"a-seed{seed}"
        run.mkdir(parents=True)
        for name in ("results.csv", "results-unseen.csv"):
            (run / name).write_text(f"evaluation,task,value\nGG,i2t,{value}\n")
        return tmp_path / study

    path, names = tmp_path / "figures.csv", {"a": ("A",)}
    store(ran("first", 0, 0.5), path, ["method"], names)
    store(ran("first", 10, 0.6), path, ["method"], names)
    store(ran("second", 0, 0.7), path, ["method"], names)
    assert figures(path)["A", "GG", "i2t", "unseen"] == {"0": 70.0, "10": 60.0}
