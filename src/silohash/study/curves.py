"""What the panels of a study's plots show: curves over rounds or seconds, precision over recall, figures over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from silohash.base.visible import visible
from silohash.report.plots import RadiusCurve
from silohash.report.style import INK, SERIES, series
from silohash.run.events import RoundRecord
from silohash.study.config import CurveName, Over
from silohash.study.pivot import Cell

LOGARITHMIC_FROM = 8
"""An axis is logarithmic if its largest value is at least this many times its smallest."""

HEAT = LinearSegmentedColormap.from_list("figures", ["#ffffff", SERIES[0]])
"""The colors of a heat map, from the lowest figure to the highest."""

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
        axes: Where to draw.
        places: One horizontal coordinate per round of each curve. The mean over the curves is used.
        curves: One curve per seed with one value per round, NaN where there is none. Only the rounds that all seeds
            have are drawn.
        number: Number of the line, which determines its color.
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


def draw_line(axes: Axes, places: npt.NDArray[np.float64], cells: Sequence[Cell], number: int) -> None:
    """Draw figures with their intervals over the values of an axis. Values without a figure are left out."""
    there = [place for place, cell in enumerate(cells) if math.isfinite(cell.mean)]
    means = np.array([cells[place].mean for place in there])
    look = series(number, len(places))
    axes.plot(places[there], means, **look)
    ends = np.array([(cells[place].low, cells[place].high) for place in there]).reshape(-1, 2)
    known = np.isfinite(ends).all(axis=1)
    axes.vlines(places[there][known], *ends[known].T, color=look["color"], lw=1.2, alpha=0.55)


def draw_dot(axes: Axes, cell: Cell, number: int) -> None:
    """Draw one figure with its interval, at the height of its number."""
    look = series(number, 1)
    axes.plot(cell.mean, number, color=look["color"], marker=look["marker"], markersize=5.5, linestyle="none")
    if math.isfinite(cell.low + cell.high):
        axes.hlines(number, cell.low, cell.high, color=look["color"], lw=1.6, alpha=0.6)


def mark_places(axes: Axes, places: npt.NDArray[np.float64], names: Sequence[str]) -> None:
    """Put a tick at every value of an axis. The axis is logarithmic if the values span a wide range."""
    if places.min() > 0 and places.max() >= LOGARITHMIC_FROM * places.min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, [visible(name) for name in names])


def draw_heat_map(axes: Axes, values: Values, down: Sequence[str], across: Sequence[str]) -> None:
    """Draw a table of figures as colors, with the figure in each field and a frame around the highest one.

    Args:
        axes: Where to draw.
        values: ``(R, C)`` figures; NaN for a field that stays empty.
        down: R names, from the top.
        across: C names.
    """
    axes.imshow(np.ma.masked_invalid(values), cmap=HEAT, aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_yticks(range(len(down)), [visible(name) for name in down])
    axes.set_xticks(range(len(across)), [visible(name) for name in across])
    known = values[np.isfinite(values)]
    if not len(known):
        return
    middle = (known.min() + known.max()) / 2
    for (row, column), value in np.ndenumerate(values):
        if math.isfinite(value):
            color = "white" if value > middle else INK
            axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=7.5, color=color)
    row, column = np.unravel_index(np.nanargmax(values), values.shape)
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=INK, lw=2, clip_on=False))


def _table(lines: Sequence[Sequence[float]], count: int) -> Values:
    """Return the first ``count`` values of each line as an array, ``(lines, count)``."""
    return np.array([line[:count] for line in lines], np.float64).reshape(len(lines), count)
