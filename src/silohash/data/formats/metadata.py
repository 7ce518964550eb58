"""Read ``metadata.csv``, ``.jsonl`` and ``.parquet`` row by row; an unusable row has a number and a problem."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from silohash.base import errors
from silohash.base.attempts import attempted
from silohash.base.names import tidy
from silohash.data.formats.cells import CellError, cell_of, holds_picture, labels_of
from silohash.data.formats.columns import KNOWN, describe_slips, named
from silohash.data.links import check_link

FILES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
DELIMITERS = (",", ";", "\t")
LARGEST_FIELD_BYTES = 1 << 26
NOT_UTF8 = re.compile("[\ud800-\udfff]")
"""Surrogates, which stand for the bytes that could not be decoded."""

UNUSABLE = re.compile("[\0\ud800-\udfff]")

EXAMPLE = Path(__file__).with_name("example.txt").read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class Record:
    """The line at which a record begins, from 1, its cells, empty for an empty line, and why it cannot be read, if so."""

    line: int
    cells: Sequence[str]
    problem: str = ""


def read_records(lines: Sequence[str], delimiter: str, is_row: Callable[[Sequence[str]], bool]) -> Iterator[Record]:
    """Yield the records of a file.

    An opening quotation mark that is never closed makes a CSV reader take the following lines for a part of one field. Such
    a mark is found in two ways: the strict rules of the format are broken further down, or a line within the field is a row
    by itself, as ``is_row`` tells of cells that cannot be a part of a text with several lines. Its line is then reported,
    and the following lines are read as the rows that they are.
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
    """Return the problem of an open quotation mark whose field would include the lines from ``first`` to ``last``."""
    if last < first:
        return "an opening quotation mark is not closed"
    lines = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
    return f"an opening quotation mark is not closed, so it would include {lines}, read separately instead"


def _cells(line: str, delimiter: str) -> Sequence[str]:
    return attempted(lambda: next(csv.reader([line], delimiter=delimiter), []), csv.Error, otherwise=[])


@dataclass(frozen=True, slots=True)
class MetadataRow:
    """One row of the file.

    Attributes:
        number: The line of the file at which the row begins, or its place in the table, from 1.
        values: A string for each column; empty if the row has a problem.
        problem: Why the row cannot be read, or an empty string.
        includes_rows: Whether one of the values has several lines, and one of them may be a row of the table.
        embedded: Name of a column without a meaning that holds the content of a picture file, or an empty string.
    """

    number: int
    values: dict[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    problem: str = ""
    includes_rows: bool = False
    embedded: str = ""


def read_metadata(folder: Path, *, follow_links: bool = False) -> tuple[Path, list[MetadataRow]]:
    """Return the path of a folder's metadata file, and all of its rows, usable or not.

    Raises:
        UserError: If the folder does not exist, does not have exactly one metadata file, or the file cannot be read, leads
            out of the folder, does not have rows, or is a CSV file that names none of the known columns.
    """
    path = _metadata_file(folder)
    check_link(folder, path.name, follow_links=follow_links)
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".parquet": _parquet_rows}
    try:
        with path.open("rb") as stream:
            if path.suffix != ".parquet" and stream.read(2) in {b"\xff\xfe", b"\xfe\xff"}:
                raise errors.WrongForm(f"{path} is encoded in UTF-16. Save it as UTF-8.")
        rows = list(readers[path.suffix](path))
    except OSError as error:
        raise errors.UnreadableFile(
            f"{path} cannot be read ({error.strerror or error}). Check its permissions."
        ) from error
    if not rows:
        raise errors.NothingUsable(f"{path} has no rows. {EXAMPLE}")
    return path, rows


def _metadata_file(folder: Path) -> Path:
    listed = f"{', '.join(FILES[:-1])} or {FILES[-1]}"
    if not folder.is_dir():
        raise errors.WrongKindOfPath(f"{folder} is not a folder. Give the folder that holds {listed}.")
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise errors.MissingFile(f"{folder} {f'has no {listed}' if any(folder.iterdir()) else 'is empty'}. {EXAMPLE}")
    if len(found) > 1:
        raise errors.ChoiceNeeded(f"{folder} has {' and '.join(path.name for path in found)}. Keep one of them.")
    return found[0]


def _csv_rows(path: Path) -> Iterator[MetadataRow]:
    # The default of Python, 128 KiB, is too little for long texts.
    csv.field_size_limit(LARGEST_FIELD_BYTES)
    # Bytes that are not UTF-8 are kept, so that only their rows are left out.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        lines = list(stream)
    header: list[str] = []
    delimiter = max(DELIMITERS, key=(lines or [""])[0].count)
    records = read_records(lines, delimiter, lambda cells: _is_row(path.parent, header, cells))
    for first in records:
        header += named(tidy(name) for name in first.cells)
        _check_header(path, header, first.problem)
        break
    for record in records:
        if record.cells or record.problem:
            yield _csv_row(header, record)


def _is_row(folder: Path, header: Sequence[str], cells: Sequence[str]) -> bool:
    """Return whether a line is certainly a row by itself: it has all cells, and names a picture that exists."""
    if len(cells) != len(header) or "file_name" not in header:
        return False
    path = folder / cells[header.index("file_name")].strip()
    return attempted(path.is_file, OSError, ValueError, otherwise=False)


def _csv_row(header: Sequence[str], record: Record) -> MetadataRow:
    if record.problem:
        return MetadataRow(record.line, problem=record.problem)
    if len(record.cells) == len(header):
        # a line within a text that has as many commas as a row shows that an open quotation mark is possible
        texts = [cell.splitlines()[1:-1] for cell in record.cells if "\n" in cell and len(header) > 1]
        includes_rows = any(max(map(line.count, DELIMITERS)) == len(header) - 1 for lines in texts for line in lines)
        return _row(record.line, dict(zip(header, record.cells, strict=True)), includes_rows=includes_rows)
    fields = f"{len(record.cells)} field{'s' if len(record.cells) > 1 else ''}"
    return MetadataRow(record.line, problem=f"has {fields} and the header has {len(header)}")


def _check_header(path: Path, header: list[str], problem: str) -> None:
    if problem:
        raise errors.BadLine(f"The first line of {path} cannot be read: {problem}. Correct the names of the columns.")
    if UNUSABLE.search("".join(header)):
        raise errors.WrongForm(f"The first line of {path} is not UTF-8. Save the file as UTF-8.")
    _check_unrepeated(path, header)
    if not set(header) & set(KNOWN):
        shown = ", ".join(header)[:80]
        slips = "".join(f" {sentence}" for sentence in describe_slips(header))
        raise errors.WrongKindOfFile(f"{path} begins with {shown!r} instead of the names of columns.{slips} {EXAMPLE}")


def _check_unrepeated(path: Path, names: Sequence[str]) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise errors.RepeatedValue(f'{path} has the column "{repeated[0]}" more than once. Rename one of them.')


def _json_rows(path: Path) -> Iterator[MetadataRow]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                values = json.loads(line, object_pairs_hook=_unrepeated)
            except (ValueError, RecursionError) as error:
                yield MetadataRow(number, problem=f"is not JSON ({error})")
                continue
            if isinstance(values, dict):
                yield _named_row(number, values)
            else:
                example = '{"file_name": "1.jpg", "text": "a parrot"}'
                yield MetadataRow(number, problem=f"is not a JSON object such as {example}")


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object without repeated names, of whose values one would be lost."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f'"{next(name for name in names if names.count(name) > 1)}" is there more than once')
    return values


def _parquet_rows(path: Path) -> Iterator[MetadataRow]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            _check_unrepeated(path, table.schema_arrow.names)
            rows = chain.from_iterable(batch.to_pylist() for batch in table.iter_batches())
            yield from starmap(_named_row, enumerate(rows, start=1))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise errors.DamagedFile(
            f"{path} is damaged or not a parquet file ({str(error)[:200]}). Write it again."
        ) from error


def _named_row(number: int, values: dict[str, Any]) -> MetadataRow:
    """Return the row of a table in which names of columns may be written in several ways."""
    if (names := [tidy(name) for name in values]) == list(values):
        return _row(number, values)
    if repeated := next((name for name in names if names.count(name) > 1), ""):
        return MetadataRow(number, problem=f'has the column "{repeated}" more than once')
    return _row(number, dict(zip(names, values.values(), strict=True)))


def _row(number: int, values: dict[str, Any], *, includes_rows: bool = False) -> MetadataRow:
    try:
        labels = labels_of(values.get("labels"))
        strings = {name: cell_of(name, value) for name, value in values.items() if name != "labels"}
    except CellError as error:
        return MetadataRow(number, problem=str(error))
    if UNUSABLE.search("".join([*strings.values(), *labels])):
        texts = {**strings, "labels": "".join(labels)}
        column, text = next((name, text) for name, text in texts.items() if UNUSABLE.search(text))
        reason = "is not UTF-8" if NOT_UTF8.search(text) else "contains a NUL character, which would cut it off"
        return MetadataRow(number, problem=f'column "{column}" {reason}')
    embedded = next((name for name, value in values.items() if name not in KNOWN and holds_picture(value)), "")
    return MetadataRow(number, strings, labels, includes_rows=includes_rows, embedded=embedded)
