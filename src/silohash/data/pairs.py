"""Which items have the same picture, where an archive has several texts per picture."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.base.types import Rows
from silohash.data.archive import Archive, NamedPictures

PICTURE = "picture"
"""The column that names each item's picture. Items of one picture are counted and drawn together."""


def picture_numbers(archive: Archive) -> Rows:
    """Return a number for each item, ``(N,)`` int64. Items with the same number have the same picture.

    A picture and a text are a pair if their items have the same number. Items have the same picture if they name the same
    file or, without files, the same value in the column ``picture``. An item that names none has a number of its own.
    """
    given: Sequence[str] | npt.NDArray[np.str_] = archive.columns.get(PICTURE, archive.ids)
    for pictures in (archive.preview, archive.image):
        if isinstance(pictures, NamedPictures) and pictures.names:
            given = pictures.names
    names = np.asarray(given, dtype=np.str_)
    _, numbers = np.unique(names, return_inverse=True)
    unnamed = np.flatnonzero(names == "")
    numbers[unnamed] = len(names) + unnamed
    return np.asarray(numbers, np.int64)


def shares(names: Sequence[str]) -> bool:
    """Return whether any two items name the same picture. An empty name is not that of a picture."""
    named = list(filter(None, names))
    return len(set(named)) < len(named)


def groups_of(numbers: npt.NDArray[np.generic]) -> tuple[Rows, Rows]:
    """Return the first row of each group, ``(G,)`` in ascending order, and the group of each row, ``(N,)``.

    If all numbers differ, both are 0 to N - 1.

    Rows with the same number or name are a group.

    Example:
        >>> [rows.tolist() for rows in groups_of(np.array([7, 3, 7, 5]))]
        [[0, 1, 3], [0, 1, 0, 2]]
    """
    _, first, of_row = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[of_row]
