"""Given feature vectors, of either modality, brought to mean zero and deviation one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Column, is_features
from silohash.features.base import Value, blocks, known, mean_and_deviation
from silohash.types import Arrays, Modality, Rows, UserError

BLOCK_ROWS = 1_024


@dataclass(frozen=True, eq=False)
class GivenFeatures:
    """Given vectors, standardised column by column.

    Numbers that are missing (NaN) or infinite are left out of the sums and become zero, the mean; a row without any
    number is an item that lacks the modality (`missing`). A column that never varies becomes zero.

    Attributes:
        modality: ``image`` or ``text``.
        width: how many numbers a vector has.
        summed: the added sums of the silos: ``count``, ``sum``, ``sum_squares``, each ``(width,)`` float64.
    """

    modality: Modality
    width: int
    summed: Arrays | None = None

    kind: ClassVar[str] = "given"
    options: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> GivenFeatures:  # noqa: ARG003
        """Return the featuriser for a column of vectors."""
        if not isinstance(column, np.ndarray) or not is_features(column):
            raise UserError(
                f'[features] kind "given" needs feature vectors, and this archive\'s {modality} column holds none. '
                'Set kind = "auto".'
            )
        return cls(modality, column.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one vector, ``(width,)``."""
        return (self.width,)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return ``count``, ``sum`` and ``sum_squares`` of the finite numbers a column, each ``(width,)`` float64."""
        vectors = self._vectors(column)
        count, total, squares = (np.zeros(self.width) for _ in range(3))
        for _, block in blocks(rows, BLOCK_ROWS):
            values = vectors[block].astype(np.float64)
            there = np.isfinite(values)
            values = np.where(there, values, 0.0)
            count += there.sum(axis=0)
            total += values.sum(axis=0)
            squares += np.square(values).sum(axis=0)
        return {"count": count, "sum": total, "sum_squares": squares}

    def fitted(self, summed: Arrays) -> GivenFeatures:
        """Return the featuriser that knows the mean and the deviation over all silos."""
        return replace(self, summed=summed)

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return ``(n, width)`` float32.

        Raises:
            UserError: if the column holds no vectors, or vectors of another width.
        """
        vectors = self._vectors(column)
        mean, deviation = mean_and_deviation(known(self.summed, self.kind))
        scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        scaled = np.empty((len(rows), self.width), np.float32)
        for place, block in blocks(rows, BLOCK_ROWS):
            values = vectors[block].astype(np.float64)
            scaled[place] = np.where(np.isfinite(values), (np.nan_to_num(values) - mean) * scale, 0.0)
        return scaled

    def missing(self, column: Column, rows: Rows) -> npt.NDArray[np.bool_]:
        """Tell which rows hold no finite number at all, ``(n,)`` bool."""
        vectors = self._vectors(column)
        lacking = np.empty(len(rows), np.bool_)
        for place, block in blocks(rows, BLOCK_ROWS):
            lacking[place] = ~np.isfinite(vectors[block]).any(axis=1)
        return lacking

    def encode_one(self, value: Value) -> npt.NDArray[np.float32]:
        """Return one vector, ``(width,)`` or ``(1, width)``, as ``(1, width)`` float32.

        Raises:
            UserError: if the query is a text or a picture, or has another width.
        """
        if not isinstance(value, np.ndarray):
            what = "a text" if isinstance(value, str) else "a picture"
            raise UserError(
                f"The run was trained on given {self.modality} features of {self.width} numbers; the query is {what}. "
                "Pass a .npy vector that was made as those features were."
            )
        return self.transform(value.reshape(1, -1), np.zeros(1, np.int64))

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        return dict(self.summed or {}), {"kind": self.kind, "modality": self.modality, "width": self.width}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> GivenFeatures:
        """Return the featuriser that gave the state."""
        return cls(about["modality"], about["width"], dict(arrays) or None)

    def _vectors(self, column: Column) -> npt.NDArray[Any]:
        if not isinstance(column, np.ndarray) or not is_features(column) or column.dtype.kind not in "fiub":
            raise UserError(
                f"The run was trained on given {self.modality} features of {self.width} numbers, and this column holds "
                "none. Give an archive with such features."
            )
        if column.shape[1] != self.width:
            raise UserError(
                f"The run was trained on given {self.modality} features of {self.width} numbers, and these have "
                f"{column.shape[1]:,}. Make them as the run's features were made."
            )
        return column
