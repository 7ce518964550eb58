"""Drawing of one panel or grid of a study's figures: lines, dots, heat maps, surfaces, points, bars and example searches."""

import base64
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from silohash.base.visible import visible
from silohash.data.pictures.reading import decode
from silohash.report.examples import ExampleItem, ExampleSearch
from silohash.report.plots import LabelTable
from silohash.report.style import INK, LINE, SERIES, SOFT, series, short
from silohash.study.pivot import Cell
from silohash.study.run_data import LabeledCodes, Points

LOGARITHMIC_FROM = 8
"""An axis is logarithmic if its largest value is at least this many times its smallest."""

HEAT = LinearSegmentedColormap.from_list("figures", ["#ffffff", SERIES[0]])
"""The colors of a heat map, from the lowest figure to the highest."""

Values = npt.NDArray[np.float64]

TSNE_COLUMNS = 3
LEGEND_CHARACTERS = 90
"""Number of characters that fit beside each other in a legend."""

LARGEST_DISK = 260.0
"""Area of the disk of the largest count, in square points."""

MOST_STACKED = 19
"""Number of labels that stacked bars tell apart."""

RELEVANT, OTHER = SERIES[2], SERIES[1]
"""Colors of the frames of results."""


def draw_band(axes: Axes, curves: Sequence[Points], number: int, *, band: bool = True) -> bool:
    """Draw the mean of several curves over the mean of their places, and a band from the minimum to the maximum.

    There is one curve per seed. Only the places that all seeds have are drawn, without those where a value is NaN. The
    number of the line determines its color. Return whether there was something to draw.
    """
    count = min((len(values) for _, values in curves), default=0)
    across, values = (np.array([curve[side][:count] for curve in curves], float) for side in (0, 1))
    known = np.isfinite(values).all(axis=0)
    if not count or not known.any():
        return False
    middle, values, look = across[:, known].mean(axis=0), values[:, known], series(number, int(known.sum()))
    axes.plot(middle, values.mean(axis=0), **look)
    if band and len(values) > 1:
        axes.fill_between(middle, values.min(axis=0), values.max(axis=0), color=look["color"], alpha=0.15, lw=0)
    return True


def draw_line(axes: Axes, places: Values, cells: Sequence[Cell], number: int) -> None:
    """Draw figures with their intervals over the values of an axis. Values without a figure are left out."""
    there = [place for place, cell in enumerate(cells) if math.isfinite(cell.mean)]
    means = np.array([cells[place].mean for place in there])
    look = series(number, len(places))
    axes.plot(places[there], means, **look)
    ends = np.array([(cells[place].low, cells[place].high) for place in there]).reshape(-1, 2)
    known = np.isfinite(ends).all(axis=1)
    axes.vlines(places[there][known], *ends[known].T, color=look["color"], lw=1.2, alpha=0.55)


def draw_dot(axes: Axes, cell: Cell, place: int, number: int) -> None:
    """Draw one figure with its interval at a height. The number of the line determines its color."""
    look = series(number, 1)
    axes.plot(cell.mean, place, color=look["color"], marker=look["marker"], markersize=5.5, linestyle="none")
    if math.isfinite(cell.low + cell.high):
        axes.hlines(place, cell.low, cell.high, color=look["color"], lw=1.6, alpha=0.6)


def scale_axis(axes: Axes, places: Values | None, *, whole: bool = False) -> None:
    """Make an axis logarithmic if its values span a wide range in growing steps, or give it ticks at whole numbers only."""
    axes.locator_params("x", integer=whole)
    if places is None or places.min() <= 0 or places.max() < LOGARITHMIC_FROM * places.min():
        return
    linear, logarithmic = (np.diff(values).min() / np.ptp(values) for values in (places, np.log(places)))
    if logarithmic > linear:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())


def draw_heat_map(axes: Axes, values: Values, down: Sequence[str], across: Sequence[str]) -> None:
    """Draw figures ``(R, C)`` as colors, with the figure in each field and a frame around the highest one.

    Fields with NaN stay empty. The R names start at the top.
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


def draw_relief(axes: Any, values: Values, down: Sequence[str], across: Sequence[str]) -> None:  # noqa: ANN401  untyped
    """Draw figures ``(R, C)`` as a surface in a panel of three dimensions. Fields with NaN are left out."""
    rows, columns = np.indices(values.shape)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    axes.plot_surface(
        columns, rows, values, cmap=HEAT, vmin=low - 0.3 * (high - low), vmax=high, rstride=1, cstride=1,
        edgecolor=SOFT, lw=0.5, antialiased=True, shade=False,
    )  # fmt: skip
    axes.set_yticks(range(len(down)), [visible(name) for name in down])
    axes.set_xticks(range(len(across)), [visible(name) for name in across])
    axes.tick_params(labelsize=7.5, pad=-2)
    axes.view_init(elev=28, azim=-125)
    axes.set_box_aspect((1.0, 1.0, 0.7), zoom=1.0)


def draw_planes(canvas: Figure, names: Sequence[str], codes: Sequence[LabeledCodes], points: Sequence[Values]) -> None:
    """Draw items as points ``(n, 2)`` in one panel per name. Each label has the same color and marker in all panels."""
    labels = list(dict.fromkeys(label for of_panel in codes for label in of_panel.labels))
    columns = min(TSNE_COLUMNS, len(names))
    grid = canvas.subplots(-(-len(names) // columns), columns, squeeze=False).ravel()
    for axes, name, of_panel, places in zip(grid, names, codes, points, strict=False):
        axes.set_title(short(name, 28))
        axes.grid(visible=False)
        axes.set(xticks=[], yticks=[])
        for number, label in enumerate(of_panel.labels):
            look = series(labels.index(label), 1)
            there = places[of_panel.label == number].T
            axes.scatter(*there, s=9, color=look["color"], marker=look["marker"], alpha=0.7, lw=0)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    marks = [Line2D([], [], **{**series(place, 1), "linestyle": "none"}) for place in range(len(labels))]
    texts = [short(label, 28) for label in labels]
    fitting = LEGEND_CHARACTERS // (max(map(len, texts)) + 6)
    canvas.legend(marks, texts, loc="outside lower left", ncols=min(fitting, len(texts)))


def draw_stacked(axes: Axes, table: LabelTable) -> None:
    """Draw one bar per silo, with one part per label: the most frequent ones, then all others in gray."""
    order = np.argsort(-table.counts.sum(axis=0), kind="stable").tolist()
    parts = [(table.labels[place], table.counts[:, place]) for place in order[:MOST_STACKED]]
    if len(order) > MOST_STACKED:
        rest = table.counts[:, order[MOST_STACKED:]].sum(axis=1)
        parts.append((f"{len(order) - MOST_STACKED} other labels", rest))
    start = np.zeros(len(table.silos))
    for number, (name, counts) in enumerate(parts):
        color = colormaps["tab20"](number) if number < MOST_STACKED else LINE
        axes.barh(range(len(start)), counts, left=start, height=0.72, label=short(name, 24), color=color)
        start = start + counts
    axes.set_yticks(range(len(start)), [short(name, 20) for name in table.silos])
    axes.set_ylim(len(start) - 0.5, -0.5)
    axes.set_xlabel("items, each counted for all its labels")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def draw_bubbles(axes: Axes, table: LabelTable) -> None:
    """Draw one disk per silo and label, whose area is the number of items, the most frequent labels at the top."""
    shown = table.shown()
    counts = table.counts[:, shown]
    silo, label = (places.ravel() for places in np.indices(counts.shape))
    areas = LARGEST_DISK * counts.ravel() / max(1, int(counts.max(initial=0)))
    axes.scatter(silo, label, s=areas, color=SERIES[0], alpha=0.65, lw=0)
    turned = 90 if sum(map(len, table.silos)) > 75 else 0
    axes.set_xticks(range(len(table.silos)), [short(name, 16) for name in table.silos], rotation=turned)
    axes.set_yticks(range(len(shown)), [short(table.labels[place], 28) for place in shown])
    axes.set(xlim=(-0.6, len(table.silos) - 0.4), ylim=(len(shown) - 0.4, -0.6))


def draw_searches(canvas: Figure, searches: Sequence[ExampleSearch], hits: int) -> None:
    """Draw one row per search: the query, then its results in order, framed by whether they are relevant.

    Results have their distance, or their rank and score if a model scored them.
    """
    grid = canvas.subplots(len(searches), hits + 1, squeeze=False)
    for row, search in zip(grid, searches, strict=True):
        _draw_item(row[0], search.query, f"{search.task}: query", INK)
        for axes in row[1 + len(search.hits) :]:
            axes.set_axis_off()
        for place, (axes, hit) in enumerate(zip(row[1:], search.hits, strict=False), 1):
            color, mark = {True: (RELEVANT, " ✓"), False: (OTHER, " ✗"), None: (LINE, "")}[hit.relevant]
            _draw_item(axes, hit.item, f"{place if hit.score is None else hit.rank}{mark} {hit.nearness}", color)


def _draw_item(axes: Axes, item: ExampleItem, title: str, color: str) -> None:
    axes.set_title(title, fontsize=7.5, pad=3, fontweight="normal")
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    if item.picture:
        axes.imshow(decode(base64.b64decode(item.picture.partition(",")[2])), interpolation="nearest")
    else:
        axes.text(
            0.5, 0.5, textwrap.fill(short(item.text, 90), 17), ha="center", va="center", fontsize=6.5,
            transform=axes.transAxes,
        ).set_in_layout(False)  # fmt: skip
    for spine in axes.spines.values():
        spine.set(visible=True, color=color, lw=2)
