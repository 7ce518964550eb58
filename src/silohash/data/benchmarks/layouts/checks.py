"""Checks of given arrays: labels of 0 and 1, finite features, numbers and order of rows, repeated queries.

A failed check raises a `UserError` that names the array by its argument ``where`` (file and variable) and its first wrong
row.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import combinations

import numpy as np
import numpy.typing as npt

from silohash.base import errors
from silohash.base.types import Rows
from silohash.data.archive import Features
from silohash.data.benchmarks.layouts.reading import count_notes
from silohash.data.catalogue import check_option
from silohash.data.formats.matlab import as_shape
from silohash.data.formats.matlab_pictures import MatPictures

ROWS_PER_BLOCK = 4096
MOST_REPEATED_SHARE = 0.01
SHOWN = 10

SAMPLE_ROWS = 800
LEAST_ROWS = 200
LEAST_PICTURES = 400
SHIFTS = 63
CHANCE, CLEAR = 3.5, 8.0
"""Standard deviations. Aligned features, words and labels of photographs score 40 and more in 200 rows, and thumbnails
against labels score 20 in 800; shuffled columns score at most 3."""

THUMBNAIL, CELL = 8, 4
TURNED = 1.5
"""Photographs' contrast from top to bottom varies 2 to 5 times as much as that from left to right."""

ALIGNMENT = "order of rows"


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


def common_rows(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Find the number of items: the one size that every array, given by its shape, has on some axis.

    Raises:
        UserError: If there is no such size, or there are several.
    """
    shared = set.intersection(*(set(shape) for shape in shapes.values()))
    candidates = {size for size in shared if size > 1} or shared
    listed = "; ".join(f"{what} is {as_shape(shape)}" for what, shape in shapes.items())
    if not candidates:
        raise errors.FilesDiffer(
            f"The files' numbers of rows differ: {listed}. Take all of them from one folder of one source."
        )
    if len(candidates) > 1:
        raise errors.AmbiguousForm(f"The axis of the items is ambiguous: {listed}. Remove one item from every file.")
    return candidates.pop()


def as_labels(values: np.ndarray, where: str) -> tuple[npt.NDArray[np.uint8], dict[str, str]]:
    """Check ``(N, C)`` labels of 0 and 1, and return them as uint8 with notes on unusual ones.

    Raises:
        UserError: If the array does not have two axes, or a value is neither 0 nor 1.
    """
    if values.ndim != 2:
        raise errors.WrongShape(
            f"{where} is {as_shape(values.shape)}; labels need one row per item and one column per class."
        )
    wrong = ~np.isin(values, (0, 1))
    if wrong.any():
        seen = ", ".join(f"{value:g}" for value in np.unique(values[wrong])[:SHOWN].tolist())
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise errors.OutOfRange(
            f"{where} holds labels that are neither 0 nor 1: {seen} (first in row {row:,}). "
            "Use the file of labels, not of features or class numbers, and replace -1 by 0."
        )
    labels = values.astype(np.uint8)
    empty = np.flatnonzero(~labels.any(axis=0))
    notes = {"classes without an item": f"{len(empty)}: columns {_first_of(empty)}"} if len(empty) else {}
    return labels, notes | count_notes({"items without a label": int((~labels.any(axis=1)).sum())})


def from_class_numbers(values: np.ndarray, where: str) -> tuple[npt.NDArray[np.uint8], dict[str, str]]:
    """Return ``(N,)`` class numbers from 0, or from 1 if no item has 0, as ``(N, C)`` uint8 of 0 and 1, with notes.

    Raises:
        UserError: If a number is negative, or not a finite whole number.
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not np.isfinite(numbers).all():
        raise errors.NotFinite(f"{where} holds NaN or infinity among the class numbers. Download the files again.")
    lowest, highest = (float(edge(numbers)) if numbers.size else 0.0 for edge in (np.min, np.max))
    first = 1 if lowest == 1 else 0
    classes = max(1, int(highest) - first + 1)
    wrong = ~np.isin(numbers, np.arange(first, first + classes))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise errors.OutOfRange(
            f"{where} holds {numbers[row]:g} in row {row:,}; class numbers are whole and run from {first} to "
            f"{first + classes - 1}. Restore the file."
        )
    labels, notes = as_labels(np.eye(classes, dtype=np.uint8)[numbers.astype(np.int64) - first], where)
    return labels, notes | ({"class numbers": "start at 1 in the files, at 0 here"} if first else {})


def as_features(values: np.ndarray, where: str) -> Features:
    """Check that features are finite, and return them as ``(N, D)`` float32.

    Raises:
        UserError: If the array does not have two axes and at least one column, or a value is not finite as float32.
    """
    if values.ndim != 2 or not values.shape[1]:
        raise errors.WrongShape(
            f"{where} is {as_shape(values.shape)}; features need one row per item and one column per feature."
        )
    # A value too large for float32 becomes infinite, and is reported below.
    with np.errstate(over="ignore"):
        features = values.astype(np.float32, copy=False)
    starts = range(0, len(features), ROWS_PER_BLOCK)
    finite = [np.isfinite(features[start : start + ROWS_PER_BLOCK]).all(axis=1) for start in starts]
    broken = np.flatnonzero(~np.concatenate(finite)) if finite else np.zeros(0, np.int64)
    if len(broken):
        raise errors.NotFinite(
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
        UserError: If they are more than 1 % of the queries, unless ``overlap`` is ``accept``.
    """
    check_option("overlap", overlap, ("refuse", "accept"))
    query, database = splits["query"], splits["database"]
    seen = set(_row_digests(parts, database))
    repeated = [int(row) for row, digest in zip(query, _row_digests(parts, query), strict=True) if digest in seen]
    if not repeated:
        return {}
    if overlap == "refuse" and len(repeated) > MOST_REPEATED_SHARE * len(query):
        raise errors.ProtocolUnmet(
            f"{where}: {len(repeated):,} of {len(query):,} queries occur in the database as well (first: row "
            f"{repeated[0]:,}), so the stated splits overlap. Download the files again, or set overlap = accept."
        )
    return {"queries repeated in the database": f"{len(repeated):,}: rows {_first_of(np.array(repeated))}"}


def _row_digests(parts: Sequence[np.ndarray], rows: Rows) -> list[bytes]:
    return [blake2b(b"".join(part[row].tobytes() for part in parts), digest_size=16).digest() for row in rows]


def _first_of(numbers: npt.NDArray[np.int64]) -> str:
    shown = ", ".join(str(number) for number in numbers[:SHOWN].tolist())
    return shown if len(numbers) <= SHOWN else f"{shown} ..."


def agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Return by how many standard deviations the rows of two columns agree better than shifted ones.

    The columns ``(n, D)`` and ``(n, E)`` are compared by the similarities of their rows. The result is about 0 if one of
    them is shuffled.

    Source: Gretton et al., Measuring statistical dependence with Hilbert-Schmidt norms, ALT 2005 (the statistic).
    """
    one, other = _similarities(first), _similarities(second)
    shifts = np.unique(np.linspace(1, len(one) - 1, SHIFTS).astype(np.int64)).tolist()
    shifted = np.array([np.vdot(one, np.roll(other, (shift, shift), axis=(0, 1))) for shift in shifts])
    return float((np.vdot(one, other) - shifted.mean()) / (shifted.std() or 1.0))


def _similarities(values: np.ndarray) -> npt.NDArray[np.float64]:
    rows = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    rows = rows - rows.mean(axis=0)
    return np.asarray(rows @ rows.T)


def _sample(count: int) -> Rows:
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(np.int64))


def check_aligned(columns: Mapping[str, np.ndarray], *, shuffled: str, least: int = LEAST_ROWS) -> dict[str, str]:
    """Check that the rows of pictures, texts and labels are in the same order, and return a note.

    A shuffled file has the name and the shape of the original one. If the files have the same order, the similarities of
    pictures, texts and labels agree. If one is shuffled, they agree no better than by chance.

    The three columns ``(N, ...)`` are given by file and variable. Fewer than ``least`` rows are not checked.

    Raises:
        UserError: If one column is clearly shuffled, unless ``shuffled`` is ``accept``.
    """
    check_option("shuffled", shuffled, ("refuse", "accept"))
    count = min(len(column) for column in columns.values())
    if count < least:
        return {}
    rows = _sample(count)
    sampled = {name: column[rows] for name, column in columns.items()}
    scores = {pair: agreement(*(sampled[name] for name in pair)) for pair in combinations(sampled, 2)}
    for name, values in sampled.items():
        if not _is_shuffled(name, values, scores):
            continue
        if shuffled == "accept":
            return {ALIGNMENT: f"the rows of {name} are shuffled; accepted"}
        raise errors.OrderDiffers(
            f"The rows of {name} do not match those of the other files: their similarities agree no better than by "
            "chance, so one of the files is shuffled. Take all files from one folder of one source, or set "
            "shuffled = accept."
        )
    if min(scores.values()) > CLEAR:
        return {ALIGNMENT: f"pictures, texts and labels agree in the {len(rows):,} rows that were compared"}
    return {ALIGNMENT: f"cannot be verified from the {len(rows):,} rows that were compared"}


def _is_shuffled(name: str, values: np.ndarray, scores: Mapping[tuple[str, str], float]) -> bool:
    """Tell whether a column agrees with neither of the others while those agree with each other."""
    with_it = [score for pair, score in scores.items() if name in pair]
    without_it = [score for pair, score in scores.items() if name not in pair]
    constant = bool((values == values[0]).all())
    return max(with_it) < CHANCE and min(without_it) > CLEAR and not constant


def pair_notes(first: np.ndarray, second: np.ndarray) -> dict[str, str]:
    """Return a note on whether texts and labels agree; without a third column it is unknown which one is shuffled."""
    if len(first) < LEAST_ROWS:
        return {}
    rows = _sample(len(first))
    if agreement(first[rows], second[rows]) < CHANCE:
        return {ALIGNMENT: "texts and labels agree no better than by chance; one of them may be shuffled"}
    return {ALIGNMENT: f"texts and labels agree in the {len(rows):,} rows that were compared"}


def look_turned(small: npt.NDArray[np.float64]) -> bool | None:
    """Tell whether pictures ``(n, height, width, 3)`` lie on their side; None if it is not clear.

    Photographs differ more from top to bottom (sky and ground) than from left to right.
    """
    if len(small) < LEAST_PICTURES:
        return None
    gray = small.mean(axis=3)
    height, width = gray.shape[1] // 2, gray.shape[2] // 2
    upright = float((gray[:, :height].mean(axis=(1, 2)) - gray[:, -height:].mean(axis=(1, 2))).var())
    sideways = float((gray[:, :, :width].mean(axis=(1, 2)) - gray[:, :, -width:].mean(axis=(1, 2))).var())
    if upright == sideways or max(upright, sideways) < TURNED * min(upright, sideways):
        return None
    return sideways > upright


def thumbnails(pictures: MatPictures) -> tuple[Rows, npt.NDArray[np.float64]]:
    """Read pictures from all over a file, as rows ``(n,)`` and their colors in cells, ``(n, 8, 8, 3)``."""
    rows, small = [], []
    height, width = pictures.size
    down, across = (np.rint(np.linspace(0, size - 1, THUMBNAIL * CELL)).astype(np.int64) for size in (height, width))
    for some, pixels in pictures.sample(SAMPLE_ROWS):
        points = pixels[:, down[:, None], across].astype(np.float64)
        rows.append(some)
        small.append(points.reshape(-1, THUMBNAIL, CELL, THUMBNAIL, CELL, 3).mean(axis=(2, 4)))
    return np.concatenate(rows), np.concatenate(small)
