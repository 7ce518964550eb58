"""The curves of a run that figures show: over rounds, seconds, recall, or the number of nearest items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from silohash.base.errors import NotMeasured
from silohash.report.gather import losses, radius_curves, validations
from silohash.run.folder import Run
from silohash.study.figures import CurveName
from silohash.study.results import RunResult

Points: TypeAlias = tuple[Sequence[float], Sequence[float]]
"""Places and values of a curve."""

Panel: TypeAlias = tuple[str, Callable[[RunResult], Points]]
"""A title, and what returns the curve of a run."""

BAND = "Band: minimum to maximum over the seeds."

AXES_OF_CURVES: Mapping[str, tuple[str, str, str]] = {
    "rounds": ("round", "", BAND),
    "seconds": ("seconds of training", "", BAND),
    "precision_recall": ("recall", "precision", "Means over the seeds, per radius."),
    "top_n": ("nearest N items", "", BAND),
}
"""Kind of figure -> the names of the axes of its panels, and what it shows with several seeds."""

TITLES: Mapping[CurveName, str] = {
    "loss": "Training loss",
    "relative loss": "Loss relative to round 1",
    "validation": "Validation score",
}
TOP: Mapping[str, str] = {"P": "Precision", "R": "Recall"}
"""Measure of the nearest N items -> title of its panel."""


def over_rounds(run: RunResult, over: str, name: CurveName) -> Points:
    """Return one value per round, NaN where there is none.

    The places are the numbers of the rounds from 1 or, over ``seconds``, the time of local training until the end of each
    round, added up over the silos.
    """
    values = validations(run.rounds) if name == "validation" else losses(run.rounds)
    if name == "relative loss":
        first = values[0] if values and values[0] > 0 else math.nan
        values = [loss / first for loss in values]
    if over == "rounds":
        return range(1, len(values) + 1), values
    return list(accumulate(sum(silo.seconds for silo in record.silos) for record in run.rounds)), values


def within_radius(run: RunResult, task: str) -> Points:
    """Return recall and precision within each Hamming radius, as the evaluation of a run stored them.

    Raises:
        UserError: If it did not store any, or the file is damaged.
    """
    if not Run(run.folder).curves_path.exists():
        raise NotMeasured(f'{run.folder} has no curves.json. Run "silohash evaluate {run.folder}".')
    found = [curve for curve in radius_curves(Run(run.folder)) if curve.task == task]
    return (found[0].recall, found[0].precision) if found else ((), ())
