"""A study's figures laid out as tables: which runs belong to which cell, their mean over the seeds, ranks and notes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from string import ascii_lowercase
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import RunsDiffer
from silohash.base.types import EVALUATIONS, TASKS, Evaluation, ResultRow
from silohash.evaluate.measures import is_rank
from silohash.evaluate.significance import paired_bootstrap, seed_interval
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.report.headline import OF_PAIRS
from silohash.report.page import EVALUATION_WORDS
from silohash.report.tables import ONLY_ROUND, choices_besides_round
from silohash.report.tables import choices as protocol_choices
from silohash.study.config import RESULT_FIELDS, StudyConfig
from silohash.study.results import RunResult, StudyResults

Key: TypeAlias = tuple[str, ...]
"""One value per field of the rows or columns."""

Layout: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""The fields of a table's rows, and those of its columns."""

GROUPS: tuple[tuple[Evaluation, ...], ...] = (
    ("GG", "PG"), ("GL", "PL"), ("GF", "PF"), ("GA", "PA"), ("XS",),
)  # fmt: skip
"""Evaluations that share a column. A method has either a global model or personal models, and gives one of the two."""

METHOD_AXIS = "method"

SIGNIFICANT = 0.05
"""The p-value below which the best figure is marked as better than the second."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of a table: the runs with its choices, one per seed, and their mean.

    Attributes:
        fields: Field -> value, for every axis and for task, evaluation and measure.
        missing: Number of runs that are not finished.
        rows: The runs' figures, in the order of the seeds; empty if the runs do not have the figure.
        low: Lower end of the 95 % interval, as ``high`` is its upper end; NaN without one.
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
    rank: Literal["best", "second", ""] = ""
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
        cells: (row, column) -> cell.
        compared: The field whose values are ranked.
        notes: The sentences below the table.
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

    def lines(self) -> Iterator[tuple[Key, list[Cell]]]:
        """Yield the key and the cells of each row."""
        for row in self.rows:
            yield row, [self.cells[row, column] for column in self.columns]


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
    shown = [*layout[0], *layout[1]]
    values = field_values(study, shown)
    other = [name for name in (*config.axis_names, *RESULT_FIELDS) if name not in shown]
    varied = [name for name in other if len(values[name]) > 1]
    found = []
    for combined in product(*(values[name] for name in other)):
        fixed = dict(zip(other, combined, strict=True))
        table = make_table(config, layout, values, fixed, partial(figure_cell, study))
        name = "-".join(["table", *(file_name(fixed[name]) for name in varied)])
        found.append(replace(table, title=_title(config.title or "Study", fixed, varied), name=name))
    return [one for one in found if "measure" not in varied or any(cell.values for cell in one.cells.values())]


def _title(study: str, fixed: Mapping[str, str], varied: Sequence[str]) -> str:
    shown = [*(name for name in varied if name != "measure"), *fixed.keys() & {"measure"}]
    return ", ".join([study, *(fixed[name] for name in shown)])


def make_table(
    config: StudyConfig,
    layout: Layout,
    values: Mapping[str, Sequence[str]],
    fixed: Mapping[str, str],
    make_cell: Callable[[Mapping[str, str]], Cell],
) -> ResultTable:
    """Return a table without title and name, whose cells ``make_cell`` returns for fixed and varying fields."""
    rows, columns = (tuple(product(*(values[name] for name in fields))) for fields in layout)
    shown = (*layout[0], *layout[1])
    cells = {
        (row, column): make_cell({**fixed, **dict(zip(shown, (*row, *column), strict=True))})
        for row, column in product(rows, columns)
    }
    return ResultTable(
        title="", name="", row_fields=layout[0], column_fields=layout[1], rows=rows, columns=columns, cells=cells,
        compared=compared_field(config, shown),
    )  # fmt: skip


def table_layout(config: StudyConfig) -> Layout:
    """Return the layout of a study's tables. By default, the rows are the methods or, without methods, the first axis."""
    if config.table.rows or config.table.columns:
        return config.table.rows, config.table.columns
    first = METHOD_AXIS if METHOD_AXIS in config.axis_names else config.axis_names[0]
    return (first,), (*(name for name in config.axis_names if name != first), "evaluation", "task")


def compared_field(config: StudyConfig, shown: Sequence[str]) -> str:
    """Return the axis whose choices are ranked: the methods or, without methods, the first axis of the table."""
    axes = [name for name in shown if name in config.axis_names]
    return METHOD_AXIS if METHOD_AXIS in axes else next(iter(axes), "")


def field_values(study: StudyResults, shown: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each field, in order.

    If the measure is one of the fields ``shown`` in rows or columns, these are all measures, otherwise only those of
    `measures_of_tables`.
    """
    config = study.config
    rows = [row for run in study.runs for row in run.rows]
    tasks = {row.task for row in rows}
    shown_measures = measures_of_tables(study)
    measures = dict.fromkeys([*shown_measures, *(row.measure for row in rows)])
    return {
        **{axis.name: [choice.name for choice in axis.choices] for axis in config.axes},
        "task": [task for task in TASKS if task in tasks] or ["i2t", "t2i"],
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


def _evaluations(rows: Sequence[ResultRow], wanted: Sequence[Evaluation]) -> list[str]:
    """Return the groups of wanted evaluations, those with a figure if there are figures."""
    groups = [tuple(evaluation for evaluation in group if evaluation in wanted) for group in GROUPS]
    measured = {row.evaluation for row in rows}
    found = [group for group in groups if measured.intersection(group)]
    return ["/".join(group) for group in found or groups if group] or [EVALUATIONS[0]]


def figure_cell(study: StudyResults, fields: Mapping[str, str]) -> Cell:
    """Return the cell with the given value of every field. The exceptions are those of `result_tables`."""
    runs = study.runs_with(fields)
    found = [(run, row) for run in runs if (row := _row_of(run, fields)) is not None]
    rows = tuple(replace(row, round_by=ONLY_ROUND) if len(run.rounds) == 1 else row for run, row in found)
    _check_conditions(rows, runs)
    per_query = [run.per_query.get((row.evaluation, row.task, row.measure)) for run, row in found]
    known = tuple(values for values in per_query if values is not None)
    complete = len(known) == len(found)
    return with_interval(
        Cell(
            fields=fields, seeds=tuple(run.seed for run in runs), missing=len(study.config.seeds) - len(runs), rows=rows,
            values=tuple(row.value for row in rows), per_query=known if complete else (),
            queries=tuple(run.queries for run, _ in found) if complete else (),
        )
    )  # fmt: skip


def _row_of(run: RunResult, fields: Mapping[str, str]) -> ResultRow | None:
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


def annotated(table: ResultTable) -> ResultTable:
    """Return a table with ranks, significance, footnotes and the notes that explain them."""
    cells = {place: _with_query_label(cell) for place, cell in table.cells.items()}
    letters: dict[str, str] = {}
    for group in _groups(table, cells):
        fair = {place: cell for place, cell in group.items() if not cell.uses_labels}
        if not _comparable([cell for cell in fair.values() if cell.rows]):
            cells |= _with_footnotes(fair, letters)
        elif table.ranked and _same_queries(fair.values()):
            cells |= _ranked(fair)
    filled, found = replace(table, cells=cells), list(cells.values())
    notes = [*_evaluation_notes(found), *_interval_notes(found), *_rank_notes(filled)]
    return replace(filled, notes=(*table.notes, *notes, *_gap_notes(found), *_condition_notes(found, letters)))


def paired_values(first: Cell, second: Cell) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the figures of two cells for the same queries, ``(Q,)`` each, over the seeds that both have.

    If all seeds have the same queries, a query's figure is its mean over the seeds. Otherwise, the queries of each seed
    are counted separately. Queries that either cell does not count are left out. Both arrays are empty if the cells
    have no figures per query, or a seed's queries differ.
    """
    # Cells whose runs lack figures per query have none at all, so that no seed is in both.
    one, other = (
        dict(zip(cell.seeds, zip(cell.queries, cell.per_query, strict=True), strict=False)) for cell in (first, second)
    )
    shared = [seed for seed in first.seeds if seed in second.seeds]
    if not shared or not all(seed in one and seed in other and one[seed][0] == other[seed][0] for seed in shared):
        return np.zeros(0), np.zeros(0)
    pairs = [np.stack([one[seed][1], other[seed][1]]) for seed in shared]
    same = len({one[seed][0] for seed in shared}) == 1
    values = np.mean(pairs, axis=0) if same else np.concatenate(pairs, axis=1)
    counted = values[:, np.isfinite(values).all(axis=0)]
    return counted[0], counted[1]


def _groups(table: ResultTable, cells: Mapping[tuple[Key, Key], Cell]) -> list[dict[tuple[Key, Key], Cell]]:
    found: dict[tuple[tuple[str, str], ...], dict[tuple[Key, Key], Cell]] = {}
    for place, cell in cells.items():
        common = tuple(sorted((name, value) for name, value in cell.fields.items() if name != table.compared))
        found.setdefault(common, {})[place] = cell
    return list(found.values())


def _comparable(cells: Sequence[Cell]) -> bool:
    """Return whether cells were measured in the same way. Any choice of the round may stand beside runs with one round."""
    besides = {conditions(cell.rows[0], choices_besides_round) for cell in cells}
    chosen = {cell.conditions for cell in cells if any(row.round_by != ONLY_ROUND for row in cell.rows)}
    return len(besides) < 2 and len(chosen) < 2


def _with_footnotes(group: Mapping[tuple[Key, Key], Cell], letters: dict[str, str]) -> dict[tuple[Key, Key], Cell]:
    """Return cells with one footnote letter per condition; new conditions are added to ``letters``."""
    for text in sorted({cell.conditions for cell in group.values() if cell.rows}):
        letters.setdefault(text, _letter(len(letters)))
    return {place: replace(cell, footnote=letters.get(cell.conditions, "")) for place, cell in group.items()}


def _same_queries(cells: Iterable[Cell]) -> bool:
    by_seed: dict[int, set[str]] = {}
    for cell in cells:
        for seed, queries in zip(cell.seeds, cell.queries, strict=False):
            by_seed.setdefault(seed, set()).add(queries)
    return all(len(queries) < 2 for queries in by_seed.values())


def _ranked(group: Mapping[tuple[Key, Key], Cell]) -> dict[tuple[Key, Key], Cell]:
    """Return the cells of a group with ranks; without if fewer than two can be compared, or the two best are equal."""
    comparable = [place for place, cell in group.items() if math.isfinite(cell.mean) and not cell.needs_query_label]
    order = sorted(comparable, key=lambda place: group[place].mean if group[place].of_ranks else -group[place].mean)
    ranked = dict(group)
    if len(order) < 2 or group[order[0]].mean == group[order[1]].mean:
        return ranked
    best, second = (group[place] for place in order[:2])
    one, other = (np.zeros(0), np.zeros(0)) if best.of_ranks else paired_values(best, second)  # tests compare means
    p_value = paired_bootstrap(one, other, min(best.seeds)) if len(one) else None
    ranked[order[0]] = replace(best, rank="best", p_value=p_value, tested_on=len(one))
    if len(order) > 2:
        ranked |= {
            place: replace(group[place], rank="second") for place in order[1:] if group[place].mean == second.mean
        }
    return ranked


def _with_query_label(cell: Cell) -> Cell:
    cards = [
        registry.card(name)
        for row in cell.rows
        for registry, name in ((LOCAL_METHODS, row.local), (FEDERATED_METHODS, row.federated))
        if name in registry.names()
    ]
    needed = any(row.oracle for row in cell.rows) or any(card.needs_label_at_query for card in cards)
    return replace(cell, needs_query_label=True) if needed else cell


def _letter(number: int) -> str:
    letter = ascii_lowercase[number % len(ascii_lowercase)]
    return letter * (1 + number // len(ascii_lowercase))


def _gap_notes(cells: Sequence[Cell]) -> list[str]:
    notes = []
    if any(cell.needs_query_label for cell in cells):
        notes.append(
            "‡ oracle: needs the label of the query, which is not known in practice; not compared with the others."
        )
    if any(cell.uses_labels and not cell.needs_query_label for cell in cells):
        notes.append("§: database items were encoded with their true labels; not compared with the others.")
    empty = sum(1 for cell in cells if cell.empty_because == "no run")
    if empty:
        notes.append(f"{empty} of {len(cells)} cells have no finished run.")
    return notes


def _condition_notes(cells: Sequence[Cell], letters: Mapping[str, str]) -> list[str]:
    found = list(dict.fromkeys(cell.conditions for cell in cells if cell.conditions))
    notes = [f"{letters[text]}: {text}." if text in letters else f"Measured on {text}." for text in found]
    if letters:
        notes.insert(0, "Figures with different letters were measured differently and cannot be compared:")
    return notes


def _evaluation_notes(cells: Sequence[Cell]) -> list[str]:
    """Return what each evaluation means, with the methods that have it if others have another of the same group."""
    methods: dict[str, set[str]] = {}
    for cell in cells:
        for row in cell.rows:
            methods.setdefault(row.evaluation, set()).add(row.federated)
    mixed = {evaluation for group in GROUPS if len(methods.keys() & set(group)) > 1 for evaluation in group}
    notes = []
    for evaluation, names in sorted(methods.items()):
        having = f" ({', '.join(sorted(names))})" if evaluation in mixed else ""
        notes.append(f"{evaluation}: {EVALUATION_WORDS[evaluation]}{having}.")
    return notes


def _interval_notes(cells: Sequence[Cell]) -> list[str]:
    notes = []
    if seeds := sorted({len(cell.values) for cell in cells if cell.interval == "seeds"}):
        numbers = " or ".join(map(str, seeds))
        notes.append(f"± is the 95 % interval of the mean over {numbers} seeds (Student's t).")
    if any(cell.interval == "queries" for cell in cells):
        notes.append("Parentheses are the 95 % bootstrap interval over the queries of a single run.")
    return notes


def _rank_notes(table: ResultTable) -> list[str]:
    ranks = {cell.rank for cell in table.cells.values()}
    if "best" not in ranks:
        return []
    second = " Second: underlined or italic." if "second" in ranks else ""
    notes = [f"Best {table.compared}: bold.{second}"]
    tested = [cell.tested_on for cell in table.cells.values() if cell.p_value is not None]
    if tested:
        queries = f"{min(tested):,}" if min(tested) == max(tested) else f"{min(tested):,} to {max(tested):,}"
        notes.append(
            f"†: the best differs from the second with p < {SIGNIFICANT:g} in a paired bootstrap over {queries} queries. "
            f"A query's figure is its mean over the seeds. There are {len(tested)} tests, not corrected for their number. "
            "The test is about these trained models; the intervals over seeds show how much the seeds matter."
        )
    return notes
