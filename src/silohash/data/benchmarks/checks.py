"""What is checked of arrays from elsewhere: labels of 0 and 1, finite features, rows that belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features
from silohash.data.benchmarks.reading import one_of
from silohash.data.formats.matlab import as_shape
from silohash.types import Rows, UserError

ROWS_AT_ONCE = 4096
MOST_REPEATED_SHARE = 0.01
SHOWN = 10


def numbered(word: str, count: int) -> tuple[str, ...]:
    """Returns names for what the files do not name.

    Example:
        >>> numbered("class", 2)
        ('class 0', 'class 1')
    """
    return tuple(f"{word} {number}" for number in range(count))


def row_ids(count: int) -> npt.NDArray[np.str_]:
    """Returns ids for rows that the files do not name, ``(N,)``."""
    return np.array([f"row-{row:06d}" for row in range(count)], dtype=np.str_)


def common_rows(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Finds how many items there are: the one size that every array has on some axis.

    Args:
        shapes: the arrays' shapes by what they are, as ``nus-wide-tc21-lall.mat: LAll``.

    Raises:
        UserError: if there is no such size, or several, or an array has NaN for a size.
    """
    shared = set.intersection(*(set(shape) for shape in shapes.values()))
    wanted = {size for size in shared if size > 1} or shared
    listed = "; ".join(f"{what} is {as_shape(shape)}" for what, shape in shapes.items())
    if not wanted:
        raise UserError(
            f"The files' numbers of rows disagree: {listed}. Take all of them from one folder of one source."
        )
    if len(wanted) > 1:
        raise UserError(f"It cannot be told which axis holds the items: {listed}. Leave out an item of each.")
    return wanted.pop()


def as_labels(values: np.ndarray, where: str) -> tuple[npt.NDArray[np.uint8], dict[str, str]]:
    """Returns labels as 0 and 1, ``(N, C)`` uint8, and what is odd about them.

    Args:
        values: ``(N, C)`` numbers.
        where: file and variable, for the error.

    Raises:
        UserError: if they are not a matrix of 0 and 1.
    """
    if values.ndim != 2:
        raise UserError(f"{where} is {as_shape(values.shape)}; labels need one row an item and one column a class.")
    wrong = ~np.isin(values, (0, 1))
    if wrong.any():
        seen = ", ".join(f"{value:g}" for value in np.unique(values[wrong])[:SHOWN].tolist())
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise UserError(
            f"{where} holds labels that are neither 0 nor 1: {seen} (first in row {row:,}). "
            "Take the file of labels, not of features or class numbers; write -1 as 0."
        )
    labels = values.astype(np.uint8)
    notes = {}
    empty = np.flatnonzero(~labels.any(axis=0))
    if len(empty):
        notes["classes without an item"] = f"{len(empty)}: columns {_few(empty)}"
    bare = int((~labels.any(axis=1)).sum())
    if bare:
        notes["items without a label"] = f"{bare:,}"
    return labels, notes


def as_class_labels(
    values: np.ndarray, where: str, *, first: int, classes: int
) -> tuple[npt.NDArray[np.uint8], dict[str, str]]:
    """Returns class numbers as 0 and 1, ``(N, C)`` uint8, and what is odd about them.

    Args:
        values: ``(N,)`` or ``(N, 1)`` class numbers.
        where: file and variable, for the error.
        first: the number of the first class.
        classes: how many there are.

    Raises:
        UserError: if they are no whole numbers of classes.
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    wrong = ~np.isin(numbers, np.arange(first, first + classes))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise UserError(
            f"{where} holds {numbers[row]:g} in row {row:,}; class numbers are whole and run from {first} to "
            f"{first + classes - 1}."
        )
    return as_labels(np.eye(classes, dtype=np.uint8)[numbers.astype(np.int64) - first], where)


def as_features(values: np.ndarray, where: str) -> Features:
    """Returns given features as ``(N, D)`` float32.

    Args:
        values: numbers, one row an item.
        where: file and variable, for the error.

    Raises:
        UserError: if they are no matrix, or some are NaN or infinite.
    """
    if values.ndim != 2 or not values.shape[1]:
        raise UserError(f"{where} is {as_shape(values.shape)}; features need one row an item and one column a feature.")
    with np.errstate(over="ignore"):
        features = values.astype(np.float32, copy=False)
    broken = [
        start + row
        for start in range(0, len(features), ROWS_AT_ONCE)
        for row in np.flatnonzero(~np.isfinite(features[start : start + ROWS_AT_ONCE]).all(axis=1)).tolist()
    ]
    if broken:
        raise UserError(
            f"{where} holds NaN or infinity in {len(broken):,} of {len(features):,} rows (first in row {broken[0]:,}). "
            "Extract the features of those items again, or take them out of every file."
        )
    return np.ascontiguousarray(features)


def count_notes(found: int, published: Sequence[int], what: str = "items") -> dict[str, str]:
    """Returns a note where a count is none of the published ones."""
    if not published or found in published:
        return {}
    return {
        f"{what} differ from the published number": f"{found:,}, not {' or '.join(f'{one:,}' for one in published)}"
    }


def repeated_notes(
    parts: Sequence[np.ndarray], splits: Mapping[str, Rows], *, overlap: str, where: str
) -> dict[str, str]:
    """Looks for queries that stand in the database again under another row, in every modality alike.

    Args:
        parts: ``(N, D)`` features, all of which must be equal.
        splits: rows of ``query`` and ``database``.
        overlap: ``refuse`` or ``accept`` more than one repeated query in a hundred.
        where: the files, for the error.

    Returns:
        A note, if there are any.

    Raises:
        UserError: if there are many and they are not accepted.
    """
    one_of("overlap", overlap, ("refuse", "accept"))
    query, database = splits["query"], splits["database"]
    seen = set(_row_digests(parts, database))
    repeated = [int(row) for row, digest in zip(query, _row_digests(parts, query), strict=True) if digest in seen]
    if not repeated:
        return {}
    if overlap == "refuse" and len(repeated) > MOST_REPEATED_SHARE * len(query):
        raise UserError(
            f"{where}: {len(repeated):,} of {len(query):,} queries stand in the database again (first: row "
            f"{repeated[0]:,}), so the stated splits overlap. Fetch the files again, or set overlap = accept."
        )
    return {"queries that stand in the database again": f"{len(repeated):,}: rows {_few(np.array(repeated))}"}


def _row_digests(parts: Sequence[np.ndarray], rows: Rows) -> list[bytes]:
    return [blake2b(b"".join(part[row].tobytes() for part in parts), digest_size=16).digest() for row in rows]


def _few(numbers: npt.NDArray[np.int64]) -> str:
    shown = ", ".join(str(number) for number in numbers[:SHOWN].tolist())
    return shown if len(numbers) <= SHOWN else f"{shown} ..."
