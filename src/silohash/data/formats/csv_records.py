"""Split a CSV file into records, and find quotation marks that are not closed.

An opening quotation mark that is never closed makes a CSV reader take the following lines for a part of one field. Such a
mark is found in two ways: the strict rules of the format are broken further down, or a line within the field is a row by
itself. Its line is then reported, and the following lines are read as the rows that they are.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """One record of the file.

    Attributes:
        line: The line at which it begins, from 1.
        cells: Its cells; empty for an empty line.
        problem: Why it cannot be read, or an empty string.
    """

    line: int
    cells: Sequence[str]
    problem: str = ""


def read_records(lines: Sequence[str], delimiter: str, is_row: Callable[[Sequence[str]], bool]) -> Iterator[Record]:
    """Yield the records of a file.

    Args:
        lines: The lines of the file, with their line breaks.
        delimiter: The character between two cells.
        is_row: Whether cells are certainly a row of the table, and not a part of a text with several lines.
    """
    place = 0
    while place < len(lines):
        start = place
        reader = csv.reader((lines[at] for at in range(start, len(lines))), delimiter=delimiter, strict=True)
        try:
            for cells in reader:
                end = start + reader.line_num
                if any(is_row(_cells(lines[inner], delimiter)) for inner in range(place + 1, end)):
                    yield Record(place + 1, (), _unclosed(place + 2, end))
                    place += 1
                    break
                yield Record(place + 1, cells)
                place = end
        except csv.Error as error:
            yield _broken_record(lines, place, start + reader.line_num, delimiter, error)
            place += 1


def _broken_record(lines: Sequence[str], place: int, end: int, delimiter: str, error: csv.Error) -> Record:
    """Return the record of a line at which the strict rules are broken.

    A line whose quotation marks are closed is read in the usual lenient way, as in ``"a" b``.
    """
    lenient = csv.reader([lines[place], ""], delimiter=delimiter)
    try:
        cells = next(lenient)
    except csv.Error:
        return Record(place + 1, (), f"cannot be read ({error})")
    if lenient.line_num == 1:
        return Record(place + 1, cells)
    return Record(place + 1, (), _unclosed(place + 2, end))


def _unclosed(first: int, last: int) -> str:
    """Return the problem of a line with an open quotation mark.

    Args:
        first: The line after it.
        last: The last line that the field would extend to.
    """
    if last < first:
        return "an opening quotation mark is not closed"
    lines = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
    return f"an opening quotation mark is not closed, so it would include {lines}, read separately instead"


def _cells(line: str, delimiter: str) -> Sequence[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
