"""The plots of a study: curves over rounds, precision over recall, figures over one or two axes, methods side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from silohash.base.files import note_written
from silohash.report.gather import radius_curves
from silohash.report.plots import TASK_WORDS, RadiusCurve
from silohash.report.style import SOFT, drawing, legend, name_panel, save_figure, short
from silohash.run.folder import Run
from silohash.study.config import Over
from silohash.study.curves import (
    CURVES,
    PLACES,
    Curve,
    draw_band,
    draw_dot,
    draw_heat_map,
    draw_line,
    draw_precision,
    mark_places,
)
from silohash.study.pivot import (
    METHOD_AXIS,
    Cell,
    field_values,
    figure_cell,
    file_name,
    runs_by_choices,
    runs_with,
)
from silohash.study.results import RunResult, StudyResults

PLOTS = "plots"
SUFFIXES = (".svg", ".png")
WIDTH_INCHES = 7.2
PANEL_INCHES = 2.6
TITLE_INCHES = 0.5
MAX_PANEL_ROWS = 5
BARS = ("Bars: 95 % interval of the mean over the seeds.", "Bars: 95 % interval over the queries.")
"""What a bar shows with several seeds, and with one."""

Fields = Mapping[str, str]
"""Axis, task, evaluation or measure -> its value."""


@dataclass(frozen=True)
class Plot:
    """A plot that is not drawn yet.

    Attributes:
        name: Name of its files.
        title: Its title.
        height_inches: Its height.
        draw: Draws it on an empty figure.
    """

    name: str
    title: str
    height_inches: float
    draw: Callable[[Figure], None]


def write_plots(study: StudyResults, out: Path) -> list[Path]:
    """Write the plots that fit a study's axes, and remove those of an earlier layout.

    Args:
        study: The results.
        out: The study's folder. Its ``plots/`` gets, as ``.svg`` and ``.png``: ``rounds…`` and ``seconds…``, the curves of
            ``[plots]`` over the rounds and the training time; ``precision-recall…``; ``heat-map…``, the table's measures
            over the two axes of ``[plots]``; ``over-AXIS…``, the measures over each other numeric axis; and, if there is
            neither, ``figures…``, the methods side by side.

    Returns:
        The paths of the files.

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
    if not study.runs:
        return []
    plotter = StudyPlotter(study)
    curves = [plot for name in study.config.plots.over for plot in plotter.over_rounds(name)]
    figures = [plot for measure in plotter.values["measure"] for plot in StudyPlotter(study, measure).figures()]
    return [*curves, *plotter.precision_recall(), *figures]


class StudyPlotter:
    """Makes the plots of a study. It decides which axis gives the lines, the panels and the plots."""

    def __init__(self, study: StudyResults, measure: str = "") -> None:
        self.study = study
        self.config = study.config
        self.values = field_values(study, ())
        self.measure = measure or self.values["measure"][0]
        self.by_choices = runs_by_choices(study)
        self._radius_curves: dict[Path, tuple[RadiusCurve, ...]] = {}

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

    @property
    def lines(self) -> list[str]:
        """The names of the lines, in the order that determines their colors in every plot."""
        return self.values[self.line_axis] if self.line_axis else [""]

    def split(self, *without: str) -> tuple[list[Fields], list[Fields]]:
        """Return the choices with a plot each, and the choices with a row of panels each.

        Numeric axes give rows of panels if there are few of them.

        Args:
            without: Axes that the plot itself shows, besides the axis of the lines.
        """
        left = [name for name in self.config.axis_names if name not in {self.line_axis, *without}]
        numbers = [name for name in left if name in self.numeric_axes]
        if math.prod(len(self.values[name]) for name in numbers) > MAX_PANEL_ROWS:
            numbers = []
        return self._choices([name for name in left if name not in numbers]), self._choices(numbers)

    def runs(self, fields: Fields) -> list[RunResult]:
        """Return the finished runs with the given choices, one per seed."""
        return runs_with(self.by_choices, self.config, fields)

    def cell(self, fields: Fields) -> Cell:
        """Return the figure for the given choices."""
        return figure_cell(fields, self.runs(fields), len(self.config.seeds))

    def radius_curves(self, run: RunResult) -> tuple[RadiusCurve, ...]:
        """Return a run's precision and recall by radius, one curve per task, which are read once."""
        if run.folder not in self._radius_curves:
            self._radius_curves[run.folder] = radius_curves(Run(run.folder))
        return self._radius_curves[run.folder]

    def on_line(self, line: str) -> Fields:
        """Return the choice that a line stands for."""
        return {self.line_axis: line} if self.line_axis else {}

    def over_rounds(self, over: Over = "rounds") -> list[Plot]:
        """Return the plots of the curves over rounds or seconds, one per combination of the other choices."""
        return self._panel_plots(over, lambda figure, fixed, panels: self._draw_rounds(figure, fixed, panels, over))

    def precision_recall(self) -> list[Plot]:
        """Return the plots of precision over recall, if the study has them, one per combination of the other choices."""
        if not self.config.plots.precision_recall:
            return []
        return self._panel_plots("precision-recall", self._draw_precision_recall)

    def _panel_plots(self, name: str, draw: Callable[[Figure, Fields, Sequence[Fields]], None]) -> list[Plot]:
        """Return one plot per combination of the choices that are neither lines nor rows of panels."""
        plots, panels = self.split()
        return [self._panel_plot(name, fixed, panels, draw) for fixed in plots if self._any(fixed, panels)]

    def _panel_plot(
        self,
        name: str,
        fixed: Fields,
        panels: Sequence[Fields],
        draw: Callable[[Figure, Fields, Sequence[Fields]], None],
    ) -> Plot:
        varied = self._varied(fixed)
        return Plot(
            name=file_name("-".join([name, *varied])),
            title=", ".join(part for part in (self.config.title, *varied) if part),
            height_inches=PANEL_INCHES * len(panels) + TITLE_INCHES,
            draw=lambda figure: draw(figure, fixed, panels),
        )

    def figures(self) -> list[Plot]:
        """Return the plots of the measure: over axes or, without any, the methods side by side."""
        pair = self.config.plots.heat_map
        maps = self.heat_maps(*pair) if pair else []
        over = [plot for axis in self.numeric_axes if axis not in pair for plot in self.over_axis(axis)]
        return [*maps, *over] or self.side_by_side()

    def heat_maps(self, down: str, across: str) -> list[Plot]:
        """Return the plots of the measure over two axes, with one panel per task."""
        names = [name for name in self.config.axis_names if name not in {down, across}]
        height = 0.9 + 0.42 * len(self.values[down]) + TITLE_INCHES
        return [
            self._figure_plot(
                "heat-map",
                fixed,
                evaluation,
                height,
                lambda figure, fields: self._draw_heat_map(figure, down, across, fields),
            )
            for fixed, evaluation in product(self._choices(names), self.values["evaluation"])
            if any(
                self._has_figure({**fixed, down: one, across: other}, evaluation)
                for one, other in product(self.values[down], self.values[across])
            )
        ]

    def over_axis(self, axis: str) -> list[Plot]:
        """Return the plots of the measure over a numeric axis, with one panel per task."""
        plots, panels = self.split(axis)
        height = PANEL_INCHES * len(panels) + TITLE_INCHES
        return [
            self._figure_plot(
                f"over-{axis}", fixed, evaluation, height,
                lambda figure, fields: self._draw_over(figure, axis, fields, panels),
            )
            for fixed, evaluation in product(plots, self.values["evaluation"])
            if self._any(fixed, panels, axis, evaluation)
        ]  # fmt: skip

    def side_by_side(self) -> list[Plot]:
        """Return the plots of the methods with their intervals, with one panel per task."""
        if not self.line_axis:
            return []
        plots, _ = self.split()
        height = 0.9 + 0.28 * len(self.lines) + TITLE_INCHES
        return [
            self._figure_plot("figures", fixed, evaluation, height, self._draw_side_by_side)
            for fixed, evaluation in product(plots, self.values["evaluation"])
            if self._any(fixed, [{}], evaluation=evaluation)
        ]

    def _figure_plot(
        self, name: str, fixed: Fields, evaluation: str, height: float, draw: Callable[[Figure, Fields], None]
    ) -> Plot:
        """Return a plot of the measure in one evaluation."""
        measure, several = self.measure, len(self.values["measure"]) > 1
        parts = [*self._varied(fixed), evaluation]
        return Plot(
            name=file_name("-".join([name, *parts, *([measure] if several else [])])),
            title=", ".join(part for part in (self.config.title, *parts, measure) if part),
            height_inches=height,
            draw=lambda figure: draw(figure, {**fixed, "evaluation": evaluation, "measure": measure}),
        )

    @cached_property
    def curves(self) -> list[Curve]:
        """The title and the values of each curve that is drawn over the rounds."""
        names = self.config.plots.curves
        scored = any(record.validation is not None for run in self.study.runs for record in run.rounds)
        return [CURVES[name] for name in names if scored or name != "validation"] or [CURVES["loss"]]

    def _draw_rounds(self, figure: Figure, fixed: Fields, panels: Sequence[Fields], over: Over) -> None:
        across, places = PLACES[over]
        drawn = set()
        grid = figure.subplots(len(panels), len(self.curves), squeeze=False)
        for row, chosen in zip(grid, panels, strict=True):
            for axes, (title, _) in zip(row, self.curves, strict=True):
                name_panel(axes, title + _suffix(chosen), across, "")
                axes.xaxis.get_major_locator().set_params(integer=over == "rounds")
            for number, line in enumerate(self.lines):
                records = [run.rounds for run in self.runs({**fixed, **chosen, **self.on_line(line)})]
                drawn |= {line} if records else set()
                for axes, (_, values) in zip(row, self.curves, strict=True):
                    draw_band(axes, list(map(places, records)), list(map(values, records)), number)
        legend(figure, self.lines, drawn)
        self._explain(figure, "Band: minimum to maximum over the seeds.")

    def _draw_precision_recall(self, figure: Figure, fixed: Fields, panels: Sequence[Fields]) -> None:
        drawn = set()
        tasks = self.values["task"]
        grid = figure.subplots(len(panels), len(tasks), squeeze=False, sharey=True)
        for (row, chosen), (column, task) in product(zip(grid, panels, strict=True), enumerate(tasks)):
            name_panel(row[column], TASK_WORDS[task] + _suffix(chosen), "recall", "" if column else "precision")
            for number, line in enumerate(self.lines):
                runs = self.runs({**fixed, **chosen, **self.on_line(line)})
                curves = [curve for run in runs for curve in self.radius_curves(run) if curve.task == task]
                drawn |= {line} if draw_precision(row[column], curves, number) else set()
        legend(figure, self.lines, drawn)
        self._explain(figure, "Means over the seeds, per radius.")

    def _draw_over(self, figure: Figure, axis: str, fixed: Fields, panels: Sequence[Fields]) -> None:
        drawn = set()
        places = np.array([float(value) for value in self.values[axis]])
        tasks = self.values["task"]
        grid = figure.subplots(len(panels), len(tasks), squeeze=False, sharey=True)
        for (row, chosen), (column, task) in product(zip(grid, panels, strict=True), enumerate(tasks)):
            axes = row[column]
            title = f"{TASK_WORDS[task]}{_suffix(chosen)}"
            name_panel(axes, title, axis, "" if column else self.measure)
            for number, line in enumerate(self.lines):
                fields = {**fixed, **chosen, **self.on_line(line), "task": task}
                cells = [self.cell({**fields, axis: value}) for value in self.values[axis]]
                if any(cell.values for cell in cells):
                    drawn.add(line)
                    draw_line(axes, places, cells, number)
            mark_places(axes, places, self.values[axis])
        legend(figure, self.lines, drawn)
        self._explain(figure, *BARS)

    def _draw_heat_map(self, figure: Figure, down: str, across: str, fixed: Fields) -> None:
        tasks = self.values["task"]
        row = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for column, (axes, task) in enumerate(zip(row, tasks, strict=True)):
            name_panel(axes, TASK_WORDS[task], across, "" if column else down)
            means = [
                [self.cell({**fixed, "task": task, down: one, across: other}).mean for other in self.values[across]]
                for one in self.values[down]
            ]
            draw_heat_map(axes, np.array(means), self.values[down], self.values[across])
        colors = "Colors: lowest to highest figure of a panel."
        self._explain(figure, f"Means over the seeds. {colors}", colors)

    def _draw_side_by_side(self, figure: Figure, fixed: Fields) -> None:
        tasks = self.values["task"]
        row = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for axes, task in zip(row, tasks, strict=True):
            name_panel(axes, TASK_WORDS[task], self.measure, "")
            for number, line in enumerate(self.lines):
                cell = self.cell({**fixed, **self.on_line(line), "task": task})
                if cell.values:
                    draw_dot(axes, cell, number)
            axes.set_yticks(range(len(self.lines)), [short(line, 28) for line in self.lines])
            axes.set_ylim(len(self.lines) - 0.5, -0.5)
            axes.spines["left"].set_visible(False)
        self._explain(figure, *BARS)

    def _explain(self, figure: Figure, several_seeds: str, one_seed: str = "") -> None:
        """Write below the panels what a band or a bar shows."""
        text = several_seeds if len(self.config.seeds) > 1 else one_seed
        if text:
            figure.supxlabel(text, x=0.99, ha="right", fontsize=7.5, color=SOFT)

    def _choices(self, names: Sequence[str]) -> list[Fields]:
        return [dict(zip(names, combined, strict=True)) for combined in product(*(self.values[name] for name in names))]

    def _any(self, fixed: Fields, panels: Sequence[Fields], axis: str = "", evaluation: str = "") -> bool:
        """Return whether a plot would show at least one run, with a figure in an evaluation if one is given."""
        values: Sequence[Fields] = [{axis: value} for value in self.values[axis]] if axis else [{}]
        shown = (
            {**fixed, **chosen, **self.on_line(line), **value}
            for chosen, line, value in product(panels, self.lines, values)
        )
        return any(self._has_figure(fields, evaluation) if evaluation else self.runs(fields) for fields in shown)

    def _has_figure(self, fields: Fields, evaluation: str) -> bool:
        """Return whether there is a figure for the given choices. With a single measure, a run is enough."""
        runs = self.runs(fields)
        measured = {(row.evaluation, row.measure) for run in runs for row in run.rows}
        found = any((name, self.measure) in measured for name in evaluation.split("/"))
        return found or (bool(runs) and len(self.values["measure"]) == 1)

    def _varied(self, fixed: Fields) -> list[str]:
        """Return the choices of the axes that have several, for titles: a number with its axis, a name alone."""
        varied = {name: value for name, value in fixed.items() if len(self.values[name]) > 1}
        return [f"{name} {value}" if is_number(value) else value for name, value in varied.items()]


def is_number(text: str) -> bool:
    """Return whether a choice's name is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _suffix(chosen: Fields) -> str:
    """Return choices as the end of a panel's title."""
    return "".join(f", {name} {value}" for name, value in chosen.items())
