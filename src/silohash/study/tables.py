"""The tables of a study as Markdown, CSV and LaTeX: its figures, the differences from one choice, and the costs of runs."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from string import Template

import numpy as np

from silohash.base.files import note_written, read_toml, write_text
from silohash.base.forms import REINSTALL
from silohash.base.visible import csv_cell, visible
from silohash.base.visible import markdown as markdown_of
from silohash.evaluate.significance import seed_interval
from silohash.report.tables import COLUMNS, csv_table, markdown_table
from silohash.run.events import RoundRecord
from silohash.study import pivot
from silohash.study.config import RESULT_FIELDS
from silohash.study.results import RunResult, StudyResults

TABLES = "tables"
FIGURES = "figures.csv"
TEX = Path(__file__).with_name("table.tex")
_LATEX = read_toml(Path(__file__).with_name("latex.toml"), remedy=REINSTALL, missing=REINSTALL)
WORDS = read_toml(Path(__file__).with_name("words.toml"), remedy=REINSTALL, missing=REINSTALL)

BYTES_PER_MEGABYTE = 1_000_000
MEMORY = "peak memory (MB)"

CELL_COLUMNS: Mapping[str, Callable[[pivot.Cell], object]] = {
    "mean": lambda cell: cell.mean,
    "low": lambda cell: cell.low,
    "high": lambda cell: cell.high,
    "interval": lambda cell: cell.interval,
    "seeds": lambda cell: len(cell.values),
    "seeds_missing": lambda cell: len(cell.seeds) + cell.missing - len(cell.values),
    "evaluation_used": lambda cell: "/".join(sorted({row.evaluation for row in cell.rows})),
    "rank": lambda cell: cell.rank,
    "p_value": lambda cell: "" if cell.p_value is None else cell.p_value,
    "queries_tested": lambda cell: cell.tested_on,
    "needs_query_label": lambda cell: cell.needs_query_label,
    "measured_on": lambda cell: cell.conditions,
    "empty_because": lambda cell: cell.empty_because,
}
"""Column of a table as CSV, after those of the fields -> its value for a cell."""

COSTS: Mapping[str, Callable[[RunResult], float]] = {
    "sent per round (MB)": lambda run: _per_round(run, lambda record: record.uplink_bytes) / BYTES_PER_MEGABYTE,
    "received per round (MB)": lambda run: _per_round(run, lambda record: record.downlink_bytes) / BYTES_PER_MEGABYTE,
    "time per round (s)": lambda run: _per_round(run, lambda record: record.seconds),
    "time of all rounds (s)": lambda run: sum(record.seconds for record in run.rounds) if run.rounds else math.nan,
    MEMORY: lambda run: math.nan if run.peak_bytes is None else run.peak_bytes / BYTES_PER_MEGABYTE,
}
"""Name -> cost of a run, for all silos together; NaN if it is not known."""


def write_tables(study: StudyResults, out: Path) -> list[Path]:
    """Write a study's tables, remove those of an earlier layout, and return the paths of the files.

    The study's folder gets in its ``tables/`` ``table….md``, ``.csv`` and ``.tex`` per combination of the fields in neither
    rows nor columns, ``table…-minus-REFERENCE`` and ``costs`` likewise, and ``figures.csv`` with every figure of every run.

    Raises:
        UserError: If runs that differ only in their seed were measured differently, or a file cannot be written.
    """
    folder = out / TABLES
    written = []
    tuning = study.config.tune or study.config.tuned
    tuned = (tuning.sentence(),) if tuning else ()
    figures = pivot.result_tables(study)
    references = [(axis, name) for axis, names in study.config.table.against.items() for name in names]
    differences = [difference_table(table, *reference) for table in figures for reference in references]
    for table in (*figures, *differences, cost_table(study)):
        complete = pivot.annotated(replace(table, notes=(*table.notes, *tuned)))
        for suffix, render in ((".md", markdown), (".csv", summary), (".tex", latex)):
            path = folder / f"{table.name}{suffix}"
            write_text(path, render(complete))
            written.append(path)
    write_text(folder / FIGURES, long_form(study))
    written.append(folder / FIGURES)
    note_written(folder, written)
    return written


def markdown(table: pivot.ResultTable) -> str:
    """Return a table as Markdown: its title, the table and a list of its notes."""
    headings = [*map(markdown_of, table.row_fields), *(markdown_of(", ".join(column)) for column in table.columns)]
    lines = [[*map(markdown_of, row), *(_markdown_cell(table, cell) for cell in cells)] for row, cells in table.lines()]
    body = markdown_table(headings, lines, numbers_from=len(table.row_fields))
    notes = "".join(f"- {markdown_of(note)}\n" for note in table.notes)
    return f"### {markdown_of(table.title)}\n\n{body}\n{notes}"


def summary(table: pivot.ResultTable) -> str:
    """Return a table as CSV with one row per cell: its choices, mean, interval, seeds, rank and conditions."""
    fields = list(next(iter(table.cells.values())).fields)
    lines = [[*cell.fields.values(), *(of(cell) for of in CELL_COLUMNS.values())] for cell in table.cells.values()]
    return csv_of([*fields, *CELL_COLUMNS], lines)


def long_form(study: StudyResults) -> str:
    """Return every figure of every run as CSV: the study's axes, then the columns of a run's ``results.csv``."""
    axes = study.config.axis_names
    return csv_of(
        [*(f"axis {axis}" for axis in axes), *COLUMNS],
        [[*(run.choices[axis] for axis in axes), *astuple(row)] for run in study.runs for row in run.rows],
    )


def latex(table: pivot.ResultTable) -> str:
    """Return a table as LaTeX with the best figure in bold and the second underlined. It needs the booktabs package."""
    left = len(table.row_fields)
    head = _latex_head(table)
    body = []
    for _, block in groupby(table.lines(), key=lambda line: line[0][:-1]):
        for number, (row, cells) in enumerate(block):
            names = [escaped(name) if not number or place == left - 1 else "" for place, name in enumerate(row)]
            body.append(" & ".join([*names, *(_latex_cell(table, cell) for cell in cells)]) + r" \\")
        if left > 1:
            body.append(r"\addlinespace")
    body = body[:-1] if left > 1 else body
    caption = " ".join(escaped(note) for note in (f"{table.title}.", *table.notes))
    return Template(TEX.read_text(encoding="utf-8")).substitute(
        caption=caption, label=re.sub("[^A-Za-z0-9-]", "-", table.name), head="\n".join(head), body="\n".join(body),
        columns="l" * left + "r" * len(table.columns),
    )  # fmt: skip


def escaped(text: str) -> str:
    r"""Return the LaTeX source of a text.

    Example:
        >>> print(escaped("50% of R&D_1 ± β"))
        50\% of R\&D\_1 $\pm$ $\beta$
    """
    return "".join(_LATEX.get(letter, letter) for letter in visible(text))


def value_text(table: pivot.ResultTable, cell: pivot.Cell) -> tuple[str, str]:
    """Return a cell's figure and its interval as plain text; the reason and an empty text for an empty cell."""
    if not math.isfinite(cell.mean):
        return cell.empty_because or "–", ""
    half = (cell.high - cell.low) / 2
    if cell.interval == "seeds":
        return table.format_value(cell.mean), f"± {table.format_value(half).removeprefix('+')}"
    if cell.interval == "queries" and math.isfinite(half):
        return table.format_value(cell.mean), f"({table.format_value(cell.low)}–{table.format_value(cell.high)})"
    return table.format_value(cell.mean), ""


def _symbols(cell: pivot.Cell) -> str:
    significant = "†" if cell.p_value is not None and cell.p_value < pivot.SIGNIFICANT else ""
    labels = "‡ oracle" if cell.needs_query_label else "§" if cell.uses_labels else ""
    return significant + labels


def _seeds_text(cell: pivot.Cell) -> str:
    wanted = len(cell.seeds) + cell.missing
    return f"[{len(cell.values)} of {wanted} seeds]" if cell.values and len(cell.values) < wanted else ""


def _markdown_cell(table: pivot.ResultTable, cell: pivot.Cell) -> str:
    figure, interval = value_text(table, cell)
    figure = {"best": f"**{figure}**", "second": f"*{figure}*", "": figure}[cell.rank]
    letter = f"<sup>{cell.footnote}</sup>" if cell.footnote else ""
    return " ".join(part for part in (figure + _symbols(cell) + letter, interval, _seeds_text(cell)) if part)


def _latex_cell(table: pivot.ResultTable, cell: pivot.Cell) -> str:
    figure, interval = value_text(table, cell)
    figure = escaped(figure)
    figure = {"best": rf"\textbf{{{figure}}}", "second": rf"\underline{{{figure}}}", "": figure}[cell.rank]
    letter = rf"\textsuperscript{{{cell.footnote}}}" if cell.footnote else ""
    beside = " ".join(part for part in (interval, _seeds_text(cell)) if part)
    small = rf" {{\scriptsize {escaped(beside)}}}" if beside else ""
    return figure + escaped(_symbols(cell)) + letter + small


def _latex_head(table: pivot.ResultTable) -> list[str]:
    """Return the lines of the heading, one per column field, with equal neighbors merged."""
    left = len(table.row_fields)
    lines = []
    for level in range(len(table.column_fields)):
        last = level == len(table.column_fields) - 1
        names = [escaped(name) for name in table.row_fields] if last else [""] * left
        line, rules, column = names, [], left + 1
        for key, members in groupby(table.columns, key=lambda key: key[: level + 1]):
            width = len(list(members))
            line.append(escaped(key[-1]) if width == 1 else rf"\multicolumn{{{width}}}{{c}}{{{escaped(key[-1])}}}")
            rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
            column += width
        lines.append(" & ".join(line) + r" \\")
        if not last:
            lines.append("".join(rules))
    return lines or [" & ".join([*(escaped(name) for name in table.row_fields), ""]) + r" \\"]


def csv_of(columns: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Return lines as CSV, in which texts are visible and no formulas."""
    return csv_table(
        [csv_cell(visible(value)) if isinstance(value, str) else value for value in line] for line in (columns, *lines)
    )


def cost_table(study: StudyResults) -> pivot.ResultTable:
    """Return the table of costs, with the axes of the tables of figures and one column per cost that is known."""
    config = study.config
    rows, columns = ([name for name in fields if name not in RESULT_FIELDS] for fields in pivot.table_layout(config))
    rows += [name for name in config.axis_names if name not in (*rows, *columns)]
    measured, said = any(run.peak_bytes is not None for run in study.runs), WORDS["costs"]
    costs = [name for name in COSTS if measured or name != MEMORY]
    table = pivot.make_table(
        config, (tuple(rows), (*columns, "measure")), {**pivot.field_values(study, ()), "measure": costs}, {},
        partial(_cost_cell, study),
    )  # fmt: skip
    return replace(
        table, title=f"{config.title or 'Study'}, costs", name="costs", ranked=False, format_value=format_cost,
        notes=(*said["notes"], said["memory"]) if measured else tuple(said["notes"]),
    )  # fmt: skip


def format_cost(value: float) -> str:
    """Return a cost as text, with three significant digits.

    Example:
        >>> format_cost(0.012345), format_cost(12345.6), format_cost(0.0)
        ('0.0123', '12,346', '0')
    """
    if not value:
        return "0"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{digits}f}"


def _per_round(run: RunResult, cost: Callable[[RoundRecord], float]) -> float:
    return float(np.mean([cost(record) for record in run.rounds])) if run.rounds else math.nan


def _cost_cell(study: StudyResults, fields: Mapping[str, str]) -> pivot.Cell:
    runs = study.runs_with(fields)
    values = [COSTS[fields["measure"]](run) for run in runs]
    return pivot.with_interval(
        pivot.Cell(
            fields=fields, seeds=tuple(run.seed for run in runs), missing=len(study.config.seeds) - len(runs),
            values=tuple(value for value in values if math.isfinite(value)),
        )
    )  # fmt: skip


def difference_table(table: pivot.ResultTable, axis: str, reference: str) -> pivot.ResultTable:
    """Return the differences of all other choices of an axis from one choice, the reference, paired by seed.

    Runs with the same seed share partition, validation items and initial parameters. Pairing removes the part of the spread
    over seeds that they have in common, so that the interval of a difference is narrower than those of the two figures.
    """
    rows = _without(table.rows, table.row_fields, axis, reference)
    columns = _without(table.columns, table.column_fields, axis, reference)
    by_fields = {frozenset(cell.fields.items()): cell for cell in table.cells.values()}
    cells = {}
    for place in product(rows, columns):
        cell = table.cells[place]
        cells[place] = paired_difference(cell, by_fields[frozenset({**cell.fields, axis: reference}.items())])
    note = (
        f"Each figure minus that of {reference} with the same seed, as the mean over the seeds. "
        "The interval is that of the paired differences."
    )
    return replace(
        table, title=f"{table.title}, difference from {reference}", name=f"{table.name}-minus-{pivot.file_name(reference)}",
        rows=rows, columns=columns, cells=cells, ranked=False, notes=(note,),
        format_value=lambda value: f"{value:+.3f}",
    )  # fmt: skip


def paired_difference(cell: pivot.Cell, reference: pivot.Cell) -> pivot.Cell:
    """Return the differences of two cells for the seeds that both have, with Student's interval of their mean.

    A single seed gives a difference without an interval. A difference from figures that use the true labels of items is
    marked as such figures are.
    """
    subtracted = dict(zip(reference.seeds, reference.values, strict=False))
    pairs = [
        (seed, value - subtracted[seed])
        for seed, value in zip(cell.seeds, cell.values, strict=False)
        if seed in subtracted
    ]
    values = tuple(value for _, value in pairs)
    low, high = seed_interval(values)
    rows = (*cell.rows, *(row for row in reference.rows if row.uses_labels)) if pairs else ()
    return pivot.Cell(
        fields=cell.fields, seeds=tuple(seed for seed, _ in pairs),
        missing=len(cell.seeds) + cell.missing - len(pairs), rows=rows, values=values, low=low,
        high=high, interval="seeds" if len(values) > 1 else "",
    )  # fmt: skip


def _without(keys: tuple[pivot.Key, ...], fields: tuple[str, ...], axis: str, reference: str) -> tuple[pivot.Key, ...]:
    """Return the keys whose value of the axis is not the reference."""
    if axis not in fields:
        return keys
    place = fields.index(axis)
    return tuple(key for key in keys if key[place] != reference)
