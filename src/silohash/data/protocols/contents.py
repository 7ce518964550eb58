"""The contents of a data set's files, before a protocol chooses among the items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, Pictures, Texts, is_features
from silohash.data.pictures.packing import PictureFiles
from silohash.types import Modality, Rows

BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Contents:
    """Every item of a data set's files, in the order of the files.

    Attributes:
        ids: ``(N,)`` unique strings.
        image: pictures (decoded on demand), ``(N, D)`` given features, or None.
        text: ``(N,)`` strings, ``(N, V)`` given features, or None.
        labels: ``(N, C)`` uint8 multi-hot, or None.
        label_names: C names; ``class 0`` ... if the files do not name the classes.
        stated: the rows of each split that the files state (``query``, ``database``, ``train``, ``validation``); empty
            if they state none.
        notes: findings for the archive's card, such as the order of axes or missing pictures.
        columns: further columns, ``(N,)`` strings each.
    """

    ids: npt.NDArray[np.str_]
    image: Pictures | Features | None
    text: Texts | Features | None
    labels: npt.NDArray[np.uint8] | None
    label_names: tuple[str, ...]
    stated: Mapping[str, Rows] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.ids)

    def has(self, modality: Modality) -> npt.NDArray[np.bool_]:
        """Return which items have the modality, ``(N,)`` bool.

        An item lacks it if its picture has no file name, its text is empty, or its features hold no finite number.
        """
        column = self.image if modality == "image" else self.text
        if column is None:
            return np.zeros(len(self), np.bool_)
        if isinstance(column, PictureFiles):
            return np.array([bool(name) for name in column.names], np.bool_)
        if not isinstance(column, np.ndarray):
            return np.ones(len(self), np.bool_)
        if not is_features(column):
            return np.asarray(column != "", np.bool_)
        present = np.empty(len(self), np.bool_)
        for start in range(0, len(self), BLOCK_ROWS):
            present[start : start + BLOCK_ROWS] = np.isfinite(column[start : start + BLOCK_ROWS]).any(axis=1)
        return present
