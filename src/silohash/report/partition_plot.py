"""The plot of a partition: sizes, labels per silo, and the distance of each silo from the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from silohash.base.visible import visible
from silohash.data.partitions.drift import DISTANCES, Drift
from silohash.report.plots import MOST_LABELS, MOST_SILOS_WITH_NUMBERS, LabelTable, label_cells, label_map_height
from silohash.report.style import ACCENT, LINE, SOFT, drawing, save_figure, series

SIZES_INCHES, DISTANCES_INCHES = 1.0, 1.9
SPREAD = 0.18
"""Spacing of the markers of a silo's distances, in columns."""


def draw_partition(drift: Drift, labels: tuple[str, ...], path: Path, *, title: str) -> None:
    """Write the plot of a partition to a file.

    Args:
        drift: Labels and sizes of the silos.
        labels: C names.
        path: File name, ending in ``.svg`` or ``.png``.
        title: For example "fashion, dirichlet over 10 silos".

    Raises:
        UserError: If the name has another ending, or the file cannot be written.
    """
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
    _draw_sizes(sizes, drift)
    label_cells(cells, table, relative=True)
    left_out = len(table.labels) - len(table.shown())
    cells.set_title("Items of each label", pad=6.0)
    if left_out:
        cells.set_xlabel(f"the {MOST_LABELS} most frequent labels; {left_out} are not shown", loc="left")
    _draw_distances(distances, drift)
    for panel in (sizes, cells, distances):
        panel.set_xlim(0, len(drift.silos))
    markers = [Line2D([], [], **series(number, 1) | {"linestyle": "none"}) for number in range(len(DISTANCES))]
    figure.legend(markers, list(DISTANCES), loc="outside lower left", ncols=len(markers))


def _draw_sizes(axes: Axes, drift: Drift) -> None:
    silos = len(drift.silos)
    axes.bar(np.arange(silos) + 0.5, drift.sizes, width=0.62, color=ACCENT, alpha=0.55, linewidth=0)
    axes.set_title("Items")
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(0, max(1, int(drift.sizes.max())) * 1.2)
    axes.set(xticks=[], yticks=[])
    crowded = silos > MOST_SILOS_WITH_NUMBERS
    for place, size in enumerate(drift.sizes.tolist()):
        axes.text(
            place + 0.5, size, f"{size:,}", ha="center", va="bottom", fontsize=6.0 if crowded else 7.5, color=SOFT
        )


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
