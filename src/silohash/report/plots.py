"""Plots as SVG text for a page: they take their colours from the page, so that they suit light, dark and paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from silohash.report.style import ACCENT, LINE, SOFT, drawing, legend, name_panel, page_svg, series, short

MOST_LABELS = 30
MOST_SILOS_WITH_NUMBERS = 16
STRONGEST = 0.62
"""How opaque a cell is whose silo holds all of a label: its number can still be read, on light and on dark."""

TASK_WORDS: Mapping[str, str] = {
    "i2t": "A picture finds texts",
    "t2i": "A text finds pictures",
    "i2i": "A picture finds pictures",
    "t2t": "A text finds texts",
}


@dataclass(frozen=True)
class RoundCurve:
    """A run's losses and validation figures, round by round.

    Attributes:
        name: the run, as the legend calls it.
        rounds: the rounds' numbers.
        losses: a loss a round; NaN where there is none.
        validations: the validation measure a round; NaN where it was not taken.
        best_round: the round whose model was kept, or None.
    """

    name: str
    rounds: tuple[int, ...]
    losses: tuple[float, ...]
    validations: tuple[float, ...] = ()
    best_round: int | None = None


@dataclass(frozen=True)
class RadiusCurve:
    """Precision and recall of all items within a radius, for radius 0, 1, 2, ….

    Attributes:
        name: the run, as the legend calls it.
        task: as "t2i"; each task has a panel.
        precision: ``precision[r]`` of the items within r bits; NaN where there is no item.
        recall: ``recall[r]``.
        prior: the share of relevant items, drawn as what chance reaches.
    """

    name: str
    task: str
    precision: tuple[float, ...]
    recall: tuple[float, ...]
    prior: float | None = None


@dataclass(frozen=True)
class LabelTable:
    """How many items of each label each silo holds.

    Attributes:
        silos: S names.
        labels: C names.
        counts: ``(S, C)``, as `data.partition` gives it.
    """

    silos: tuple[str, ...]
    labels: tuple[str, ...]
    counts: npt.NDArray[np.int64]

    def shown(self) -> list[int]:
        """Returns the labels that the plot shows, most frequent first."""
        totals = self.counts.sum(axis=0)
        return [int(c) for c in np.argsort(-totals, kind="stable")[:MOST_LABELS]]


def round_curves(curves: Sequence[RoundCurve], *, measure: str = "validation", names: Sequence[str] = ()) -> str:
    """Draws loss and validation over the rounds; a ring marks the round that was kept.

    Args:
        curves: a line each.
        measure: what the validation is called on its axis.
        names: all runs of the page, so that a run looks the same in every plot; the curves' own if empty.
    """
    names = names or [curve.name for curve in curves]
    validated = any(np.isfinite(curve.validations).any() for curve in curves)
    with drawing(7.2, 2.9) as figure:
        axes = figure.subplots(1, 2 if validated else 1, squeeze=False)[0]
        name_panel(axes[0], "Training loss", "round", "")
        if validated:
            name_panel(axes[1], f"Validation: {measure}", "round", "")
        for curve in curves:
            look = series(names.index(curve.name), len(curve.rounds))
            axes[0].plot(curve.rounds, curve.losses, **look)
            if curve.validations and validated:
                axes[1].plot(curve.rounds, curve.validations, **look)
            if curve.validations and validated and curve.best_round in curve.rounds:
                kept = curve.validations[curve.rounds.index(curve.best_round)]
                axes[1].plot(curve.best_round, kept, "o", ms=11, mfc="none", mec=look["color"], mew=1.4)
        for panel in axes:
            panel.xaxis.get_major_locator().set_params(integer=True)
        legend(figure, names, {curve.name for curve in curves})
        return page_svg(figure, "Loss and validation over the rounds", [curve.name for curve in curves])


def label_map(table: LabelTable) -> str:
    """Draws which silo holds which labels: the stronger a cell's colour, the more of its label's items it holds."""
    shown = table.shown()
    with drawing(7.2, label_map_height(table)) as figure:
        label_cells(figure.subplots(), table)
        return page_svg(figure, "Items of each label in each silo", [*table.silos, *(table.labels[c] for c in shown)])


def label_map_height(table: LabelTable) -> float:
    """Returns how many inches high the map of a table is."""
    return 0.62 + 0.25 * len(table.shown()) + (0.5 if _turned(table) else 0.0)


def label_cells(axes: Axes, table: LabelTable, *, relative: bool = False) -> None:
    """Draws the map's cells into axes of their own, the silos' names on top, the labels' at the left.

    Args:
        axes: where to draw.
        table: the counts.
        relative: whether the strongest colour stands for the largest share that there is, not for all of a label.
    """
    shown, turned = table.shown(), _turned(table)
    counts = table.counts[:, shown]
    share = counts / np.maximum(counts.sum(axis=0, keepdims=True), 1)
    if relative:
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
    axes.set_xticks(
        np.arange(silos) + 0.5, table.silos, rotation=35 if turned else 0, ha="left" if turned else "center"
    )
    axes.set_yticks(np.arange(len(shown)) + 0.5, [short(table.labels[c], 28) for c in shown])
    axes.xaxis.tick_top()


def _turned(table: LabelTable) -> bool:
    """Tells whether the silos' names need to be turned to stand beside each other."""
    silos = len(table.silos)
    return silos > 8 or max(map(len, table.silos), default=0) * silos > 80


def precision_recall(curves: Sequence[RadiusCurve], *, names: Sequence[str] = ()) -> str:
    """Draws precision against recall, a point a radius, a panel a task.

    Args:
        curves: a line each.
        names: all runs of the page, so that a run looks the same in every plot; the curves' own if empty.
    """
    tasks = [(task, list(members)) for task, members in groupby(sorted(curves, key=lambda c: c.task), lambda c: c.task)]
    drawn = {curve.name for curve in curves}
    names = names or list(dict.fromkeys(curve.name for curve in curves))
    with drawing(7.2, 3.2) as figure:
        panels = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for panel, (task, members) in zip(panels, tasks, strict=True):
            name_panel(
                panel, f"{TASK_WORDS.get(task, task)} ({task})", "recall", "precision" if panel is panels[0] else ""
            )
            panel.set(xlim=(-0.02, 1.02), ylim=(0, 1.03))
            for curve in members:
                panel.plot(curve.recall, curve.precision, **series(names.index(curve.name), len(curve.recall)))
                if len(drawn) == 1:
                    _name_radii(panel, curve)
            priors = {round(curve.prior, 6) for curve in members if curve.prior is not None}
            for prior in priors:
                panel.axhline(prior, color=SOFT, lw=1.0, ls=(0, (1, 2)))
                panel.text(0.0, prior + 0.015, "by chance", ha="left", va="bottom", fontsize=7.5, color=SOFT)
        legend(figure, names, drawn)
        return page_svg(figure, "Precision and recall within each radius", [*names, *(task for task, _ in tasks)])


def _name_radii(panel: Axes, curve: RadiusCurve) -> None:
    """Writes the radius beside some points, far enough from one another."""
    last = (-1.0, -1.0)
    for radius, point in enumerate(zip(curve.recall, curve.precision, strict=True)):
        if np.isfinite(point).all() and np.hypot(point[0] - last[0], point[1] - last[1]) > 0.13:
            panel.annotate(
                f"≤ {radius} bits" if last[0] < 0 else str(radius),
                point,
                xytext=(5, 5),
                textcoords="offset points",
                fontsize=7.5,
                color=SOFT,
            )
            last = point


def interval_mark(value: float, *, low: float, high: float, worst: float, best: float, prior: float) -> str:
    """Draws a value from 0 to 1: dot, interval (thick), worst to best order of ties (thin), chance (tick)."""
    parts = ['<line x1="2" y1="8" x2="122" y2="8" stroke="var(--line)" stroke-width="1"/>']
    for start, end, width, opacity in ((worst, best, 1.5, 1.0), (low, high, 6.0, 0.35)):
        if np.isfinite([start, end]).all():
            parts.append(
                f'<line x1="{_across(start)}" y1="8" x2="{_across(end)}" y2="8" stroke="var(--accent)" '
                f'stroke-width="{width}" stroke-opacity="{opacity}"/>'
            )
    if np.isfinite(prior):
        x = _across(prior)
        parts.append(f'<line x1="{x}" y1="3" x2="{x}" y2="13" stroke="var(--ink-soft)" stroke-width="1.2"/>')
    if np.isfinite(value):
        parts.append(f'<circle cx="{_across(value)}" cy="8" r="3.4" fill="var(--accent)"/>')
    return f'<svg class="mark" viewBox="0 0 124 16" width="124" height="16" aria-hidden="true">{"".join(parts)}</svg>'


def _across(value: float) -> str:
    return f"{2 + 120 * min(max(value, 0.0), 1.0):.1f}"


def bit_strip(code: str, against: str | None = None) -> str:
    """Draws a code as cells, a set bit filled; beside another code, the bits that differ stand out.

    Args:
        code: as "0110".
        against: the query's code, of the same length, or None.
    """
    ones: list[str] = []
    zeros: list[str] = []
    differing: list[str] = []
    for j, bit in enumerate(code):
        cell = f"M{4 * j} 0h3v9h-3z"
        if against is not None and bit != against[j]:
            differing.append(f"M{4 * j} -2h3v13h-3z")
        else:
            (ones if bit == "1" else zeros).append(cell)
    words = f"{len(code)} bits" if against is None else f"{len(differing)} of {len(code)} bits differ"
    paths = "".join(
        f'<path class="{name}" d="{"".join(cells)}"/>'
        for name, cells in (("zero", zeros), ("one", ones), ("differs", differing))
        if cells
    )
    size = f'viewBox="0 -2 {4 * len(code) - 1} 13" preserveAspectRatio="none"'
    return f'<svg class="bits" {size} role="img" aria-label="{words}">{paths}</svg>'
