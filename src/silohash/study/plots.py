"""A study's plots: curves over rounds, figures over a numeric axis, and methods side by side with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from silohash.files import note_written
from silohash.report.plots import TASK_WORDS
from silohash.report.style import SOFT, drawing, legend, name_panel, save_figure, series, short
from silohash.runtime.events import RoundRecord
from silohash.study.pivot import METHOD_AXIS, Spot, choices_key, field_values, figure_spot, plain, runs_by_choices
from silohash.study.results import CellResult, StudyResults

PLOTS = "plots"
SUFFIXES = (".svg", ".png")
WIDTH_INCHES = 7.2
PANEL_INCHES = 2.6
TITLE_INCHES = 0.5
MOST_PANEL_ROWS = 5
LOGARITHMIC_FROM = 8
"""How many times the greatest value of an axis must be the least for it to be drawn by its logarithm."""

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Plot:
    """One figure before it is drawn.

    Attributes:
        name: of its files.
        title: above it.
        height_inches: of the whole.
        draw: draws it into an empty figure.
    """

    name: str
    title: str
    height_inches: float
    draw: Callable[[Figure], None]


def write_plots(study: StudyResults, out: Path) -> list[Path]:
    """Writes the plots that a study's axes give sense to, and removes those of an earlier layout.

    Args:
        study: what its runs found.
        out: the study's folder. In its ``plots/``, as ``.svg`` and ``.png``: ``rounds…``, loss and validation over the
            rounds; ``over-AXIS…``, the table's measure over each axis of numbers; without such an axis ``figures…``,
            the methods side by side.

    Returns:
        The files.

    Raises:
        UserError: if a file cannot be written.
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
    """Returns the plots of a study; none without a finished run."""
    if not study.cells:
        return []
    drawn = Drawn(study)
    over = [plot for axis in drawn.numeric for plot in drawn.over_axis(axis)]
    return [*drawn.over_rounds(), *(over or drawn.side_by_side())]


class Drawn:
    """A study with what decides how it is drawn: which axis gives the lines, and which are numbers."""

    def __init__(self, study: StudyResults) -> None:
        self.study = study
        self.config = study.config
        self.values = field_values(study, ())
        self.by_choices = runs_by_choices(study)

    @cached_property
    def numeric(self) -> list[str]:
        """The axes whose choices are two or more numbers."""
        return [
            name
            for name in self.config.axis_names
            if name != METHOD_AXIS and len(self.values[name]) > 1 and all(map(is_number, self.values[name]))
        ]

    @cached_property
    def line_axis(self) -> str:
        """The axis of which each choice is a line: the methods, else the first that is no number; empty if none is."""
        names = [name for name in self.config.axis_names if name not in self.numeric and len(self.values[name]) > 1]
        return METHOD_AXIS if METHOD_AXIS in self.config.axis_names else (names or [""])[0]

    @property
    def lines(self) -> list[str]:
        """The lines' names, in the order that gives each its look in every plot."""
        return self.values[self.line_axis] if self.line_axis else [""]

    def split(self, *without: str) -> tuple[list[Fields], list[Fields]]:
        """Returns the choices that get a plot each, and those that get a line of panels each, of the axes left over.

        Axes of numbers give lines of panels as long as there are few.
        """
        left = [name for name in self.config.axis_names if name not in {self.line_axis, *without}]
        numbers = [name for name in left if name in self.numeric]
        if math.prod(len(self.values[name]) for name in numbers) > MOST_PANEL_ROWS:
            numbers = []
        return self._choices([name for name in left if name not in numbers]), self._choices(numbers)

    def runs(self, fields: Fields) -> list[CellResult]:
        """Returns the finished runs with some choices, one a seed."""
        return self.by_choices.get(choices_key({axis: fields[axis] for axis in self.config.axis_names}), [])

    def spot(self, fields: Fields) -> Spot:
        """Returns the figure of some choices."""
        return figure_spot(fields, self.runs(fields), len(self.config.seeds))

    def on_line(self, line: str) -> Fields:
        """Returns the choice that a line stands for."""
        return {self.line_axis: line} if self.line_axis else {}

    def title(self, *parts: str) -> str:
        """Returns a plot's title."""
        return ", ".join(part for part in (self.config.title, *parts) if part)

    def over_rounds(self) -> list[Plot]:
        """Returns loss and validation over the rounds: a plot for each choice of the other axes."""
        plots, panels = self.split()

        def plot(fixed: Fields) -> Plot:
            """Returns the plot of some choices."""
            return Plot(
                name=plain("-".join(["rounds", *self._told_all(fixed)])),
                title=self.title(*self._told_all(fixed)),
                height_inches=PANEL_INCHES * len(panels) + TITLE_INCHES,
                draw=lambda figure: self._draw_rounds(figure, fixed, panels),
            )

        return [plot(fixed) for fixed in plots if self._any(fixed, panels)]

    def over_axis(self, axis: str) -> list[Plot]:
        """Returns the table's measure over an axis of numbers: a panel a task, a plot for each choice of the others."""
        plots, panels = self.split(axis)

        def plot(fixed: Fields, evaluation: str) -> Plot:
            """Returns the plot of some choices and one evaluation."""
            told = [*self._told_all(fixed), evaluation]
            return Plot(
                name=plain("-".join([f"over-{axis}", *told])),
                title=self.title(*told, self.config.table.measure),
                height_inches=PANEL_INCHES * len(panels) + TITLE_INCHES,
                draw=lambda figure: self._draw_over(figure, axis, {**fixed, **self._figure_fields(evaluation)}, panels),
            )

        return [
            plot(fixed, evaluation)
            for fixed, evaluation in product(plots, self.values["evaluation"])
            if self._any(fixed, panels, axis)
        ]

    def side_by_side(self) -> list[Plot]:
        """Returns the methods with their intervals, a panel a task: where no axis is of numbers."""
        plots, _ = self.split()

        def plot(fixed: Fields, evaluation: str) -> Plot:
            """Returns the plot of some choices and one evaluation."""
            told = [*self._told_all(fixed), evaluation]
            return Plot(
                name=plain("-".join(["figures", *told])),
                title=self.title(*told, self.config.table.measure),
                height_inches=0.9 + 0.28 * len(self.lines) + TITLE_INCHES,
                draw=lambda figure: self._draw_side_by_side(figure, {**fixed, **self._figure_fields(evaluation)}),
            )

        if not self.line_axis:
            return []
        return [
            plot(fixed, evaluation)
            for fixed, evaluation in product(plots, self.values["evaluation"])
            if self._any(fixed, [{}])
        ]

    def _draw_rounds(self, figure: Figure, fixed: Fields, panels: Sequence[Fields]) -> None:
        drawn = set()
        validated = any(record.validation is not None for cell in self.study.cells for record in cell.rounds)
        grid = figure.subplots(len(panels), 2 if validated else 1, squeeze=False)
        for row, chosen in zip(grid, panels, strict=True):
            about = "".join(f", {name} {value}" for name, value in chosen.items())
            name_panel(row[0], f"Training loss{about}", "round", "")
            if validated:
                name_panel(row[1], f"Validation{about}", "round", "")
            for number, line in enumerate(self.lines):
                runs = self.runs({**fixed, **chosen, **self.on_line(line)})
                drawn |= {line} if runs else set()
                for axes, value in zip(row, (_loss, _validation), strict=False):
                    draw_band(axes, [[value(record) for record in cell.rounds] for cell in runs], number)
            for axes in row:
                axes.xaxis.get_major_locator().set_params(integer=True)
        legend(figure, self.lines, drawn)
        self._say_band(figure, "Band: least to greatest over the seeds.")

    def _draw_over(self, figure: Figure, axis: str, fixed: Fields, panels: Sequence[Fields]) -> None:
        drawn = set()
        places = np.array([float(value) for value in self.values[axis]])
        tasks = self.values["task"]
        grid = figure.subplots(len(panels), len(tasks), squeeze=False, sharey=True)
        for (row, chosen), (column, task) in product(zip(grid, panels, strict=True), enumerate(tasks)):
            axes, about = row[column], "".join(f", {name} {value}" for name, value in chosen.items())
            name_panel(axes, f"{TASK_WORDS[task]}{about}", axis, "" if column else self.config.table.measure)
            for number, line in enumerate(self.lines):
                fields = {**fixed, **chosen, **self.on_line(line), "task": task}
                spots = [self.spot({**fields, axis: value}) for value in self.values[axis]]
                if any(spot.values for spot in spots):
                    drawn.add(line)
                    draw_line(axes, places, spots, number)
            mark_places(axes, places, self.values[axis])
        legend(figure, self.lines, drawn)
        self._say_band(
            figure, "Bars: 95 % interval of the mean over the seeds.", "Bars: 95 % interval over the queries."
        )

    def _draw_side_by_side(self, figure: Figure, fixed: Fields) -> None:
        tasks = self.values["task"]
        row = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for axes, task in zip(row, tasks, strict=True):
            name_panel(axes, TASK_WORDS[task], self.config.table.measure, "")
            for number, line in enumerate(self.lines):
                spot = self.spot({**fixed, **self.on_line(line), "task": task})
                if spot.values:
                    draw_dot(axes, spot, number)
            axes.set_yticks(range(len(self.lines)), [short(line, 28) for line in self.lines])
            axes.set_ylim(len(self.lines) - 0.5, -0.5)
            axes.spines["left"].set_visible(False)
        self._say_band(
            figure, "Bars: 95 % interval of the mean over the seeds.", "Bars: 95 % interval over the queries."
        )

    def _say_band(self, figure: Figure, of_seeds: str, else_: str = "") -> None:
        """Says what a band or a bar is over, below the panels."""
        said = of_seeds if len(self.config.seeds) > 1 else else_
        if said:
            figure.supxlabel(said, x=0.99, ha="right", fontsize=7.5, color=SOFT)

    def _choices(self, names: Sequence[str]) -> list[Fields]:
        return [dict(zip(names, combined, strict=True)) for combined in product(*(self.values[name] for name in names))]

    def _any(self, fixed: Fields, panels: Sequence[Fields], axis: str = "") -> bool:
        """Tells whether a plot would show anything."""
        over: Sequence[Fields] = [{axis: value} for value in self.values[axis]] if axis else [{}]
        return any(
            self.runs({**fixed, **chosen, **self.on_line(line), **place})
            for chosen, line, place in product(panels, self.lines, over)
        )

    def _figure_fields(self, evaluation: str) -> Fields:
        return {"evaluation": evaluation, "measure": self.config.table.measure}

    def _told_all(self, fixed: Fields) -> list[str]:
        """Returns choices as titles tell them: a number with its axis, a name by itself."""
        varied = {name: value for name, value in fixed.items() if len(self.values[name]) > 1}
        return [f"{name} {value}" if is_number(value) else value for name, value in varied.items()]


def draw_band(axes: Axes, curves: Sequence[Sequence[float]], number: int) -> None:
    """Draws the mean of a curve a seed, and a band from the least to the greatest.

    Args:
        axes: where to draw.
        curves: a value a round; NaN where there is none. Only rounds that all seeds have are drawn.
        number: of the series.
    """
    count = min((len(curve) for curve in curves), default=0)
    values = np.array([curve[:count] for curve in curves], np.float64).reshape(len(curves), count)
    if not np.isfinite(values).any():
        return
    rounds = np.arange(1, count + 1)
    look = series(number, count)
    axes.plot(rounds, values.mean(axis=0), **look)
    if len(values) > 1:
        axes.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=look["color"], alpha=0.15, lw=0)


def draw_line(axes: Axes, places: npt.NDArray[np.float64], spots: Sequence[Spot], number: int) -> None:
    """Draws figures over places with their intervals; places without a figure are left out."""
    there = [place for place, spot in enumerate(spots) if math.isfinite(spot.mean)]
    means = np.array([spots[place].mean for place in there])
    look = series(number, len(places))
    axes.plot(places[there], means, **look)
    ends = np.array([(spots[place].low, spots[place].high) for place in there]).reshape(-1, 2)
    sure = np.isfinite(ends).all(axis=1)
    axes.vlines(places[there][sure], *ends[sure].T, color=look["color"], lw=1.2, alpha=0.55)


def draw_dot(axes: Axes, spot: Spot, number: int) -> None:
    """Draws one figure with its interval, in the line of its number."""
    look = series(number, 1)
    axes.plot(spot.mean, number, color=look["color"], marker=look["marker"], markersize=5.5, linestyle="none")
    if math.isfinite(spot.low + spot.high):
        axes.hlines(number, spot.low, spot.high, color=look["color"], lw=1.6, alpha=0.6)


def mark_places(axes: Axes, places: npt.NDArray[np.float64], names: Sequence[str]) -> None:
    """Marks an axis at its values, by their logarithm where they span much."""
    if places.min() > 0 and places.max() >= LOGARITHMIC_FROM * places.min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, names)


def is_number(text: str) -> bool:
    """Tells whether a choice's name is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _loss(record: RoundRecord) -> float:
    return math.nan if record.loss is None else record.loss


def _validation(record: RoundRecord) -> float:
    return math.nan if record.validation is None else record.validation
