"""The figures of a study: which files they give, which runs each shows, and the numbers that are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import groupby, product
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from silohash.base.errors import LabelsNeeded, NotMeasured, UserError
from silohash.base.files import digest_json, note_written, write_text
from silohash.base.visible import visible
from silohash.report.examples import ExampleSearch
from silohash.report.gather import label_table, released_examples
from silohash.report.plots import TASK_WORDS, LabelTable, label_map_height
from silohash.report.style import SOFT, drawing, legend, name_panel, save_figure, short
from silohash.run.folder import Run
from silohash.study import drawing as charts
from silohash.study.config import is_number
from silohash.study.figures import CurveName, Figure
from silohash.study.pivot import METHOD_AXIS, Cell, field_values, figure_cell, file_name
from silohash.study.results import RunResult, StudyResults
from silohash.study.run_data import Points, in_plane, labeled_codes, over_rounds, top_rows, within_radius
from silohash.study.tables import WORDS, csv_of

PLOTS = "plots"
SUFFIXES = (".svg", ".png")
WIDTH_INCHES = 7.2
PANEL_INCHES = 2.6
RELIEF_INCHES = 3.1
TITLE_INCHES = 0.5
MAX_PANEL_ROWS = 5
BARS = ("Bars: 95 % interval of the mean over the seeds.", "Bars: 95 % interval over the queries.")
"""What a bar shows with several seeds, and with one."""

MARKS = "✓ relevant, ✗ not relevant."
Panel: TypeAlias = tuple[str, Callable[[RunResult], Points]]
"""A title, and what returns the curve of a run."""

AXES_OF_CURVES: Mapping[str, Sequence[str]] = WORDS["axes"]
"""Kind of figure -> the names of the axes of its panels, and what it shows with several seeds."""

TITLES: Mapping[CurveName, str] = WORDS["titles"]
TOP: Mapping[str, str] = {"P": "Precision", "R": "Recall"}
"""Measure of the nearest N items -> title of its panel."""

CELL_COLUMNS: list[object] = ["task", "evaluation", "measure", "mean", "low", "high"]
"""Columns of the numbers of figures that show a measure, after the study's axes."""

Fields: TypeAlias = Mapping[str, str]
"""Axis, task, evaluation or measure -> its value."""

Lines: TypeAlias = list[list[object]]
"""The numbers of a figure: lines of CSV after the study's axes, the header first."""


@dataclass(frozen=True)
class Plot:
    """A plot that is not drawn yet. Its files have its name.

    ``draw`` draws it on an empty figure and returns the numbers that it shows.
    """

    name: str
    title: str
    height_inches: float
    draw: Callable[[Canvas], Lines]


def write_plots(study: StudyResults, out: Path) -> tuple[list[Path], list[UserError]]:
    """Write the figures of a study, and remove those of an earlier layout.

    The study's folder gets each in its ``plots/`` as ``.svg`` and ``.png``, and its numbers as ``.csv``.

    Returns:
        The paths of the files, and why figures could not be drawn. These do not prevent the others.

    Raises:
        UserError: If a file cannot be written.
    """
    written: list[Path] = []
    failed: list[UserError] = []
    for plotter in plotters(study):
        try:
            for plot in plotter.plots():
                written += _write(plot, study, out / PLOTS)
        except UserError as error:
            failed.append(error)
    note_written(out / PLOTS, written)
    return written, failed


def _write(plot: Plot, study: StudyResults, folder: Path) -> list[Path]:
    *pictures, numbers = (folder / f"{plot.name}{suffix}" for suffix in (*SUFFIXES, ".csv"))
    with drawing(WIDTH_INCHES, plot.height_inches) as canvas:
        canvas.suptitle(short(plot.title, 76), x=0.01, ha="left", fontweight="bold", fontsize=11)
        columns, *lines = plot.draw(canvas)
        for path in pictures:
            save_figure(canvas, path, plot.title)
    write_text(numbers, csv_of([*study.config.axis_names, *map(str, columns)], lines))
    return [*pictures, numbers]


def plotters(study: StudyResults) -> list[StudyPlotter]:
    """Return what makes the plots of each figure of a study; none without a finished run.

    If the study does not name figures, they are the curves over the rounds, and the measures over each axis of numbers or,
    without such an axis, those of the methods.
    """
    figures = study.config.figures if study.runs else ()
    if study.runs and not figures:
        first = StudyPlotter(study, Figure(kind="rounds"))
        over = [Figure(kind="axis", axis=axis) for axis in first.numeric_axes]
        figures = (first.figure, *(over or [Figure(kind="methods")] * bool(first.line_axis)))
    alike = [(figure.kind, figure.axis) for figure in figures]
    twins = [alike[:number].count(key) for number, key in enumerate(alike)]
    return [
        StudyPlotter(study, figure, f"-{twin + 1}" * (twin > 0)) for figure, twin in zip(figures, twins, strict=True)
    ]


class StudyPlotter:
    """Makes the plots of a figure. It decides which axis gives the lines, the panels and the plots.

    Args:
        study: A study with at least one finished run.
        figure: What to draw.
        suffix: End of the name of each plot.
    """

    def __init__(self, study: StudyResults, figure: Figure, suffix: str = "") -> None:
        self.study = study
        self.config = study.config
        self.figure = figure
        self.suffix = suffix
        self.top_rows = cache(lambda folder: top_rows(Run(folder), figure))
        self.every = field_values(study, ())
        self.values = {
            name: [value for value in values if value in figure.only.get(name, values)]
            for name, values in self.every.items()
        }

    @cached_property
    def numeric_axes(self) -> list[str]:
        """The axes of which two or more choices are drawn, all of them numbers."""
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
    def names(self) -> list[str]:
        """The names of all lines of the study, in the order that determines colors in every plot."""
        return self.every[self.line_axis] if self.line_axis else [""]

    @cached_property
    def lines(self) -> list[tuple[int, str, Fields]]:
        """The number, the name and the choice of each line that is drawn."""
        if not self.line_axis:
            return [(0, "", {})]
        drawn = self.values[self.line_axis]
        return [(number, name, {self.line_axis: name}) for number, name in enumerate(self.names) if name in drawn]

    def plots(self) -> list[Plot]:
        """Return the plots of the figure."""
        makers = {
            "axis": self._over_axis, "surface": self._surfaces, "methods": self._methods, "tsne": self._planes,
            "partition": self._partitions, "examples": self._examples,
        }  # fmt: skip
        return makers.get(self.figure.kind, self._curves)()

    def _curves(self) -> list[Plot]:
        kind, (plots, panels) = self.figure.kind, self._split()
        if kind == "top_n":
            plots = [{**fixed, "evaluation": name} for fixed, name in product(plots, self.values["evaluation"])]
            panels = [{**chosen, "task": task} for chosen, task in product(panels, self.values["task"])]
        draw = partial(self._draw_curves, panels=panels)
        return self._plots(kind.replace("_", "-"), plots, panels, PANEL_INCHES * len(panels), draw)

    def _over_axis(self) -> list[Plot]:
        axis = self.figure.axis
        plots, panels = self._split(axis)
        within = [{**chosen, axis: value} for chosen, value in product(panels, self.values[axis])]
        draw = partial(self._draw_over, axis=axis, panels=panels)
        return self._plots(f"over-{axis}", self._measured(plots), within, PANEL_INCHES * len(panels), draw)

    def _surfaces(self) -> list[Plot]:
        shown = self.figure.axes
        flat = 0.9 + 0.42 * len(self.values[shown[0]])
        inches = RELIEF_INCHES if self.figure.view == "relief" else flat
        return self._plots(
            "surface", self._measured(self._besides(*shown)), self._choices(shown), inches, self._draw_surface
        )

    def _methods(self) -> list[Plot]:
        plots = self._measured(self._besides(self.line_axis))
        return self._plots("methods", plots, [{}], 0.9 + 0.28 * len(self.lines), self._draw_methods)

    def _planes(self) -> list[Plot]:
        inches = 0.3 + PANEL_INCHES * -(-len(self.lines) // charts.TSNE_COLUMNS)
        return self._plots("tsne", self._besides(self.line_axis), [{}], inches, self._draw_planes)

    def _partitions(self) -> list[Plot]:
        groups: dict[str, list[RunResult]] = {}
        for run in self._first_runs():
            key = digest_json([Run(run.folder).stored_partition.digest(), run.rows[0].dataset, run.rows[0].protocol])
            groups.setdefault(key, []).append(run)
        shared = [set.intersection(*(set(run.choices.items()) for run in runs)) for runs in groups.values()]
        found = []
        for (run, *_), same in zip(groups.values(), shared, strict=True):
            table = label_table(Run(run.folder))
            if table is None:
                raise LabelsNeeded(f"The items of {run.folder} have no labels to count. Remove the figure.")
            named = {name: run.choices[name] for name, choice in run.choices.items() if (name, choice) in same}
            draw = partial(self._draw_partition, run=run, table=table)
            chosen = named if shared.count(same) == 1 else run.choices
            inches = label_map_height(table) + 0.4 if self.figure.view == "bubbles" else 1.5 + 0.26 * len(table.silos)
            found.append(self._plot("partition", chosen, inches, draw))
        return found

    def _examples(self) -> list[Plot]:
        found = []
        for run in self._first_runs():
            examples = released_examples(Run(run.folder))
            if examples is None:
                raise NotMeasured(f'{run.folder} has no example searches. Run "silohash evaluate {run.folder}".')
            by_task = groupby(examples.searches, key=lambda search: search.task)
            shown = [search for _, some in by_task for search in list(some)[: self.figure.searches]]
            draw = partial(self._draw_examples, run=run, searches=shown)
            found.append(self._plot("examples", run.choices, 0.2 + 1.35 * len(shown), draw))
        return found

    def _first_runs(self) -> list[RunResult]:
        """Return the run with the first seed for each combination of the choices that are drawn."""
        return [run for chosen in self._choices(self.config.axis_names) for run in self.study.runs_with(chosen)[:1]]

    def _split(self, *shown: str) -> tuple[list[Fields], list[Fields]]:
        """Return the choices with a plot each, and the choices with a row of panels each.

        Numeric axes give rows of panels if there are few of them. The axes ``shown`` are those within a panel.
        """
        left = [name for name in self.config.axis_names if name not in {self.line_axis, *shown}]
        numbers = [name for name in left if name in self.numeric_axes]
        if math.prod(len(self.values[name]) for name in numbers) > MAX_PANEL_ROWS:
            numbers = []
        return self._choices([name for name in left if name not in numbers]), self._choices(numbers)

    def _besides(self, *names: str) -> list[Fields]:
        return self._choices([name for name in self.config.axis_names if name not in names])

    def _measured(self, plots: Iterable[Fields]) -> list[Fields]:
        return [{**fixed, **how} for fixed, how in product(plots, self._choices(("evaluation", "measure")))]

    def _choices(self, names: Sequence[str]) -> list[Fields]:
        return [dict(zip(names, combined, strict=True)) for combined in product(*(self.values[name] for name in names))]

    def _plots(
        self, kind: str, plots: Iterable[Fields], within: Sequence[Fields], inches: float, draw: Callable[..., Lines]
    ) -> list[Plot]:
        """Return one plot per combination of fixed choices, without those that no choices within them give a run."""
        return [
            self._plot(kind, fixed, inches, partial(draw, fixed=fixed))
            for fixed in plots
            if any(self._shows({**line, **fixed, **inner}) for inner, (_, _, line) in product(within, self.lines))
        ]

    def _plot(self, kind: str, named: Fields, inches: float, draw: Callable[[Canvas], Lines]) -> Plot:
        """Return a plot whose name and title have the choices that tell it from others."""
        name = file_name("-".join([kind, *self._words(named, "evaluation")]))
        title = ", ".join(filter(None, [self.config.title, *self._words(named, "evaluation", "measure")]))
        return Plot(f"{name}{self.suffix}", title, inches + TITLE_INCHES, draw)

    def _words(self, fixed: Fields, *always: str) -> list[str]:
        """Return the choices of fields that have several, or are named always: a number with its axis, a name alone."""
        named = {name: value for name, value in fixed.items() if len(self.every[name]) > 1 or name in always}
        return [f"{name} {value}" if is_number(value) else value for name, value in named.items()]

    def _shows(self, fields: Fields) -> bool:
        """Return whether there is a run and, if there are several measures, a figure for the given choices."""
        runs = self.study.runs_with(fields)
        if "measure" not in fields or len(self.values["measure"]) == 1:
            return bool(runs)
        evaluations, measure = fields["evaluation"].split("/"), fields["measure"]
        return any(row.measure == measure and row.evaluation in evaluations for run in runs for row in run.rows)

    def _line(self, run: RunResult, *values: object) -> list[object]:
        """Return a line of numbers: the choices and the seed of a run, then values."""
        return [*(run.choices[name] for name in self.config.axis_names), run.seed, *values]

    def _draw_curves(self, canvas: Canvas, fixed: Fields, panels: Sequence[Fields]) -> Lines:
        """Draw curves as means over the seeds, with one row of panels per row of choices."""
        kind, drawn = self.figure.kind, set()
        across, up, note = AXES_OF_CURVES[kind]
        numbers: Lines = [["seed", "curve", across, up or "value"]]
        rows = [self._curves_of(**{**fixed, **chosen}) for chosen in panels]
        grid = canvas.subplots(len(rows), len(rows[0]), squeeze=False, sharey=kind == "precision_recall")
        for (row, column), axes in np.ndenumerate(grid):
            title, curve_of = rows[row][column]
            name_panel(axes, title + _suffix(panels[row]), across, "" if column else up)
            charts.scale_axis(
                axes, np.array(self.figure.first, float) if kind == "top_n" else None, whole=kind == "rounds"
            )
            for number, name, line in self.lines:
                runs = self.study.runs_with({**fixed, **panels[row], **line})
                curves = [curve_of(run) for run in runs]
                drawn |= {name} if charts.draw_band(axes, curves, number, band=kind != "precision_recall") else set()
                for run, curve in zip(runs, curves, strict=True):
                    numbers += [self._line(run, title, *point) for point in zip(*curve, strict=True)]
        self._explain(canvas, drawn, note)
        if kind == "precision_recall" and not drawn:
            raise NotMeasured(
                "No run has precision within Hamming radii, which needs labels and codes. Remove the figure."
            )
        return numbers

    def _curves_of(self, task: str = "", evaluation: str = "", **_: str) -> list[Panel]:
        kind = self.figure.kind
        if kind == "precision_recall":
            return [(TASK_WORDS[name], partial(within_radius, task=name)) for name in self.values["task"]]
        if kind == "top_n":
            of_run = partial(self._top, task=task, evaluations=evaluation.split("/"))
            return [(f"{word}, {task}", partial(of_run, name=name)) for name, word in TOP.items()]
        scored = any(record.validation is not None for run in self.study.runs for record in run.rounds)
        names = [name for name in self.figure.curves if scored or name != "validation"] or ["loss"]
        return [(TITLES[name], partial(over_rounds, over=kind, name=name)) for name in names]

    def _top(self, run: RunResult, task: str, evaluations: Sequence[str], name: str) -> Points:
        """Return the precision (P) or the recall (R) of the nearest N items for each N, NaN where it was not measured."""
        rows = [row for row in self.top_rows(run.folder) if row.task == task and row.evaluation in evaluations]
        values = {row.measure: row.value for row in rows}
        return self.figure.first, [values.get(f"{name}@{count}", math.nan) for count in self.figure.first]

    def _task_panels(
        self, canvas: Canvas, panels: Sequence[Fields], across: str, up: str, *, relief: bool = False
    ) -> Iterator[tuple[Axes, Fields]]:
        """Yield one panel per row of choices and task, with these choices, the task included."""
        tasks = self.values["task"]
        more = {"projection": "3d"} if relief else {}
        grid = canvas.subplots(len(panels), len(tasks), squeeze=False, sharey=not relief, subplot_kw=more)
        for (row, chosen), (column, task) in product(zip(grid, panels, strict=True), enumerate(tasks)):
            name_panel(row[column], TASK_WORDS[task] + _suffix(chosen), across, "" if column and not relief else up)
            yield row[column], {**chosen, "task": task}

    def _cells(self, fields: Fields, axis: str, numbers: Lines) -> list[Cell]:
        """Return the figure for each choice of an axis, and add what is known of them to the numbers."""
        cells = [figure_cell(self.study, {**fields, axis: value}) for value in self.values.get(axis, [""])]
        for cell in filter(lambda cell: cell.values, cells):
            names = (*self.config.axis_names, "task", "evaluation", "measure")
            numbers.append([*(cell.fields.get(name, "") for name in names), cell.mean, cell.low, cell.high])
        return cells

    def _draw_over(self, canvas: Canvas, fixed: Fields, axis: str, panels: Sequence[Fields]) -> Lines:
        drawn, numbers = set(), [CELL_COLUMNS.copy()]
        places = np.array([float(value) for value in self.values[axis]])
        for axes, chosen in self._task_panels(canvas, panels, axis, fixed["measure"]):
            for number, name, line in self.lines:
                cells = self._cells({**fixed, **chosen, **line}, axis, numbers)
                if any(cell.values for cell in cells):
                    drawn.add(name)
                    charts.draw_line(axes, places, cells, number)
            charts.scale_axis(axes, places)
            axes.set_xticks(places, [visible(value) for value in self.values[axis]])
        self._explain(canvas, drawn, *BARS)
        return numbers

    def _draw_surface(self, canvas: Canvas, fixed: Fields) -> Lines:
        numbers, (down, across) = [CELL_COLUMNS.copy()], self.figure.axes
        relief = self.figure.view == "relief"
        for axes, chosen in self._task_panels(canvas, [{}], across, down, relief=relief):
            rows = [self._cells({**fixed, **chosen, down: one}, across, numbers) for one in self.values[down]]
            means = np.array([[cell.mean for cell in cells] for cells in rows])
            draw: Callable[..., None] = charts.draw_relief if relief else charts.draw_heat_map
            draw(axes, means, self.values[down], self.values[across])
        colors = "Colors: lowest to highest figure of a panel."
        self._explain(canvas, (), f"Means over the seeds. {colors}", colors)
        return numbers

    def _draw_methods(self, canvas: Canvas, fixed: Fields) -> Lines:
        numbers = [CELL_COLUMNS.copy()]
        for axes, chosen in self._task_panels(canvas, [{}], fixed["measure"], ""):
            cells = self._cells({**fixed, **chosen}, self.line_axis, numbers)
            for place, (cell, (number, _, _)) in enumerate(zip(cells, self.lines, strict=True)):
                if cell.values:
                    charts.draw_dot(axes, cell, place, number)
            axes.set_yticks(range(len(self.lines)), [short(name, 28) for _, name, _ in self.lines])
            axes.set_ylim(len(self.lines) - 0.5, -0.5)
            axes.spines["left"].set_visible(False)
        self._explain(canvas, (), *BARS)
        return numbers

    def _draw_planes(self, canvas: Canvas, fixed: Fields) -> Lines:
        chosen = [(name, run) for _, name, line in self.lines for run in self.study.runs_with({**fixed, **line})[:1]]
        codes = [labeled_codes(Run(run.folder), self.figure) for _, run in chosen]
        places = [
            in_plane(of_run, self.figure, str(run.folder)) for (_, run), of_run in zip(chosen, codes, strict=True)
        ]
        charts.draw_planes(canvas, [name for name, _ in chosen], codes, places)
        self._explain(canvas, (), f"Seed {chosen[0][1].seed}.")
        numbers: Lines = [["seed", "item", "label", "x", "y"]]
        for (_, run), of_run, points in zip(chosen, codes, places, strict=True):
            names = [of_run.labels[label] for label in of_run.label]
            cells = zip(of_run.items, names, *points.T.tolist(), strict=True)
            numbers += [self._line(run, *of_item) for of_item in cells]
        return numbers

    def _draw_partition(self, canvas: Canvas, run: RunResult, table: LabelTable) -> Lines:
        if self.figure.view == "bubbles":
            charts.draw_bubbles(canvas.subplots(), table)
        else:
            charts.draw_stacked(canvas.subplots(), table)
            canvas.legend(loc="outside lower left", ncols=4)
        numbers: Lines = [["seed", "silo", "label", "items"]]
        for (silo, label), count in np.ndenumerate(table.counts):
            numbers.append(self._line(run, table.silos[silo], table.labels[label], int(count)))
        return numbers

    def _draw_examples(self, canvas: Canvas, run: RunResult, searches: Sequence[ExampleSearch]) -> Lines:
        charts.draw_searches(canvas, searches, self.figure.hits)
        self._explain(canvas, (), f"Seed {run.seed}. {MARKS}", MARKS)
        columns = ("seed", "task", "query", "place", "item", "silo", "distance in bits", "score", "relevant")
        numbers: Lines = [[*columns]]
        for search in searches:
            for place, hit in enumerate(search.hits[: self.figure.hits], 1):
                rank = place if hit.score is None else hit.rank
                found = (rank, hit.item.item_id, hit.item.silo, hit.distance_bits, hit.score, hit.relevant)
                numbers.append(self._line(run, search.task, search.query.item_id, *found))
        return numbers

    def _explain(self, canvas: Canvas, drawn: Collection[str], several_seeds: str, one_seed: str = "") -> None:
        """Write below the panels which line is which, and what a band or a bar shows."""
        legend(canvas, self.names, drawn)
        text = several_seeds if len(self.config.seeds) > 1 else one_seed
        if text:
            canvas.supxlabel(text, x=0.99, ha="right", fontsize=7.5, color=SOFT)


def _suffix(chosen: Fields) -> str:
    return "".join(f", {name} {value}" for name, value in chosen.items() if name != "task")
