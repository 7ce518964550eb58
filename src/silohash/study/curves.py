"""The curves of a study's plots: losses and validation scores over rounds or seconds, and precision over recall."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from silohash.report.plots import RadiusCurve
from silohash.report.style import series
from silohash.runtime.events import RoundRecord
from silohash.study.config import CurveName, Over

Values: TypeAlias = npt.NDArray[np.float64]
Curve: TypeAlias = tuple[str, Callable[[Sequence[RoundRecord]], list[float]]]
"""A title, and what returns one value per round."""


def losses(records: Sequence[RoundRecord]) -> list[float]:
    """Return the training loss of each round; NaN where there is none."""
    return [math.nan if record.loss is None else record.loss for record in records]


def relative_losses(records: Sequence[RoundRecord]) -> list[float]:
    """Return the training loss of each round, divided by that of the first round; NaN if that is not positive."""
    found = losses(records)
    first = found[0] if found and found[0] > 0 else math.nan
    return [loss / first for loss in found]


def validations(records: Sequence[RoundRecord]) -> list[float]:
    """Return the validation score of each round; NaN where there is none."""
    return [math.nan if record.validation is None else record.validation for record in records]


CURVES: Mapping[CurveName, Curve] = {
    "loss": ("Training loss", losses),
    "relative loss": ("Loss relative to round 1", relative_losses),
    "validation": ("Validation score", validations),
}
"""Name in a study's file -> title of the panel, and one value per round."""


def round_numbers(records: Sequence[RoundRecord]) -> list[float]:
    """Return the number of each round, from 1."""
    return [float(number) for number in range(1, len(records) + 1)]


def training_seconds(records: Sequence[RoundRecord]) -> list[float]:
    """Return the seconds of local training until the end of each round, added up over the silos."""
    return list(accumulate(sum(silo.seconds for silo in record.silos) for record in records))


PLACES: Mapping[Over, Curve] = {
    "rounds": ("round", round_numbers),
    "seconds": ("seconds of training", training_seconds),
}
"""Name in a study's file -> label of the axis, and one place per round."""


def draw_band(axes: Axes, places: Sequence[Sequence[float]], curves: Sequence[Sequence[float]], number: int) -> None:
    """Draw the mean of several curves, and a band from the minimum to the maximum.

    Args:
        axes: where to draw.
        places: one horizontal coordinate per round of each curve. The mean over the curves is used.
        curves: one curve per seed with one value per round, NaN where there is none. Only the rounds that all seeds
            have are drawn.
        number: number of the line, which determines its color.
    """
    count = min((len(curve) for curve in curves), default=0)
    values, across = (_table(lines, count) for lines in (curves, places))
    if not np.isfinite(values).any():
        return
    middle, look = across.mean(axis=0), series(number, count)
    axes.plot(middle, values.mean(axis=0), **look)
    if len(values) > 1:
        axes.fill_between(middle, values.min(axis=0), values.max(axis=0), color=look["color"], alpha=0.15, lw=0)


def draw_precision(axes: Axes, curves: Sequence[RadiusCurve], number: int) -> bool:
    """Draw the mean precision over the mean recall within each radius.

    A radius is left out if no item is within it for one of the seeds.

    Args:
        axes: where to draw.
        curves: one curve per seed.
        number: number of the line, which determines its color.

    Returns:
        Whether there was something to draw.
    """
    count = min((len(curve.recall) for curve in curves), default=0)
    precision, recall = (_table([getattr(curve, name) for curve in curves], count) for name in ("precision", "recall"))
    known = np.isfinite(precision).all(axis=0)
    if not count or not known.any():
        return False
    axes.plot(recall[:, known].mean(axis=0), precision[:, known].mean(axis=0), **series(number, int(known.sum())))
    return True


def _table(lines: Sequence[Sequence[float]], count: int) -> Values:
    """Return the first ``count`` values of each line as an array, ``(lines, count)``."""
    return np.array([line[:count] for line in lines], np.float64).reshape(len(lines), count)
