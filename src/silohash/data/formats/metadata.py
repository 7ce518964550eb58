"""Read ``metadata.csv``, ``.jsonl`` and ``.parquet`` row by row; an unusable row has a number and a problem."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from silohash.types import UserError

FILES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
KNOWN = ("file_name", "text", "labels", "id", "split")
DELIMITERS = (",", ";", "\t")
LARGEST_FIELD_BYTES = 1 << 26

EXAMPLE = (
    "Write metadata.csv in it, for instance:\n"
    "file_name,text,labels\n"
    "pictures/1.jpg,two parrots on a branch,bird|tree\n"
    "(labels, id, split = query, database or train, and further columns are optional)."
)


@dataclass(frozen=True)
class MetadataRow:
    """One row of the file.

    Attributes:
        number: the line of the file at which the row begins, or its place in the table, from 1.
        values: a string for each column; empty if the row has a problem.
        labels: the labels.
        problem: why the row cannot be read, or an empty string.
    """

    number: int
    values: dict[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    problem: str = ""


def find_metadata(folder: Path) -> Path:
    """Return the metadata file of a folder.

    Raises:
        UserError: if the folder does not exist, or has no metadata file or more than one.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder. Give the folder that holds {', '.join(FILES[:-1])} or {FILES[-1]}.")
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        state = "is empty" if not any(folder.iterdir()) else f"has no {', '.join(FILES[:-1])} or {FILES[-1]}"
        raise UserError(f"{folder} {state}. {EXAMPLE}")
    if len(found) > 1:
        raise UserError(f"{folder} has {' and '.join(path.name for path in found)}. Keep one of them.")
    return found[0]


def read_metadata(path: Path) -> list[MetadataRow]:
    """Read all rows of a metadata file, usable or not.

    Raises:
        UserError: if the file cannot be read, or a CSV file names none of the known columns.
    """
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".parquet": _parquet_rows}
    try:
        rows = list(readers[path.suffix](path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}). Check its permissions.") from error
    if not rows:
        raise UserError(f"{path} has no rows. {EXAMPLE}")
    return rows


def _csv_rows(path: Path) -> Iterator[MetadataRow]:
    with path.open("rb") as stream:
        if stream.read(2) in {b"\xff\xfe", b"\xfe\xff"}:
            raise UserError(f"{path} is encoded in UTF-16. Save it as UTF-8.")
    csv.field_size_limit(LARGEST_FIELD_BYTES)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        first = stream.readline()
        stream.seek(0)
        delimiter = max(DELIMITERS, key=first.count)
        reader = csv.reader(stream, delimiter=delimiter)
        try:
            header = [name.strip() for name in next(reader, [])]
            if header:
                _check_header(path, header)
            start = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield _csv_row(start, header, cells)
                start = reader.line_num + 1
        except csv.Error as error:
            raise UserError(
                f"{path}, line {reader.line_num}: {error}. Look for a quotation mark before it that is not closed."
            ) from error


def _check_header(path: Path, header: list[str]) -> None:
    if not all(_is_text(name) for name in header):
        raise UserError(f"The first line of {path} is not UTF-8. Save the file as UTF-8.")
    repeated = [name for name in header if header.count(name) > 1]
    if repeated:
        raise UserError(f'{path} has the column "{repeated[0]}" more than once. Rename one of them.')
    if not set(header) & set(KNOWN):
        raise UserError(f"{path} begins with {', '.join(header)[:80]!r} instead of the names of columns. {EXAMPLE}")


def _csv_row(number: int, header: list[str], cells: list[str]) -> MetadataRow:
    if len(cells) != len(header):
        fields = f"{len(cells)} field{'s' if len(cells) > 1 else ''}"
        return MetadataRow(number, problem=f"has {fields} and the header has {len(header)}")
    return _row(number, dict(zip(header, cells, strict=True)))


def _json_rows(path: Path) -> Iterator[MetadataRow]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                yield MetadataRow(number, problem=f"is not JSON ({error})")
                continue
            example = '{"file_name": "1.jpg", "text": "a parrot"}'
            is_row = isinstance(values, dict)
            yield (
                _row(number, values)
                if is_row
                else MetadataRow(number, problem=f"is not a JSON object such as {example}")
            )


def _parquet_rows(path: Path) -> Iterator[MetadataRow]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            for batch in table.iter_batches():
                for values in batch.to_pylist():
                    number += 1
                    yield _row(number, values)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or not a parquet file ({str(error)[:200]}). Write it again.") from error


def _row(number: int, values: dict[str, Any]) -> MetadataRow:
    given = values.get("labels")
    listed = [_string(label) for label in given] if isinstance(given, list | tuple) else _string(given).split("|")
    strings = {name: _string(value) for name, value in values.items() if name != "labels"}
    labels = tuple(dict.fromkeys(label.strip() for label in listed if label.strip()))
    if not _is_text("".join((*strings.values(), *labels))):
        broken = [name for name, value in strings.items() if not _is_text(value)]
        return MetadataRow(number, problem=f'column "{(*broken, "labels")[0]}" is not UTF-8')
    return MetadataRow(number, strings, labels)


def _string(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
