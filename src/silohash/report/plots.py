"""Plots as SVG for a page, which follow its light, dark and print styles, and the plot of a partition as a file."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.base.visible import visible
from silohash.data.partitions.drift import DISTANCES, Drift
from silohash.measure.evaluation import RadiusCurve
from silohash.report.style import ACCENT, LINE, SOFT, drawing, name_panel, page_svg, save_figure, series, short

MOST_LABELS = 30
MOST_SILOS_WITH_NUMBERS = 16
PANEL_INCHES = (4.0, 2.7)
SWATCH_INCHES = (0.36, 0.16)
SIZES_INCHES, DISTANCES_INCHES = 1.0, 1.9
SPREAD = 0.18
"""Spacing of the markers of a silo's distances, in columns."""

STRONGEST = 0.62
"""Opacity of a cell whose silo holds all items of a label. Its number stays readable on light and on dark."""

WORDS = read_toml(Path(__file__).with_name("words.toml"), remedy=REINSTALL, missing=REINSTALL)
TASK_WORDS: Mapping[str, str] = WORDS["tasks"]


@dataclass(frozen=True)
class RoundCurve:
    """The loss and the validation score of a run per round from 1, NaN where there is none, and the round that was kept."""

    name: str
    rounds: tuple[int, ...]
    losses: tuple[float, ...]
    validations: tuple[float, ...] = ()
    best_round: int | None = None


@dataclass(frozen=True)
class LabelTable:
    """The number of items per silo and label: counts ``(S, C)``, as from `Partition.label_table`, with S and C names."""

    silos: tuple[str, ...]
    labels: tuple[str, ...]
    counts: npt.NDArray[np.int64]

    def shown(self) -> list[int]:
        """Return the positions of the labels that the plot shows, most frequent first."""
        totals = self.counts.sum(axis=0)
        return [int(c) for c in np.argsort(-totals, kind="stable")[:MOST_LABELS]]


def round_curves(curves: Sequence[RoundCurve], *, measure: str = "validation", names: Sequence[str] = ()) -> list[str]:
    """Draw the loss and the validation score over the rounds as one SVG each; a ring marks the round that was kept.

    A panel is left out if no curve has a loss, or a validation score, whose name is ``measure``. ``names`` are all runs of
    the page, so that a run looks the same in every plot; without them, the curves' own names.
    """
    names = names or [curve.name for curve in curves]
    panels = (
        ("Training loss", [curve.losses for curve in curves], False),
        (f"Validation: {measure}", [curve.validations for curve in curves], True),
    )
    return [
        _panel(title, curves, names, values, kept=kept)
        for title, values, kept in panels
        if any(np.isfinite(line).any() for line in values)
    ]


def _panel(
    title: str, curves: Sequence[RoundCurve], names: Sequence[str], values: Sequence[tuple[float, ...]], *, kept: bool
) -> str:
    with drawing(*PANEL_INCHES) as figure:
        axes = figure.subplots()
        name_panel(axes, title, "round", "")
        for curve, line in zip(curves, values, strict=True):
            if not line:
                continue
            look = series(names.index(curve.name), len(curve.rounds))
            axes.plot(curve.rounds, line, **look)
            if kept and curve.best_round in curve.rounds:
                score = line[curve.rounds.index(curve.best_round)]
                axes.plot(curve.best_round, score, "o", ms=11, mfc="none", mec=look["color"], mew=1.4)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return page_svg(figure, f"{title}, per round", [curve.name for curve in curves])


def legend_items(names: Sequence[str], drawn: Collection[str]) -> list[tuple[str, str]]:
    """Return the name and a swatch (SVG) of every drawn series, or an empty list if there is only one."""
    if len(drawn) < 2:
        return []
    return [(name, _swatch(number, name)) for number, name in enumerate(names) if name in drawn]


def _swatch(number: int, name: str) -> str:
    with drawing(*SWATCH_INCHES) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.plot([0, 1, 2], [0, 0, 0], **series(number, 3) | {"markevery": [1]})
        return page_svg(figure, name, [str(number)], css_class="swatch")


def label_map_height(table: LabelTable) -> float:
    """Return the height of a table's map in inches."""
    return 0.62 + 0.25 * len(table.shown()) + (0.5 if _turned(table) else 0.0)


def label_cells(axes: Axes, table: LabelTable) -> None:
    """Draw the cells of the map, with the silos' names at the top and the labels at the left.

    The strongest color stands for the largest share in the table.
    """
    shown, turned = table.shown(), _turned(table)
    counts = table.counts[:, shown]
    share = counts / np.maximum(counts.sum(axis=0, keepdims=True), 1)
    share = share / max(float(share.max(initial=0.0)), 1e-12)
    silos = len(table.silos)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    column, line = (places.ravel() for places in np.indices(counts.shape))
    corners = np.array([(0.02, 0.04), (0.98, 0.04), (0.98, 0.96), (0.02, 0.96)])
    cells = np.stack([column, line], axis=1)[:, None] + corners
    axes.add_collection(PolyCollection(cells, facecolors=to_rgba(LINE, 0.35), linewidths=0), autolim=False)
    strength = np.tile(to_rgba(ACCENT), (len(cells), 1))
    strength[:, 3] = STRONGEST * share.ravel()
    axes.add_collection(PolyCollection(cells, facecolors=strength, linewidths=0), autolim=False)
    for s, c in np.ndindex(*counts.shape) if silos <= MOST_SILOS_WITH_NUMBERS else ():
        number = axes.text(s + 0.5, c + 0.5, f"{counts[s, c]:,}", ha="center", va="center_baseline", fontsize=7.5)
        number.set_in_layout(False)
    axes.set(xlim=(0, silos), ylim=(len(shown), 0))
    silo_names = [visible(name) for name in table.silos]
    axes.set_xticks(np.arange(silos) + 0.5, silo_names, rotation=35 if turned else 0, ha="left" if turned else "center")
    axes.set_yticks(np.arange(len(shown)) + 0.5, [short(table.labels[c], 28) for c in shown])
    axes.xaxis.tick_top()


def _turned(table: LabelTable) -> bool:
    silos = len(table.silos)
    return silos > 8 or max(map(len, table.silos), default=0) * silos > 80


def precision_recall(curves: Sequence[RadiusCurve], *, names: Sequence[str] = ()) -> list[str]:
    """Draw precision against recall with one point per radius, as one SVG per task. See `round_curves` for the names."""
    names = names or list(dict.fromkeys(curve.name for curve in curves))
    tasks = dict.fromkeys(sorted(curve.task for curve in curves))
    return [_precision_panel(task, [curve for curve in curves if curve.task == task], names) for task in tasks]


def reliability(curves: Sequence[RadiusCurve], *, names: Sequence[str] = ()) -> list[str]:
    """Draw the share of right hits against their probability as one SVG per task. See `round_curves` for the names."""
    names = names or list(dict.fromkeys(curve.name for curve in curves))
    drawings = []
    for task in dict.fromkeys(sorted(curve.task for curve in curves)):
        with drawing(*PANEL_INCHES) as figure:
            panel = figure.subplots()
            name_panel(panel, f"{TASK_WORDS.get(task, task)} ({task})", "probability", "right")
            panel.set(xlim=(0, 1.02), ylim=(0, 1.03))
            panel.plot([0, 1], [0, 1], color=SOFT, lw=1.0, ls=(0, (1, 2)))
            for curve in curves:
                if curve.task == task:
                    probabilities, right, _ = zip(*curve.reliability, strict=True)
                    panel.plot(probabilities, right, **series(names.index(curve.name), len(right)))
            drawings.append(page_svg(figure, f"Right hits by their probability: {task}", [*names, f"sure {task}"]))
    return drawings


def _precision_panel(task: str, curves: Sequence[RadiusCurve], names: Sequence[str]) -> str:
    with drawing(*PANEL_INCHES) as figure:
        panel = figure.subplots()
        title = f"{TASK_WORDS.get(task, task)} ({task})"
        name_panel(panel, title, "recall", "precision")
        panel.set(xlim=(-0.02, 1.02), ylim=(0, 1.03))
        for curve in curves:
            panel.plot(curve.recall, curve.precision, **series(names.index(curve.name), len(curve.recall)))
            if len(curves) == 1:
                last = (-1.0, -1.0)
                for radius, point in enumerate(zip(curve.recall, curve.precision, strict=True)):
                    if np.isfinite(point).all() and np.hypot(point[0] - last[0], point[1] - last[1]) > 0.13:
                        name = f"≤ {radius} bits" if last[0] < 0 else str(radius)
                        panel.annotate(name, point, xytext=(5, 5), textcoords="offset points", fontsize=7.5, color=SOFT)
                        last = point
        for prior in {round(curve.prior, 6) for curve in curves if curve.prior is not None}:
            panel.axhline(prior, color=SOFT, lw=1.0, ls=(0, (1, 2)))
            panel.text(0.0, prior + 0.015, "random codes", ha="left", va="bottom", fontsize=7.5, color=SOFT)
        return page_svg(figure, f"Precision and recall within each radius: {title}", [*names, task])


def draw_partition(drift: Drift, labels: tuple[str, ...], path: Path, *, title: str) -> None:
    """Write the plot of a partition with C labels to a file. See `save_figure`."""
    table = LabelTable(drift.silos, labels, drift.counts)
    map_inches = label_map_height(table)
    width = min(16.0, max(7.2, 2.6 + 0.42 * len(drift.silos)))
    with drawing(width, SIZES_INCHES + map_inches + DISTANCES_INCHES + 0.7) as figure:
        partition_figure(figure, drift, table, (SIZES_INCHES, map_inches, DISTANCES_INCHES))
        figure.suptitle(visible(title), x=0.01, ha="left", fontweight="bold", fontsize=11)
        save_figure(figure, path, title)


def partition_figure(figure: Figure, drift: Drift, table: LabelTable, inches: tuple[float, float, float]) -> None:
    """Draw the three panels into a figure, one column per silo."""
    sizes, cells, distances = figure.subplots(3, 1, height_ratios=inches)
    silos = len(drift.silos)
    sizes.bar(np.arange(silos) + 0.5, drift.sizes, width=0.62, color=ACCENT, alpha=0.55, linewidth=0)
    sizes.set_title("Items")
    sizes.grid(visible=False)
    sizes.spines["left"].set_visible(False)
    sizes.set_ylim(0, max(1, int(drift.sizes.max())) * 1.2)
    sizes.set(xticks=[], yticks=[])
    points = 6.0 if silos > MOST_SILOS_WITH_NUMBERS else 7.5
    for place, size in enumerate(drift.sizes.tolist()):
        sizes.text(place + 0.5, size, f"{size:,}", ha="center", va="bottom", fontsize=points, color=SOFT)
    label_cells(cells, table)
    left_out = len(table.labels) - len(table.shown())
    cells.set_title("Items of each label", pad=6.0)
    if left_out:
        cells.set_xlabel(f"the {MOST_LABELS} most frequent labels; {left_out} are not shown", loc="left")
    _draw_distances(distances, drift)
    for panel in (sizes, cells, distances):
        panel.set_xlim(0, len(drift.silos))
    markers = [Line2D([], [], **series(number, 1) | {"linestyle": "none"}) for number in range(len(DISTANCES))]
    figure.legend(markers, list(DISTANCES), loc="outside lower left", ncols=len(markers))


def _draw_distances(axes: Axes, drift: Drift) -> None:
    """Draw the distance of each silo from all silos together. A line shows the mean over pairs of silos."""
    places = np.arange(len(drift.silos)) + 0.5
    for number, name in enumerate(DISTANCES):
        look = series(number, len(places)) | {"linestyle": "none"}
        axes.plot(places + SPREAD * (number - 1), drift.from_pool(name), **look, markersize=5.0)
        mean, _ = drift.over_pairs(name)
        if np.isfinite(mean):
            axes.axhline(mean, color=look["color"], lw=0.9, ls=(0, (1, 2)))
    axes.set_title("Distance of the label distribution from that of all silos (dotted: mean over pairs)")
    axes.set_ylim(-0.04, 1.04)
    axes.set_yticks([0, 0.5, 1])
    axes.grid(visible=False, axis="x")
    axes.spines["left"].set_visible(False)
    for place in range(1, len(places)):
        axes.axvline(place, color=LINE, lw=0.6)
    axes.set_xticks(places, [f"{n:.1f}" if np.isfinite(n) else "–" for n in drift.effective_labels.tolist()])
    axes.tick_params(axis="x", labelsize=6.0 if len(places) > MOST_SILOS_WITH_NUMBERS else 7.5)
    axes.set_xlabel("effective labels: number of equally frequent labels with the same diversity", loc="left")
