"""Files that belong together row by row: where they lie, and whether their rows are in step.

A shuffled file of features has the name and the shape of the plain one. What gives it away is that its rows say nothing
of the rows beside them: the similarities of pictures, texts and labels agree where the files are in step, and no better
than by chance where one is out of step.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.benchmarks.reading import one_of
from silohash.data.formats.matlab_pictures import MatPictures
from silohash.types import UserError

SAMPLE_ROWS = 800
LEAST_ROWS = 200
LEAST_PICTURES = 400
SHIFTS = 63
CHANCE, CLEAR = 3.5, 8.0
"""Standard deviations: photographs' features, words and labels in step score 40 and more in 200 rows, and reduced
photographs and labels 20 in 800; columns out of step score at most 3."""

THUMBNAIL, CELL = 8, 4
TURNED = 1.5
"""Photographs' contrast from top to bottom varies 2 to 5 times as much as that from left to right."""


def find_file(root: Path, *names: str, beside: Path | None = None) -> Path | None:
    """Finds a file by one of several names, in their order, anywhere under a folder.

    Args:
        root: the folder.
        names: names without a folder.
        beside: a file in whose folder it must lie, where there are several.

    Raises:
        UserError: if there are several and none lies beside.
    """
    for name in names:
        found = sorted(path for path in root.rglob(name) if path.is_file())
        if beside is not None:
            found = [path for path in found if path.parent == beside.parent] or found
        if len(found) > 1:
            listed = ", ".join(str(path.relative_to(root)) for path in found)
            raise UserError(f"{root} holds {name} more than once: {listed}. Name the folder of one source.")
        if found:
            return found[0]
    return None


def need_file(root: Path, *names: str, beside: Path | None = None) -> Path:
    """Finds a file as `find_file` does.

    Raises:
        UserError: if it is missing, or there are several.
    """
    found = find_file(root, *names, beside=beside)
    if found is None:
        raise UserError(f"{' or '.join(names)} is missing under {root}. Put it there, beside the other files.")
    return found


def need_companion(path: Path, name: str, other: str) -> Path:
    """Returns a file from the same folder as another.

    Args:
        path: the file that it belongs to.
        name: the companion's name.
        other: its name in the other order of rows (plain or ``-rand``), which must not be taken in its place.

    Raises:
        UserError: if it is not there.
    """
    companion = path.parent / name
    if companion.is_file():
        return companion
    if (path.parent / other).is_file():
        raise UserError(
            f"{path.name} and {other} have their rows in different orders: files with -rand are shuffled, those without "
            f"are not. Put {name} into {path.parent}."
        )
    raise UserError(
        f"{name} is missing in {path.parent}. It must come from the same folder of the same source as {path.name}, "
        "whose rows may be shuffled."
    )


def agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Compares two columns' similarities row by row, and again with the rows of one shifted against the other.

    Args:
        first: ``(n, D)`` numbers.
        second: ``(n, E)`` numbers of the same items.

    Returns:
        By how many standard deviations the rows agree better than shifted ones: about 0 where one column is shuffled.

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


def check_in_step(columns: Mapping[str, np.ndarray], *, shuffled: str, least: int = LEAST_ROWS) -> dict[str, str]:
    """Compares the rows of pictures, texts and labels; one that fits neither of the others is out of step.

    Args:
        columns: three columns ``(N, ...)`` by file and variable.
        shuffled: ``refuse`` or ``accept`` a column that is out of step.
        least: with fewer rows nothing is said.

    Returns:
        A note of what was found.

    Raises:
        UserError: if one column is clearly out of step and that is not accepted.
    """
    one_of("shuffled", shuffled, ("refuse", "accept"))
    count = min(len(column) for column in columns.values())
    if count < least:
        return {}
    rows = np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(np.int64))
    pairs = {pair: agreement(*(columns[name][rows] for name in pair)) for pair in combinations(columns, 2)}
    for name in columns:
        apart = [score for pair, score in pairs.items() if name in pair]
        others = [score for pair, score in pairs.items() if name not in pair]
        alike = bool((columns[name][rows] == columns[name][rows[0]]).all())
        if max(apart) < CHANCE and min(others) > CLEAR and not alike:
            if shuffled == "accept":
                return {"rows out of step": f"those of {name}; accepted"}
            raise UserError(
                f"The rows of {name} do not belong to those of the other files: their similarities agree no better "
                "than by chance, so that one of them is shuffled. Take all files from one folder of one source, or set "
                "shuffled = accept."
            )
    if min(pairs.values()) > CLEAR:
        return {"rows in step": f"pictures, texts and labels agree in the {len(rows):,} rows that were compared"}
    return {"rows in step": f"cannot be told from the {len(rows):,} rows that were compared"}


def pair_notes(first: np.ndarray, second: np.ndarray) -> dict[str, str]:
    """Returns a note on whether the rows of texts and labels agree, where no third column can tell which is shuffled."""
    if len(first) < LEAST_ROWS:
        return {}
    rows = np.unique(np.linspace(0, len(first) - 1, min(len(first), SAMPLE_ROWS)).astype(np.int64))
    if agreement(first[rows], second[rows]) < CHANCE:
        return {"rows in step": "texts and labels agree no better than by chance: one of them may be shuffled"}
    return {"rows in step": f"texts and labels agree in the {len(rows):,} rows that were compared"}


def looks_turned(small: npt.NDArray[np.float64]) -> bool | None:
    """Tells whether pictures lie on their side, as those do whose height and width were exchanged.

    Photographs differ more from top to bottom (sky and ground) than from left to right.

    Args:
        small: ``(n, height, width, 3)``.

    Returns:
        None where there are too few pictures, or the difference is too small.
    """
    if len(small) < LEAST_PICTURES:
        return None
    grey = small.mean(axis=3)
    height, width = grey.shape[1] // 2, grey.shape[2] // 2
    upright = float((grey[:, :height].mean(axis=(1, 2)) - grey[:, -height:].mean(axis=(1, 2))).var())
    sideways = float((grey[:, :, :width].mean(axis=(1, 2)) - grey[:, :, -width:].mean(axis=(1, 2))).var())
    if upright == sideways or max(upright, sideways) < TURNED * min(upright, sideways):
        return None
    return sideways > upright


def thumbnails(pictures: MatPictures) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Reads some pictures from all over a file, much reduced.

    Returns:
        Rows ``(n,)``, and colours ``(n, 8, 8, 3)``.
    """
    rows, small = [], []
    height, width = pictures.size
    down, across = (np.rint(np.linspace(0, size - 1, THUMBNAIL * CELL)).astype(np.int64) for size in (height, width))
    for some, pixels in pictures.sample(SAMPLE_ROWS):
        points = pixels[:, down[:, None], across].astype(np.float64)
        rows.append(some)
        small.append(points.reshape(-1, THUMBNAIL, CELL, THUMBNAIL, CELL, 3).mean(axis=(2, 4)))
    return np.concatenate(rows), np.concatenate(small)
