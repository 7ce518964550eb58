"""The plots of a study: curves over rounds, precision over recall, figures over one or two axes, methods side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import accumulate, product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from silohash.base.files import note_written
from silohash.base.visible import visible
from silohash.measure.evaluation import RadiusCurve
from silohash.report.gather import losses, radius_curves, validations
from silohash.report.plots import TASK_WORDS
from silohash.report.style import INK, SERIES, SOFT, drawing, legend, name_panel, save_figure, series, short
from silohash.run.events import RoundRecord
from silohash.run.folder import Run
from silohash.study.config import Over, is_number
from silohash.study.figures import CurveName
from silohash.study.pivot import METHOD_AXIS, Cell, field_values, figure_cell, file_name
from silohash.study.results import StudyResults

PLOTS = "plots"
SUFFIXES = (".svg", ".png")
WIDTH_INCHES = 7.2
PANEL_INCHES = 2.6
TITLE_INCHES = 0.5
MAX_PANEL_ROWS = 5
BARS = ("Bars: 95 % interval of the mean over the seeds.", "Bars: 95 % interval over the queries.")
"""What a bar shows with several seeds, and with one."""

LOGARITHMIC_FROM = 8
"""An axis is logarithmic if its largest value is at least this many times its smallest."""

HEAT = LinearSegmentedColormap.from_list("figures", ["#ffffff", SERIES[0]])
"""The colors of a heat map, from the lowest figure to the highest."""

Fields: TypeAlias = Mapping[str, str]
"""Axis, task, evaluation or measure -> its value."""

Values: TypeAlias = npt.NDArray[np.float64]
Curve: TypeAlias = tuple[str, Callable[[Sequence[RoundRecord]], list[float]]]
"""A title, and what returns one value per round."""


def relative_losses(records: Sequence[RoundRecord]) -> list[float]:
    """Return the training loss of each round, divided by that of the first round; NaN if that is not positive."""
    found = losses(records)
    first = found[0] if found and found[0] > 0 else math.nan
    return [loss / first for loss in found]


CURVES: Mapping[CurveName, Curve] = {
    "loss": ("Training loss", losses),
    "relative loss": ("Loss relative to round 1", relative_losses),
    "validation": ("Validation score", validations),
}
"""Name in a study's file -> title of the panel, and one value per round."""


PLACES: Mapping[Over, Curve] = {
    "rounds": ("round", lambda records: [float(number) for number in range(1, len(records) + 1)]),
    "seconds": (
        "seconds of training",
        lambda records: list(accumulate(sum(silo.seconds for silo in record.silos) for record in records)),
    ),
}
"""Name in a study's file -> label of the axis, and one place per round: its number from 1, or the seconds of local training
until its end, added up over the silos."""


def draw_band(axes: Axes, places: Sequence[Sequence[float]], curves: Sequence[Sequence[float]], number: int) -> None:
    """Draw the mean of several curves, and a band from the minimum to the maximum, over the mean of their places.

    There is one curve per seed with one value per round, NaN where there is none. Only the rounds that all seeds have are
    drawn. The number of the line determines its color.
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
    """Draw the mean precision over the mean recall within each radius, and return whether there was something to draw.

    A radius is left out if no item is within it for one of the seeds.
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


def _table(lines: Sequence[Sequence[float]], count: int) -> Values:
    """Return the first ``count`` values of each line as an array, ``(lines, count)``."""
    return np.array([line[:count] for line in lines], np.float64).reshape(len(lines), count)


@dataclass(frozen=True)
class Plot:
    """A plot that is not drawn yet. ``draw`` draws it on an empty figure, and its files have its name."""

    name: str
    title: str
    height_inches: float
    draw: Callable[[Figure], None]


def write_plots(study: StudyResults, out: Path) -> list[Path]:
    """Write the plots that fit a study's axes, remove those of an earlier layout, and return the paths of the files.

    The study's folder gets in its ``plots/``, as ``.svg`` and ``.png``: ``rounds…`` and ``seconds…``, the curves of
    ``[plots]`` over the rounds and the training time; ``precision-recall…``; ``heat-map…``, the table's measures over the
    two axes of ``[plots]``; ``over-AXIS…``, the measures over each other numeric axis; and, if there is neither,
    ``figures…``, the methods side by side.

    Raises:
        UserError: If a file cannot be written.
    """
    written = []
    for plot in plots_of(study):
        with drawing(WIDTH_INCHES, plot.height_inches) as figure:
            figure.suptitle(short(plot.title, 76), x=0.01, ha="left", fontweight="bold", fontsize=11)
            plot.draw(figure)
            for suffix in SUFFIXES:
                path = out / PLOTS / f"{plot.name}{suffix}"
                save_figure(figure, path, plot.title)
                written.append(path)
    note_written(out / PLOTS, written)
    return written


def plots_of(study: StudyResults) -> list[Plot]:
    """Return the plots of a study; none without a finished run."""
    return StudyPlotter(study).plots() if study.runs else []


class StudyPlotter:
    """Makes the plots of a study. It decides which axis gives the lines, the panels and the plots."""

    def __init__(self, study: StudyResults) -> None:
        self.study = study
        self.config = study.config
        self.values = field_values(study, ())
        self.radius_curves = cache(lambda folder: radius_curves(Run(folder)))

    @cached_property
    def numeric_axes(self) -> list[str]:
        """The axes whose choices are two or more numbers."""
        return [
            name
            for name in self.config.axis_names
            if name != METHOD_AXIS and len(self.values[name]) > 1 and all(map(is_number, self.values[name]))
        ]

    @cached_property
    def line_axis(self) -> str:
        """The axis with one line per choice: the methods or, without methods, the first axis that is not numeric."""
        if METHOD_AXIS in self.config.axis_names:
            return METHOD_AXIS
        axes = (name for name in self.config.axis_names if name not in self.numeric_axes and len(self.values[name]) > 1)
        return next(axes, "")

    @cached_property
    def lines(self) -> dict[str, Fields]:
        """The name of each line and the choice that it stands for, in the order that determines colors in every plot."""
        return {line: {self.line_axis: line} for line in self.values[self.line_axis]} if self.line_axis else {"": {}}

    def plots(self) -> list[Plot]:
        """Return all plots: the curves, then those of each measure."""
        plots, panels = self._split()
        height = PANEL_INCHES * len(panels) + TITLE_INCHES
        curves: dict[str, Callable[..., None]] = {
            over: partial(self._draw_rounds, over=over) for over in self.config.plots.over
        }
        if self.config.plots.precision_recall:
            curves["precision-recall"] = self._draw_precision_recall
        found = []
        for name, draw in curves.items():
            found += self._plots(name, plots, panels, height, partial(draw, panels=panels))
        for measure in self.values["measure"]:
            found += self._of_measure(measure)
        return found

    def _of_measure(self, measure: str) -> list[Plot]:
        """Return the plots of a measure: over axes or, without any, the methods side by side."""
        pair = self.config.plots.heat_map
        found = self._heat_maps(measure, *pair) if pair else []
        for axis in self.numeric_axes:
            if axis not in pair:
                plots, panels = self._split(axis)
                found += self._plots(
                    f"over-{axis}", self._measured(measure, plots),
                    [{**chosen, axis: value} for chosen, value in product(panels, self.values[axis])],
                    PANEL_INCHES * len(panels) + TITLE_INCHES, partial(self._draw_over, axis=axis, panels=panels),
                )  # fmt: skip
        if found or not self.line_axis:
            return found
        height = 0.9 + 0.28 * len(self.lines) + TITLE_INCHES
        return self._plots("figures", self._measured(measure, self._split()[0]), [{}], height, self._draw_side_by_side)

    def _heat_maps(self, measure: str, down: str, across: str) -> list[Plot]:
        """Return the plots of a measure over two axes."""
        others = self._choices([name for name in self.config.axis_names if name not in {down, across}])
        height = 0.9 + 0.42 * len(self.values[down]) + TITLE_INCHES
        draw = partial(self._draw_heat_map, down=down, across=across)
        return self._plots("heat-map", self._measured(measure, others), self._choices([down, across]), height, draw)

    def _split(self, *shown: str) -> tuple[list[Fields], list[Fields]]:
        """Return the choices with a plot each, and the choices with a row of panels each.

        Numeric axes give rows of panels if there are few of them. The axes ``shown`` are those within a panel.
        """
        left = [name for name in self.config.axis_names if name not in {self.line_axis, *shown}]
        numbers = [name for name in left if name in self.numeric_axes]
        if math.prod(len(self.values[name]) for name in numbers) > MAX_PANEL_ROWS:
            numbers = []
        return self._choices([name for name in left if name not in numbers]), self._choices(numbers)

    def _choices(self, names: Sequence[str]) -> list[Fields]:
        return [dict(zip(names, combined, strict=True)) for combined in product(*(self.values[name] for name in names))]

    def _measured(self, measure: str, plots: Iterable[Fields]) -> list[Fields]:
        """Return the choices of plots in each evaluation."""
        evaluations = self.values["evaluation"]
        return [{**fixed, "evaluation": name, "measure": measure} for fixed, name in product(plots, evaluations)]

    def _plots(
        self, kind: str, plots: Iterable[Fields], within: Sequence[Fields], height: float, draw: Callable[..., None]
    ) -> list[Plot]:
        """Return one plot per combination of fixed choices, without those that no choices within them give a run."""
        return [
            Plot(
                name=file_name("-".join([kind, *self._words(fixed, "evaluation")])),
                title=", ".join(filter(None, [self.config.title, *self._words(fixed, "evaluation", "measure")])),
                height_inches=height,
                draw=partial(draw, fixed=fixed),
            )
            for fixed in plots
            if any(self._shows({**line, **fixed, **inner}) for inner, line in product(within, self.lines.values()))
        ]

    def _words(self, fixed: Fields, *always: str) -> list[str]:
        """Return the choices of fields that have several, or are named always: a number with its axis, a name alone."""
        named = {name: value for name, value in fixed.items() if len(self.values[name]) > 1 or name in always}
        return [f"{name} {value}" if is_number(value) else value for name, value in named.items()]

    def _shows(self, fields: Fields) -> bool:
        """Return whether there is a run and, if there are several measures, a figure for the given choices."""
        runs = self.study.runs_with(fields)
        if "measure" not in fields or len(self.values["measure"]) == 1:
            return bool(runs)
        evaluations, measure = fields["evaluation"].split("/"), fields["measure"]
        return any(row.measure == measure and row.evaluation in evaluations for run in runs for row in run.rows)

    @cached_property
    def _curves(self) -> list[Curve]:
        """The title and the values of each curve that is drawn over the rounds."""
        names = self.config.plots.curves
        scored = any(record.validation is not None for run in self.study.runs for record in run.rounds)
        return [CURVES[name] for name in names if scored or name != "validation"] or [CURVES["loss"]]

    def _draw_rounds(self, figure: Figure, fixed: Fields, panels: Sequence[Fields], over: Over) -> None:
        across, places = PLACES[over]
        drawn = set()
        grid = figure.subplots(len(panels), len(self._curves), squeeze=False)
        for row, chosen in zip(grid, panels, strict=True):
            for axes, (title, _) in zip(row, self._curves, strict=True):
                name_panel(axes, title + _suffix(chosen), across, "")
                axes.xaxis.get_major_locator().set_params(integer=over == "rounds")
            for number, (name, line) in enumerate(self.lines.items()):
                records = [run.rounds for run in self.study.runs_with({**fixed, **chosen, **line})]
                drawn |= {name} if records else set()
                for axes, (_, values) in zip(row, self._curves, strict=True):
                    draw_band(axes, list(map(places, records)), list(map(values, records)), number)
        self._explain(figure, drawn, "Band: minimum to maximum over the seeds.")

    def _task_panels(
        self, figure: Figure, panels: Sequence[Fields], across: str, up: str
    ) -> Iterator[tuple[Axes, Fields]]:
        """Yield one panel per row of choices and task, with these choices, the task included."""
        tasks = self.values["task"]
        grid = figure.subplots(len(panels), len(tasks), squeeze=False, sharey=True)
        for (row, chosen), (column, task) in product(zip(grid, panels, strict=True), enumerate(tasks)):
            name_panel(row[column], TASK_WORDS[task] + _suffix(chosen), across, "" if column else up)
            yield row[column], {**chosen, "task": task}

    def _draw_precision_recall(self, figure: Figure, fixed: Fields, panels: Sequence[Fields]) -> None:
        drawn = set()
        for axes, chosen in self._task_panels(figure, panels, "recall", "precision"):
            for number, (name, line) in enumerate(self.lines.items()):
                runs = self.study.runs_with({**fixed, **chosen, **line})
                curves = [c for run in runs for c in self.radius_curves(run.folder) if c.task == chosen["task"]]
                drawn |= {name} if draw_precision(axes, curves, number) else set()
        self._explain(figure, drawn, "Means over the seeds, per radius.")

    def _draw_over(self, figure: Figure, fixed: Fields, axis: str, panels: Sequence[Fields]) -> None:
        drawn = set()
        places = np.array([float(value) for value in self.values[axis]])
        for axes, chosen in self._task_panels(figure, panels, axis, fixed["measure"]):
            for number, (name, line) in enumerate(self.lines.items()):
                fields = {**fixed, **chosen, **line}
                cells = [figure_cell(self.study, {**fields, axis: value}) for value in self.values[axis]]
                if any(cell.values for cell in cells):
                    drawn.add(name)
                    draw_line(axes, places, cells, number)
            mark_places(axes, places, self.values[axis])
        self._explain(figure, drawn, *BARS)

    def _draw_heat_map(self, figure: Figure, fixed: Fields, down: str, across: str) -> None:
        for axes, chosen in self._task_panels(figure, [{}], across, down):
            means = [
                [
                    figure_cell(self.study, {**fixed, **chosen, down: one, across: other}).mean
                    for other in self.values[across]
                ]
                for one in self.values[down]
            ]
            draw_heat_map(axes, np.array(means), self.values[down], self.values[across])
        colors = "Colors: lowest to highest figure of a panel."
        self._explain(figure, (), f"Means over the seeds. {colors}", colors)

    def _draw_side_by_side(self, figure: Figure, fixed: Fields) -> None:
        for axes, chosen in self._task_panels(figure, [{}], fixed["measure"], ""):
            for number, line in enumerate(self.lines.values()):
                cell = figure_cell(self.study, {**fixed, **chosen, **line})
                if cell.values:
                    draw_dot(axes, cell, number)
            axes.set_yticks(range(len(self.lines)), [short(line, 28) for line in self.lines])
            axes.set_ylim(len(self.lines) - 0.5, -0.5)
            axes.spines["left"].set_visible(False)
        self._explain(figure, (), *BARS)

    def _explain(self, figure: Figure, drawn: Collection[str], several_seeds: str, one_seed: str = "") -> None:
        """Write below the panels which line is which, and what a band or a bar shows."""
        legend(figure, list(self.lines), drawn)
        text = several_seeds if len(self.config.seeds) > 1 else one_seed
        if text:
            figure.supxlabel(text, x=0.99, ha="right", fontsize=7.5, color=SOFT)


def _suffix(chosen: Fields) -> str:
    """Return choices as the end of a panel's title."""
    return "".join(f", {name} {value}" for name, value in chosen.items())
