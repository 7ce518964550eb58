"""Tables of results: in Markdown, on the console, and as ``results.csv``."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table

from silohash.base.errors import BadLine, WrongKindOfFile
from silohash.base.files import MEASURE_AGAIN, write_text
from silohash.base.forms import of_value, reading
from silohash.base.types import ResultRow
from silohash.base.visible import csv_cell, csv_text, visible
from silohash.base.visible import markdown as markdown_of
from silohash.evaluate.measures import is_rank

COLUMNS = tuple(f.name for f in fields(ResultRow))
"""The columns of ``results.csv``, in order."""

ONLY_ROUND = "only"
"""The choice of the round of a run that had a single one."""

ROUND_WORDS = {"last": "last round", ONLY_ROUND: "a single round"}
"""How tables name the choice of a round if nothing was measured to choose it."""

_NAMES = ("run", "evaluation", "task", "measure")
"""The columns of names, which are left-aligned. All others hold figures."""


def number(value: float, *, percent: bool = False, digits: int = 3) -> str:
    """Return a figure as text with some decimals, in percent with two fewer, or an en dash for NaN.

    Example:
        >>> number(0.71234), number(0.71234, percent=True), number(float("nan"))
        ('0.712', '71.2', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:.{max(digits - 2, 0)}f}" if percent else f"{value:.{digits}f}"


def figure(row: ResultRow, value: float, *, percent: bool = False) -> str:
    """Return a value in the unit of a row's measure as text: a rank with one decimal, otherwise as `number`."""
    return number(value, digits=1) if is_rank(row.measure) else number(value, percent=percent)


def interval(row: ResultRow, low: float, high: float, *, percent: bool = False) -> str:
    """Return an interval in the unit of a row's measure as text, or an en dash for NaN."""
    if not is_rank(row.measure):
        return span(low, high, percent=percent)
    low, high = min(low, high), max(low, high)
    return f"{number(low, digits=1)}–{number(high, digits=1)}" if math.isfinite(high - low) else "–"


def span(low: float, high: float, *, percent: bool = False) -> str:
    """Return an interval as text, or an en dash for NaN.

    Example:
        >>> span(0.1, 0.25, percent=True)
        '10.0–25.0'
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "–"
    return f"{number(low, percent=percent)}–{number(high, percent=percent)}"


def measure_name(row: ResultRow) -> str:
    """Return the measure of a figure as tables show it, with a remark if queries were encoded with their true labels."""
    return f"{row.measure} (oracle)" if row.oracle else row.measure


def choices(row: ResultRow) -> str:
    """Return the choices of the protocol that can change a figure, as one line."""
    round_by = ROUND_WORDS.get(row.round_by, f"round chosen by {row.round_by}")
    return f"{choices_besides_round(row)}; {round_by}"


def choices_besides_round(row: ResultRow) -> str:
    """Return the choices of `choices`, without how the round was chosen."""
    empty = "count 0" if row.no_hits == "zero" else "are left out"
    return "; ".join(
        [
            f"{row.population:,} items",
            f"queries without a relevant item {empty}",
            f"the query's own item is {'' if row.query_in_database else 'not '}in the database",
            f"database code of {row.database_code}",
        ]
    )


def runs_differ(rows: Sequence[ResultRow]) -> bool:
    """Return whether the rows come from more than one run."""
    return len({row.run for row in rows}) > 1


_CELLS: Mapping[str, Callable[[ResultRow, bool], str]] = {
    "evaluation": lambda row, percent: row.evaluation,
    "task": lambda row, percent: row.task,
    "bits": lambda row, percent: str(row.bits) if row.bits else "–",
    "measure": lambda row, percent: measure_name(row),
    "value": lambda row, percent: figure(row, row.value, percent=percent),
    "95 % interval": lambda row, percent: interval(row, row.low, row.high, percent=percent),
    "ties worst–best": lambda row, percent: interval(row, row.worst, row.best, percent=percent),
    "random codes": lambda row, percent: figure(row, row.prior, percent=percent),
    "queries": lambda row, percent: f"{row.queries:,}",
}
"""Heading -> the cell of a row, whose figures are in percent or as they are."""


def _line(row: ResultRow, *, percent: bool, uncounted: str = "") -> dict[str, str]:
    """Return the cells of a row by their headings. ``uncounted`` follows the number of queries without a relevant item."""
    without = f" (+{row.queries_without_relevant:,}{uncounted})" if row.queries_without_relevant else ""
    found = {heading: of(row, percent) for heading, of in _CELLS.items()}
    return {**found, "queries": found["queries"] + without}


def markdown(rows: Sequence[ResultRow], *, percent: bool = False) -> str:
    """Return the results as a Markdown table, with a column for the run if there are several."""
    several = runs_differ(rows)
    headings = ("run", *_CELLS) if several else tuple(_CELLS)
    lines = [
        [
            *([markdown_of(row.run)] if several else []),
            *_line(row, percent=percent, uncounted=" without a relevant item").values(),
        ]
        for row in rows
    ]
    return markdown_table(headings, lines, numbers_from=headings.index("value"))


def markdown_table(headings: Sequence[str], lines: Iterable[Sequence[str]], *, numbers_from: int) -> str:
    """Return a Markdown table. Columns from position ``numbers_from`` on are right-aligned."""
    rules = ["---" if column < numbers_from else "---:" for column in range(len(headings))]
    rendered = [[visible(cell).replace("|", "\\|") for cell in line] for line in (headings, rules, *lines)]
    return "".join(f"| {' | '.join(line)} |\n" for line in rendered)


def console(rows: Sequence[ResultRow], *, percent: bool = False, title: str = "") -> Table:
    """Return the results as a table for a rich console, of at most 80 cells unless names or figures are long.

    The code length is in the title if all rows share it. Figures are in right-aligned columns.
    """
    lengths = {row.bits for row in rows}
    hidden = {"run": not runs_differ(rows), "bits": len(lengths) == 1}
    headings = [heading for heading in ("run", *_CELLS) if not hidden.get(heading)]
    shared = f"{rows[0].bits} bits" if hidden["bits"] and rows[0].bits else ""
    table = Table(title=", ".join(filter(None, (title, shared))), title_justify="left", header_style="bold")
    for heading in headings:
        is_name = heading in _NAMES
        # each word in a line of its own, so that the column is as narrow as its figures
        narrow = heading.replace("95 %", "95\u00a0%").replace(" ", "\n")
        table.add_column(heading if is_name else narrow, justify="left" if is_name else "right")
    for row in rows:
        line = {"run": visible(row.run), **_line(row, percent=percent)}
        table.add_row(*(line[heading] for heading in headings))
    if any(row.queries_without_relevant for row in rows):
        table.caption = "Queries: (+n) have no relevant item."
        table.caption_justify = "left"
    return table


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side: one row per (evaluation, task, bits, measure), a column per run, None without a figure."""

    runs: tuple[str, ...]
    keys: tuple[tuple[str, str, int, str], ...]
    rows: tuple[tuple[ResultRow | None, ...], ...]

    def leader(self, line: int) -> int | None:
        """Return the column with the best value of a line; None without two values, or if the best two are equal.

        The best value is the highest or, of ranks, the lowest.
        """
        ranked = self._ranked(line)
        if len(ranked) < 2 or ranked[0][1].value == ranked[1][1].value:
            return None
        return ranked[0][0]

    def settled(self, line: int) -> bool:
        """Return whether the interval of the leader lies on the better side of the intervals of all others."""
        if self.leader(line) is None:
            return False
        best, *others = (row for _, row in self._ranked(line))
        lowest = is_rank(self.keys[line][3])
        return all(best.high < other.low if lowest else best.low > other.high for other in others)

    def _ranked(self, line: int) -> list[tuple[int, ResultRow]]:
        """Return the columns of a line that have a value, with their figures, the best first."""
        found = [(j, row) for j, row in enumerate(self.rows[line]) if row is not None and math.isfinite(row.value)]
        return sorted(found, key=lambda pair: pair[1].value if is_rank(self.keys[line][3]) else -pair[1].value)


def compare(rows: Sequence[ResultRow]) -> Comparison:
    """Put the results of several runs side by side, in the order of the rows."""
    runs = tuple(dict.fromkeys(row.run for row in rows))
    keys = tuple(dict.fromkeys((row.evaluation, row.task, row.bits, measure_name(row)) for row in rows))
    found = {(row.run, row.evaluation, row.task, row.bits, measure_name(row)): row for row in rows}
    return Comparison(runs, keys, tuple(tuple(found.get((run, *key)) for run in runs) for key in keys))


def write_results(path: Path, rows: Sequence[ResultRow]) -> None:
    """Write ``results.csv``, either completely or not at all. Names that look like formulas are guarded (`csv_cell`)."""
    write_text(path, csv_table([COLUMNS, *([csv_cell(value) for value in astuple(row)] for row in rows)]))


def csv_table(lines: Iterable[Sequence[object]]) -> str:
    """Return lines of values as CSV, with a line feed after each on every system."""
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()


def read_results(path: Path) -> list[ResultRow]:
    """Read what `write_results` wrote, every figure to the last bit.

    Raises:
        UserError: If the file is missing, or a line is not a result.
    """
    with reading(path, remedy=MEASURE_AGAIN, missing='Run "silohash evaluate" on the run first.'):
        text = path.read_bytes().decode("utf-8")
        if text and not text.endswith("\n"):
            raise ValueError("its last line is incomplete")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if not lines or tuple(lines[0]) != COLUMNS:
        raise WrongKindOfFile(
            f"{path} does not start with the columns of a result table ({', '.join(COLUMNS[:4])}, …). {MEASURE_AGAIN}"
        )
    return [_result(path, number, line) for number, line in enumerate(lines[1:], start=2)]


def _result(path: Path, line_number: int, line: list[str]) -> ResultRow:
    if len(line) != len(COLUMNS):
        raise BadLine(f"{path}, line {line_number} has {len(line)} columns instead of {len(COLUMNS)}. {MEASURE_AGAIN}")
    try:
        return of_value(dict(zip(COLUMNS, map(csv_text, line), strict=True)), ResultRow)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadLine(
            f'{path}, line {line_number}: "{first["input"]}" is not a valid {first["loc"][0]}. {MEASURE_AGAIN}'
        ) from error
