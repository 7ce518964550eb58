"""Statistics of arrays that belong together row by row: are their rows in the same order, are pictures upright?

A shuffled file of features has the name and the shape of the original one. It is recognized by its similarities: those of
pictures, texts and labels agree if the files have the same order, and agree no better than by chance if one is shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import numpy.typing as npt

from silohash.data.benchmarks.layouts.reading import check_option
from silohash.data.formats.matlab_pictures import MatPictures
from silohash.types import Rows, UserError

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
    similarities: npt.NDArray[np.float64] = rows @ rows.T
    return similarities


def _sample(count: int) -> Rows:
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(np.int64))


def check_aligned(columns: Mapping[str, np.ndarray], *, shuffled: str, least: int = LEAST_ROWS) -> dict[str, str]:
    """Check that the rows of pictures, texts and labels are in the same order, and return a note.

    The three columns ``(N, ...)`` are given by file and variable. Fewer than ``least`` rows are not checked.

    Raises:
        UserError: if one column is clearly shuffled, unless ``shuffled`` is ``accept``.
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
        raise UserError(
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
