"""Read ``metadata.csv``, ``.jsonl`` and ``.parquet`` row by row; an unusable row has a number and a problem."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from silohash.types import UserError

FILES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
KNOWN = ("file_name", "text", "labels", "id", "split")
DELIMITERS = (",", ";", "\t")
LARGEST_FIELD_BYTES = 1 << 26
NOT_UTF8 = re.compile("[\ud800-\udfff]")
"""Surrogates, which stand for the bytes that could not be decoded."""

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


def read_metadata(folder: Path) -> tuple[Path, list[MetadataRow]]:
    """Return the path of a folder's metadata file, and all of its rows, usable or not.

    Raises:
        UserError: if the folder does not exist, has no metadata file or more than one, or the file cannot be read, has no
            rows, or is a CSV file that names none of the known columns.
    """
    path = _metadata_file(folder)
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".parquet": _parquet_rows}
    try:
        rows = list(readers[path.suffix](path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}). Check its permissions.") from error
    if not rows:
        raise UserError(f"{path} has no rows. {EXAMPLE}")
    return path, rows


def _metadata_file(folder: Path) -> Path:
    listed = f"{', '.join(FILES[:-1])} or {FILES[-1]}"
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder. Give the folder that holds {listed}.")
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise UserError(f"{folder} {f'has no {listed}' if any(folder.iterdir()) else 'is empty'}. {EXAMPLE}")
    if len(found) > 1:
        raise UserError(f"{folder} has {' and '.join(path.name for path in found)}. Keep one of them.")
    return found[0]


def _csv_rows(path: Path) -> Iterator[MetadataRow]:
    with path.open("rb") as stream:
        if stream.read(2) in {b"\xff\xfe", b"\xfe\xff"}:
            raise UserError(f"{path} is encoded in UTF-16. Save it as UTF-8.")
    csv.field_size_limit(LARGEST_FIELD_BYTES)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        first = stream.readline()
        stream.seek(0)
        reader = csv.reader(stream, delimiter=max(DELIMITERS, key=first.count))
        try:
            header = [name.strip() for name in next(reader, [])]
            if header:
                _check_header(path, header)
            start = reader.line_num + 1
            for cells in reader:
                if len(cells) == len(header):
                    yield _row(start, dict(zip(header, cells, strict=True)))
                elif cells:
                    fields = f"{len(cells)} field{'s' if len(cells) > 1 else ''}"
                    yield MetadataRow(start, problem=f"has {fields} and the header has {len(header)}")
                start = reader.line_num + 1
        except csv.Error as error:
            raise UserError(
                f"{path}, line {reader.line_num}: {error}. Look for a quotation mark before it that is not closed."
            ) from error


def _check_header(path: Path, header: list[str]) -> None:
    if NOT_UTF8.search("".join(header)):
        raise UserError(f"The first line of {path} is not UTF-8. Save the file as UTF-8.")
    repeated = [name for name in header if header.count(name) > 1]
    if repeated:
        raise UserError(f'{path} has the column "{repeated[0]}" more than once. Rename one of them.')
    if not set(header) & set(KNOWN):
        raise UserError(f"{path} begins with {', '.join(header)[:80]!r} instead of the names of columns. {EXAMPLE}")


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
            if isinstance(values, dict):
                yield _row(number, values)
            else:
                example = '{"file_name": "1.jpg", "text": "a parrot"}'
                yield MetadataRow(number, problem=f"is not a JSON object such as {example}")


def _parquet_rows(path: Path) -> Iterator[MetadataRow]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            rows = chain.from_iterable(batch.to_pylist() for batch in table.iter_batches())
            yield from starmap(_row, enumerate(rows, start=1))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or not a parquet file ({str(error)[:200]}). Write it again.") from error


def _row(number: int, values: dict[str, Any]) -> MetadataRow:
    given = values.get("labels")
    listed = map(_string, given) if isinstance(given, list | tuple) else _string(given).split("|")
    labels = tuple(dict.fromkeys(filter(None, map(str.strip, listed))))
    strings = {name: _string(value) for name, value in values.items() if name != "labels"}
    for name, value in [*strings.items(), ("labels", "".join(labels))]:
        if NOT_UTF8.search(value):
            return MetadataRow(number, problem=f'column "{name}" is not UTF-8')
    return MetadataRow(number, strings, labels)


def _string(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if value is None or value != value:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
