"""A study's figures set out as tables: which runs stand in which cell, and what they come to over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.evaluate.significance import seed_interval
from silohash.report.tables import choices as protocol_choices
from silohash.study.grid import BESIDE_AXES, Choices, StudyConfig
from silohash.study.results import CellResult, StudyResults
from silohash.types import EVALUATIONS, TASKS, Evaluation, ResultRow, UserError

Key: TypeAlias = tuple[str, ...]
"""A value for each of some fields."""

Rank: TypeAlias = Literal["best", "second", ""]

GROUPS: tuple[tuple[Evaluation, ...], ...] = (("GG", "PG"), ("GL", "PL"), ("XS",))
"""Evaluations that stand as one: a method has a global model or personal ones, and gives whichever it has."""

METHOD_AXIS = "method"


@dataclass(frozen=True, eq=False)
class Spot:
    """A cell of a table: the runs with its choices, one a seed, and what they come to.

    Attributes:
        fields: field -> value, of every axis and of task, evaluation, measure.
        seeds: of the runs that are there.
        missing: how many runs are not.
        rows: their figures, in the seeds' order; empty if the runs do not give the figure.
        values: a value a seed; of the rows, or what else the table shows.
        low: lower end of the 95 % interval; NaN if there is none.
        high: upper end.
        interval: what the interval is over.
        per_query: ``(Q,)`` a seed, where the runs have them.
        queries: digest of the queries a seed.
        rank: among those that it is compared with.
        p_value: of the best against the second; None where it was not tested.
        tested_on: how many queries it was tested on.
        footnote: a letter where what is measured differs among those compared.
        told_label: whether the method is told the query's own label.
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
    told_label: bool = False

    @property
    def mean(self) -> float:
        """The mean over seeds; NaN without a run."""
        return float(np.mean(self.values)) if self.values else float("nan")

    @property
    def conditions(self) -> str:
        """What is measured and how, in one sentence; empty without figures."""
        return conditions(self.rows[0]) if self.rows else ""

    @property
    def lack(self) -> str:
        """Why the cell is empty: ``no run`` or ``not measured``; empty if it is not."""
        if self.values:
            return ""
        return "not measured" if self.seeds else "no run"


@dataclass(frozen=True, eq=False)
class Sheet:
    """One table.

    Attributes:
        title: the study's, and what all its cells have in common.
        name: for files.
        row_fields: what stands at the left.
        column_fields: what stands above.
        rows: a key a line.
        columns: a key a column.
        spots: (row, column) -> cell.
        compared: the field whose choices the best and second are sought among.
        ranked: whether best and second are sought.
        notes: sentences below.
        figure: how a value is printed.
    """

    title: str
    name: str
    row_fields: tuple[str, ...]
    column_fields: tuple[str, ...]
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    spots: Mapping[tuple[Key, Key], Spot]
    compared: str
    ranked: bool = True
    notes: tuple[str, ...] = ()
    figure: Callable[[float], str] = field(default=lambda value: f"{value:.3f}")

    def lines(self) -> Iterator[tuple[Key, list[Spot]]]:
        """Yields each row's key with its cells."""
        for row in self.rows:
            yield row, [self.spots[row, column] for column in self.columns]


def conditions(row: ResultRow) -> str:
    """Returns what a figure was measured on and how; figures for which it differs do not compare."""
    return f"{row.dataset}, {row.protocol}: {protocol_choices(row)}"


def sheets(study: StudyResults) -> list[Sheet]:
    """Returns a study's tables of figures: one for each choice of what stands in neither rows nor columns.

    Raises:
        UserError: if runs that differ in their seed only were measured differently.
    """
    config = study.config
    row_fields, column_fields = laid_out(config)
    values = field_values(study, (*row_fields, *column_fields))
    beside = [name for name in (*config.axis_names, *BESIDE_AXES) if name not in (*row_fields, *column_fields)]
    by_choices = runs_by_choices(study)

    def spot(fields: Mapping[str, str]) -> Spot:
        """Returns the cell of a value of every field."""
        chosen = {axis: fields[axis] for axis in config.axis_names}
        return figure_spot(fields, by_choices.get(choices_key(chosen), []), len(config.seeds))

    found = []
    for combined in product(*(values[name] for name in beside)):
        fixed = dict(zip(beside, combined, strict=True))
        told = [name for name in beside if len(values[name]) > 1]
        title = ", ".join([config.title or "Study", *(fixed[name] for name in told), *_words(fixed)])
        name = "-".join(["table", *(plain(fixed[name]) for name in told)])
        found.append(lay_out(config, (title, name), (row_fields, column_fields), values, fixed, spot))
    return found


def lay_out(
    config: StudyConfig,
    called: tuple[str, str],
    layout: tuple[tuple[str, ...], tuple[str, ...]],
    values: Mapping[str, Sequence[str]],
    fixed: Mapping[str, str],
    spot: Callable[[Mapping[str, str]], Spot],
) -> Sheet:
    """Fills one table.

    Args:
        config: the study.
        called: title and name.
        layout: the fields of rows and of columns.
        values: field -> its values in order.
        fixed: the fields that the whole table has in common.
        spot: makes a cell of a value of every field.
    """
    row_fields, column_fields = layout
    rows, columns = (tuple(product(*(values[name] for name in fields))) for fields in layout)
    spots = {
        (row, column): spot(
            {**fixed, **dict(zip(row_fields, row, strict=True)), **dict(zip(column_fields, column, strict=True))}
        )
        for row in rows
        for column in columns
    }
    return Sheet(
        title=called[0], name=called[1], row_fields=row_fields, column_fields=column_fields, rows=rows, columns=columns,
        spots=spots, compared=compared_field(config, row_fields, column_fields),
    )  # fmt: skip


def laid_out(config: StudyConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the fields of rows and columns; by default the methods (else the first axis) stand at the left."""
    rows, columns = config.table.rows, config.table.columns
    if not rows and not columns:
        first = METHOD_AXIS if METHOD_AXIS in config.axis_names else config.axis_names[0]
        rows, columns = (first,), (*(name for name in config.axis_names if name != first), "evaluation", "task")
    return rows, columns


def compared_field(config: StudyConfig, row_fields: Sequence[str], column_fields: Sequence[str]) -> str:
    """Returns the axis whose choices are compared: the methods, else the first axis of the table."""
    axes = [name for name in (*row_fields, *column_fields) if name in config.axis_names]
    return METHOD_AXIS if METHOD_AXIS in axes else (axes or [""])[0]


def field_values(study: StudyResults, shown: Sequence[str]) -> dict[str, list[str]]:
    """Returns each field's values in order; of the measures all where they are shown, else the table's own."""
    config = study.config
    rows = [row for cell in study.cells for row in cell.rows]
    asked = [tuple(e for e in group if e in config.table.evaluations) for group in GROUPS]
    measured = {row.evaluation for row in rows}
    groups = ["/".join(group) for group in asked if measured.intersection(group)]
    values = {axis.name: [choice.name for choice in axis.choices] for axis in config.axes}
    values["task"] = [task for task in TASKS if any(row.task == task for row in rows)] or ["i2t", "t2i"]
    values["evaluation"] = groups or ["/".join(group) for group in asked if group] or [EVALUATIONS[0]]
    every = list(dict.fromkeys([config.table.measure, *(row.measure for row in rows)]))
    values["measure"] = every if "measure" in shown else [config.table.measure]
    return values


def runs_by_choices(study: StudyResults) -> dict[frozenset[tuple[str, str]], list[CellResult]]:
    """Returns the finished runs by their choices, in the seeds' order."""
    found: dict[frozenset[tuple[str, str]], list[CellResult]] = {}
    for cell in sorted(study.cells, key=lambda cell: study.config.seeds.index(cell.seed)):
        found.setdefault(choices_key(cell.choices), []).append(cell)
    return found


def choices_key(choices: Choices) -> frozenset[tuple[str, str]]:
    """Returns choices as something to look up by."""
    return frozenset(choices.items())


def figure_spot(fields: Mapping[str, str], cells: Sequence[CellResult], seeds: int) -> Spot:
    """Returns the cell of a table of figures.

    Raises:
        UserError: if the runs were measured differently.
    """
    rows, per_query, queries = [], [], []
    for cell in cells:
        row = next((row for row in cell.rows if _stands(row, fields)), None)
        if row is not None:
            rows.append(row)
            values = cell.per_query.get((row.evaluation, row.task, row.measure))
            if values is not None:
                per_query.append(values)
                queries.append(cell.queries)
    different = sorted({conditions(row) for row in rows})
    if len(different) > 1:
        raise UserError(
            f"The runs of {', '.join(cells[0].choices.values())} were measured differently and have no mean: "
            f'"{different[0]}" and "{different[1]}". Run "silohash evaluate" on them again, or train them anew.'
        )
    paired = len(per_query) == len(rows)
    return averaged(
        Spot(
            fields=fields, seeds=tuple(cell.seed for cell in cells), missing=seeds - len(cells), rows=tuple(rows),
            values=tuple(row.value for row in rows), per_query=tuple(per_query) if paired else (),
            queries=tuple(queries) if paired else (),
        )
    )  # fmt: skip


def averaged(spot: Spot) -> Spot:
    """Returns a cell with its interval: over seeds where there are two or more, else over the one run's queries."""
    if len(spot.values) > 1:
        low, high = seed_interval(spot.values)
        return replace(spot, low=low, high=high, interval="seeds")
    if len(spot.rows) == 1:
        return replace(spot, low=spot.rows[0].low, high=spot.rows[0].high, interval="queries")
    return spot


def _stands(row: ResultRow, fields: Mapping[str, str]) -> bool:
    return (
        row.evaluation in fields["evaluation"].split("/")
        and row.task == fields["task"]
        and row.measure == fields["measure"]
    )


def _words(fixed: Mapping[str, str]) -> list[str]:
    """Returns the measure that a whole table has in common."""
    return [fixed["measure"]] if "measure" in fixed else []


def plain(text: str) -> str:
    """Returns a text as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "+._-" else "_" for letter in text)
