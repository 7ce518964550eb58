"""Which texts belong to which picture, where an archive has several texts per picture."""

from __future__ import annotations

import numpy as np

from silohash.data.archive import Archive
from silohash.types import Rows

PICTURE = "picture"
"""The column that names each item's picture. Items of one picture are counted and drawn together."""


def picture_numbers(archive: Archive) -> Rows:
    """Return a number for each item, ``(N,)`` int64. Items with the same number have the same picture.

    A picture and a text are a pair if their items have the same number. Items have the same picture if they name the same
    file or, without files, the same value in the column ``picture``. An item that names none has a number of its own.
    """
    columns = (getattr(pictures, "names", None) for pictures in (archive.image, archive.preview))
    names = np.asarray(next(filter(None, columns), archive.columns.get(PICTURE, archive.ids)), dtype=np.str_)
    _, numbers = np.unique(names, return_inverse=True)
    unnamed = np.flatnonzero(names == "")
    numbers[unnamed] = len(names) + unnamed
    return np.asarray(numbers, np.int64)
