"""A study's figures laid out as tables: which runs belong to which cell, and their mean over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import RunsDiffer
from silohash.base.types import EVALUATIONS, TASKS, Evaluation, ResultRow
from silohash.evaluate.measures import is_rank
from silohash.evaluate.significance import seed_interval
from silohash.report.headline import OF_PAIRS
from silohash.report.tables import ONLY_ROUND, choices_besides_round
from silohash.report.tables import choices as protocol_choices
from silohash.study.config import RESULT_FIELDS, Choices, StudyConfig
from silohash.study.results import RunResult, StudyResults

Key: TypeAlias = tuple[str, ...]
"""One value per field of the rows or columns."""

Rank: TypeAlias = Literal["best", "second", ""]

GROUPS: tuple[tuple[Evaluation, ...], ...] = (("GG", "PG"), ("GL", "PL"), ("XS",))
"""Evaluations that share a column. A method has either a global model or personal models, and gives one of the two."""

METHOD_AXIS = "method"


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of a table: the runs with its choices, one per seed, and their mean.

    Attributes:
        fields: Field -> value, for every axis and for task, evaluation and measure.
        seeds: The seeds of the finished runs.
        missing: Number of runs that are not finished.
        rows: The runs' figures, in the order of the seeds; empty if the runs do not have the figure.
        values: One value per seed.
        low: Lower end of the 95 % interval; NaN without an interval.
        high: Upper end of the 95 % interval.
        interval: What the interval is over.
        per_query: One array ``(Q,)`` per seed, if the runs have them.
        queries: One digest of the query ids per seed.
        rank: Rank among the cells it is compared with.
        p_value: Of the best against the second; None if not tested.
        tested_on: Number of queries in the test.
        footnote: A letter, if the compared cells were measured differently.
        needs_query_label: Whether the method needs the label of the query.
    """

    fields: Mapping[str, str]
    seeds: tuple[int, ...] = ()
    missing: int = 0
    rows: tuple[ResultRow, ...] = ()
    values: tuple[float, ...] = ()
    low: float = float("nan")
    high: float = float("nan")
    interval: Literal["seeds", "queries", ""] = ""
    per_query: tuple[npt.NDArray[np.float64], ...] = ()
    queries: tuple[str, ...] = ()
    rank: Rank = ""
    p_value: float | None = None
    tested_on: int = 0
    footnote: str = ""
    needs_query_label: bool = False

    @property
    def mean(self) -> float:
        """The mean over the seeds; NaN without a run."""
        return float(np.mean(self.values)) if self.values else float("nan")

    @property
    def of_ranks(self) -> bool:
        """Whether the figures are ranks, of which lower ones are better."""
        return any(is_rank(row.measure) for row in self.rows)

    @property
    def uses_labels(self) -> bool:
        """Whether items were encoded with their true labels."""
        return self.needs_query_label or any(row.uses_labels for row in self.rows)

    @property
    def conditions(self) -> str:
        """What was measured and how, as a phrase; empty without figures."""
        return conditions(self.rows[0]) if self.rows else ""

    @property
    def conditions_besides_round(self) -> str:
        """The conditions without how the round was chosen; empty without figures."""
        return conditions(self.rows[0], choices_besides_round) if self.rows else ""

    @property
    def has_one_round(self) -> bool:
        """Whether all runs had a single round, so that there was no round to choose."""
        return all(row.round_by == ONLY_ROUND for row in self.rows)

    @property
    def empty_because(self) -> str:
        """Why the cell has no value: ``no run`` or ``not measured``; empty if it has one."""
        if self.values:
            return ""
        return "not measured" if self.seeds else "no run"


@dataclass(frozen=True, eq=False)
class ResultTable:
    """A table of results.

    Attributes:
        title: The study's title, and the choices that all cells share.
        name: Name of its files.
        row_fields: The fields of the rows.
        column_fields: The fields of the columns.
        rows: One key per row.
        columns: One key per column.
        cells: (row, column) -> cell.
        compared: The field whose values are ranked.
        ranked: Whether to rank the cells.
        notes: The sentences below the table.
        format_value: Returns a value as text.
    """

    title: str
    name: str
    row_fields: tuple[str, ...]
    column_fields: tuple[str, ...]
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: Mapping[tuple[Key, Key], Cell]
    compared: str
    ranked: bool = True
    notes: tuple[str, ...] = ()
    format_value: Callable[[float], str] = field(default=lambda value: f"{value:.3f}")

    @property
    def has_figures(self) -> bool:
        """Whether any cell has a value."""
        return any(cell.values for cell in self.cells.values())

    def lines(self) -> Iterator[tuple[Key, list[Cell]]]:
        """Yield the key and the cells of each row."""
        for row in self.rows:
            yield row, [self.cells[row, column] for column in self.columns]


@dataclass(frozen=True)
class Layout:
    """The layout of a table.

    Attributes:
        rows: The fields of the rows.
        columns: The fields of the columns.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields."""
        return (*self.rows, *self.columns)


def conditions(row: ResultRow, choices: Callable[[ResultRow], str] = protocol_choices) -> str:
    """Return what a figure was measured on and how, with the choices of the protocol as one line."""
    return f"{row.dataset}, {row.protocol}: {choices(row)}"


def result_tables(study: StudyResults) -> list[ResultTable]:
    """Return a study's tables of figures, one per combination of the fields in neither rows nor columns.

    If the study has several measures, tables without a figure are left out.

    Raises:
        UserError: If runs that differ only in their seed were measured differently.
    """
    config = study.config
    layout = table_layout(config)
    values = field_values(study, layout.fields)
    other = [name for name in (*config.axis_names, *RESULT_FIELDS) if name not in layout.fields]
    by_choices = runs_by_choices(study)

    def make_cell(fixed: Mapping[str, str], varying: Mapping[str, str]) -> Cell:
        """Return the cell with the given value of every field."""
        fields = {**fixed, **varying}
        return figure_cell(fields, runs_with(by_choices, config, fields), len(config.seeds))

    varied = [name for name in other if len(values[name]) > 1]
    found = []
    for combined in product(*(values[name] for name in other)):
        fixed = dict(zip(other, combined, strict=True))
        table = make_table(config, layout, values, partial(make_cell, fixed))
        title, name = _title_and_name(config.title or "Study", fixed, varied)
        found.append(replace(table, title=title, name=name))
    return [table for table in found if "measure" not in varied or table.has_figures]


def _title_and_name(study: str, fixed: Mapping[str, str], varied: Sequence[str]) -> tuple[str, str]:
    """Return the title of a table, which ends with its measure, and the name of its files."""
    shown = [*(name for name in varied if name != "measure"), *fixed.keys() & {"measure"}]
    title = ", ".join([study, *(fixed[name] for name in shown)])
    return title, "-".join(["table", *(file_name(fixed[name]) for name in varied)])


def make_table(
    config: StudyConfig,
    layout: Layout,
    values: Mapping[str, Sequence[str]],
    make_cell: Callable[[Mapping[str, str]], Cell],
) -> ResultTable:
    """Return a table without title and name, whose cells ``make_cell`` returns for a value of each field of the layout."""
    rows, columns = (tuple(product(*(values[name] for name in fields))) for fields in (layout.rows, layout.columns))
    cells = {
        (row, column): make_cell(dict(zip(layout.fields, (*row, *column), strict=True)))
        for row in rows
        for column in columns
    }
    return ResultTable(
        title="", name="", row_fields=layout.rows, column_fields=layout.columns, rows=rows, columns=columns, cells=cells,
        compared=compared_field(config, layout),
    )  # fmt: skip


def table_layout(config: StudyConfig) -> Layout:
    """Return the layout of a study's tables. By default, the rows are the methods or, without methods, the first axis."""
    rows, columns = config.table.rows, config.table.columns
    if not rows and not columns:
        first = METHOD_AXIS if METHOD_AXIS in config.axis_names else config.axis_names[0]
        rows, columns = (first,), (*(name for name in config.axis_names if name != first), "evaluation", "task")
    return Layout(rows, columns)


def compared_field(config: StudyConfig, layout: Layout) -> str:
    """Return the axis whose choices are ranked: the methods or, without methods, the first axis of the table."""
    axes = [name for name in layout.fields if name in config.axis_names]
    return METHOD_AXIS if METHOD_AXIS in axes else next(iter(axes), "")


def field_values(study: StudyResults, shown: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each field, in order.

    Args:
        study: The results.
        shown: The fields in rows or columns. All measures are returned if the measure is one of them, otherwise only
            those of `measures_of_tables`.
    """
    config = study.config
    rows = [row for run in study.runs for row in run.rows]
    shown_measures = measures_of_tables(study)
    measures = dict.fromkeys([*shown_measures, *(row.measure for row in rows)])
    return {
        **{axis.name: [choice.name for choice in axis.choices] for axis in config.axes},
        "task": _tasks(rows),
        "evaluation": _evaluations(rows, config.table.evaluations),
        "measure": list(measures) if "measure" in shown else shown_measures,
    }


def measures_of_tables(study: StudyResults) -> list[str]:
    """Return the measures that the tables and plots of a study show.

    They are those of the study's ``[table]``. If the study does not name any and no run has the default, as without labels,
    it is R@10 by pairs or, without it, the first one of the runs.
    """
    table, measured = study.config.table, [row.measure for run in study.runs for row in run.rows]
    if {"measure", "further_measures"} & table.model_fields_set or not measured or table.measure in measured:
        return list(table.measures)
    return [OF_PAIRS if OF_PAIRS in measured else measured[0]]


def _tasks(rows: Sequence[ResultRow]) -> list[str]:
    """Return the tasks with a figure, or i2t and t2i if there are no figures."""
    measured = {row.task for row in rows}
    return [task for task in TASKS if task in measured] or ["i2t", "t2i"]


def _evaluations(rows: Sequence[ResultRow], wanted: Sequence[Evaluation]) -> list[str]:
    """Return the groups of wanted evaluations, those with a figure if there are figures."""
    groups = [tuple(evaluation for evaluation in group if evaluation in wanted) for group in GROUPS]
    measured = {row.evaluation for row in rows}
    found = [group for group in groups if measured.intersection(group)]
    return ["/".join(group) for group in found or groups if group] or [EVALUATIONS[0]]


def runs_by_choices(study: StudyResults) -> dict[frozenset[tuple[str, str]], list[RunResult]]:
    """Return the finished runs by their choices (`choices_key`), in the order of the seeds."""
    found: dict[frozenset[tuple[str, str]], list[RunResult]] = {}
    for run in sorted(study.runs, key=lambda run: study.config.seeds.index(run.seed)):
        found.setdefault(choices_key(run.choices), []).append(run)
    return found


def runs_with(
    by_choices: Mapping[frozenset[tuple[str, str]], list[RunResult]], config: StudyConfig, fields: Mapping[str, str]
) -> list[RunResult]:
    """Return the finished runs whose choices are those of ``fields``, one per seed."""
    return by_choices.get(choices_key({axis: fields.get(axis, "") for axis in config.axis_names}), [])


def choices_key(choices: Choices) -> frozenset[tuple[str, str]]:
    """Return choices as a dictionary key."""
    return frozenset(choices.items())


def figure_cell(fields: Mapping[str, str], runs: Sequence[RunResult], seeds: int) -> Cell:
    """Return a cell of a table of figures: the values of its fields, its runs, and how many there should be.

    Raises:
        UserError: If the runs were measured differently.
    """
    found = [(run, row) for run in runs if (row := _row_of(run, fields)) is not None]
    rows = tuple(replace(row, round_by=ONLY_ROUND) if len(run.rounds) == 1 else row for run, row in found)
    _check_conditions(rows, runs)
    per_query, queries = _per_query(found)
    return with_interval(
        Cell(
            fields=fields, seeds=tuple(run.seed for run in runs), missing=seeds - len(runs), rows=rows,
            values=tuple(row.value for row in rows), per_query=per_query, queries=queries,
        )
    )  # fmt: skip


def _per_query(
    found: Sequence[tuple[RunResult, ResultRow]],
) -> tuple[tuple[npt.NDArray[np.float64], ...], tuple[str, ...]]:
    """Return the figures per query and the digests of the query ids; nothing unless every run has them."""
    arrays = [run.per_query.get((row.evaluation, row.task, row.measure)) for run, row in found]
    known = tuple(array for array in arrays if array is not None)
    if len(known) < len(found):
        return (), ()
    return known, tuple(run.queries for run, _ in found)


def _row_of(run: RunResult, fields: Mapping[str, str]) -> ResultRow | None:
    """Return a run's figure for a task, a measure and one of the evaluations that share a column."""
    evaluations = fields["evaluation"].split("/")
    wanted = [row for row in run.rows if (row.task, row.measure) == (fields["task"], fields["measure"])]
    return next((row for row in wanted if row.evaluation in evaluations), None)


def _check_conditions(rows: Sequence[ResultRow], runs: Sequence[RunResult]) -> None:
    different = sorted({conditions(row) for row in rows})
    if len(different) > 1:
        raise RunsDiffer(
            f"The runs of {', '.join(runs[0].choices.values())} were measured differently and cannot be averaged: "
            f'"{different[0]}" and "{different[1]}". Run "silohash evaluate" on them or train them again.'
        )


def with_interval(cell: Cell) -> Cell:
    """Return a cell with its interval: over the seeds if there are several, otherwise over the queries of the run."""
    if len(cell.values) > 1:
        low, high = seed_interval(cell.values)
        return replace(cell, low=low, high=high, interval="seeds")
    if len(cell.rows) == 1:
        return replace(cell, low=cell.rows[0].low, high=cell.rows[0].high, interval="queries")
    return cell


def file_name(text: str) -> str:
    """Return a text as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "+._-" else "_" for letter in text)
