"""Checks of given arrays: labels of 0 and 1, finite features, matching numbers of rows, repeated queries.

A failed check raises a `UserError` that names the array by its argument ``where`` (file and variable) and its first wrong
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features
from silohash.data.benchmarks.layouts.reading import check_option, count_notes
from silohash.data.formats.matlab import as_shape
from silohash.types import Rows, UserError

ROWS_PER_BLOCK = 4096
MOST_REPEATED_SHARE = 0.01
SHOWN = 10


def numbered(word: str, count: int) -> tuple[str, ...]:
    """Return names for classes that the files do not name.

    Example:
        >>> numbered("class", 2)
        ('class 0', 'class 1')
    """
    return tuple(f"{word} {number}" for number in range(count))


def row_ids(count: int) -> npt.NDArray[np.str_]:
    """Return ``(N,)`` ids for rows that the files do not name."""
    return np.array([f"row-{row:06d}" for row in range(count)], dtype=np.str_)


def rest_searched(count: int, query: Rows) -> dict[str, Rows]:
    """Return splits in which all items except the queries are searched and trained on."""
    rest = np.setdiff1d(np.arange(count, dtype=np.int64), query)
    return {"query": query.astype(np.int64), "database": rest, "train": rest}


def common_rows(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Find the number of items: the one size that every array, given by its shape, has on some axis."""
    shared = set.intersection(*(set(shape) for shape in shapes.values()))
    candidates = {size for size in shared if size > 1} or shared
    listed = "; ".join(f"{what} is {as_shape(shape)}" for what, shape in shapes.items())
    if not candidates:
        raise UserError(f"The files' numbers of rows differ: {listed}. Take all of them from one folder of one source.")
    if len(candidates) > 1:
        raise UserError(f"The axis of the items is ambiguous: {listed}. Remove one item from every file.")
    return candidates.pop()


def as_labels(values: np.ndarray, where: str) -> tuple[npt.NDArray[np.uint8], dict[str, str]]:
    """Check ``(N, C)`` labels of 0 and 1, and return them as uint8 with notes on unusual ones."""
    if values.ndim != 2:
        raise UserError(f"{where} is {as_shape(values.shape)}; labels need one row per item and one column per class.")
    wrong = ~np.isin(values, (0, 1))
    if wrong.any():
        seen = ", ".join(f"{value:g}" for value in np.unique(values[wrong])[:SHOWN].tolist())
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise UserError(
            f"{where} holds labels that are neither 0 nor 1: {seen} (first in row {row:,}). "
            "Use the file of labels, not of features or class numbers, and replace -1 by 0."
        )
    labels = values.astype(np.uint8)
    empty = np.flatnonzero(~labels.any(axis=0))
    notes = {"classes without an item": f"{len(empty)}: columns {_first_of(empty)}"} if len(empty) else {}
    return labels, notes | count_notes({"items without a label": int((~labels.any(axis=1)).sum())})


def from_class_numbers(values: np.ndarray, where: str) -> tuple[npt.NDArray[np.uint8], dict[str, str]]:
    """Return ``(N,)`` class numbers from 0, or from 1 if no item has 0, as ``(N, C)`` uint8 of 0 and 1, with notes."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not np.isfinite(numbers).all():
        raise UserError(f"{where} holds NaN or infinity among the class numbers. Download the files again.")
    lowest, highest = (float(edge(numbers)) if numbers.size else 0.0 for edge in (np.min, np.max))
    first = 1 if lowest == 1 else 0
    classes = max(1, int(highest) - first + 1)
    wrong = ~np.isin(numbers, np.arange(first, first + classes))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise UserError(
            f"{where} holds {numbers[row]:g} in row {row:,}; class numbers are whole and run from {first} to "
            f"{first + classes - 1}. Restore the file."
        )
    labels, notes = as_labels(np.eye(classes, dtype=np.uint8)[numbers.astype(np.int64) - first], where)
    return labels, notes | ({"class numbers": "start at 1 in the files, at 0 here"} if first else {})


def as_features(values: np.ndarray, where: str) -> Features:
    """Check that features are finite, and return them as ``(N, D)`` float32."""
    if values.ndim != 2 or not values.shape[1]:
        raise UserError(
            f"{where} is {as_shape(values.shape)}; features need one row per item and one column per feature."
        )
    with np.errstate(over="ignore"):
        features = values.astype(np.float32, copy=False)
    starts = range(0, len(features), ROWS_PER_BLOCK)
    finite = [np.isfinite(features[start : start + ROWS_PER_BLOCK]).all(axis=1) for start in starts]
    broken = np.flatnonzero(~np.concatenate(finite)) if finite else np.zeros(0, np.int64)
    if len(broken):
        raise UserError(
            f"{where} holds NaN or infinity in {len(broken):,} of {len(features):,} rows (first in row {broken[0]:,}). "
            "Extract the features of those items again, or remove the items from every file."
        )
    return np.ascontiguousarray(features)


def size_notes(found: int, published: Sequence[int], what: str = "items") -> dict[str, str]:
    """Return a note if a size is not one of the published ones; none if nothing is published."""
    if not published or found in published:
        return {}
    numbers = " or ".join(f"{number:,}" for number in published)
    return {f"{what} differ from the published number": f"{found:,}, not {numbers}"}


def check_repeated(
    parts: Sequence[np.ndarray], splits: Mapping[str, Rows], *, overlap: str, where: str
) -> dict[str, str]:
    """Return a note on queries that occur in the database as well, equal in all parts ``(N, D)``.

    Raises:
        UserError: if they are more than 1 % of the queries, unless ``overlap`` is ``accept``.
    """
    check_option("overlap", overlap, ("refuse", "accept"))
    query, database = splits["query"], splits["database"]
    seen = set(_row_digests(parts, database))
    repeated = [int(row) for row, digest in zip(query, _row_digests(parts, query), strict=True) if digest in seen]
    if not repeated:
        return {}
    if overlap == "refuse" and len(repeated) > MOST_REPEATED_SHARE * len(query):
        raise UserError(
            f"{where}: {len(repeated):,} of {len(query):,} queries occur in the database as well (first: row "
            f"{repeated[0]:,}), so the stated splits overlap. Download the files again, or set overlap = accept."
        )
    return {"queries repeated in the database": f"{len(repeated):,}: rows {_first_of(np.array(repeated))}"}


def _row_digests(parts: Sequence[np.ndarray], rows: Rows) -> list[bytes]:
    return [blake2b(b"".join(part[row].tobytes() for part in parts), digest_size=16).digest() for row in rows]


def _first_of(numbers: npt.NDArray[np.int64]) -> str:
    shown = ", ".join(str(number) for number in numbers[:SHOWN].tolist())
    return shown if len(numbers) <= SHOWN else f"{shown} ..."
