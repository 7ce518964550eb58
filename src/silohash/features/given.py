"""Precomputed feature vectors of either modality, standardized to mean zero and standard deviation one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Column, is_features
from silohash.features.base import MOMENTS, Value, blocks, known, mean_and_deviation, stored_sums
from silohash.types import Arrays, Modality, Rows, UserError

BLOCK_ROWS = 1_024


@dataclass(frozen=True, eq=False)
class GivenFeatures:
    """Precomputed vectors, standardized per column.

    Missing (NaN) and infinite numbers are left out of the sums and become zero, which is the mean. A row without any
    finite number is an item that lacks the modality (see `missing`). A constant column becomes zero.

    Attributes:
        modality: ``image`` or ``text``.
        width: Number of columns of a vector.
        summed: The added sums of the silos: ``count``, ``sum``, ``sum_squares``, each ``(width,)`` float64.
    """

    modality: Modality
    width: int
    summed: Arrays | None = None

    kind: ClassVar[str] = "given"
    options: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> GivenFeatures:  # noqa: ARG003
        """Return an unfitted featurizer for a column of vectors."""
        if not isinstance(column, np.ndarray) or not is_features(column):
            raise UserError(
                f'[features] kind "given" needs feature vectors, and this archive\'s {modality} column does not hold any. '
                'Set kind = "auto".'
            )
        return cls(modality, column.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one vector, ``(width,)``."""
        return (self.width,)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return ``count``, ``sum`` and ``sum_squares`` of the finite numbers per column, each ``(width,)`` float64."""
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
        """Return a featurizer with the mean and the standard deviation over all silos."""
        return replace(self, summed=summed)

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the standardized rows, ``(n, width)`` float32.

        Raises:
            UserError: If the column does not hold vectors, or if they have another width.
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
        """Return a mask of the rows without any finite number, ``(n,)`` bool."""
        vectors = self._vectors(column)
        empty = np.empty(len(rows), np.bool_)
        for place, block in blocks(rows, BLOCK_ROWS):
            empty[place] = ~np.isfinite(vectors[block]).any(axis=1)
        return empty

    def encode_one(self, value: Value) -> npt.NDArray[np.float32]:
        """Return one vector, ``(width,)`` or ``(1, width)``, as ``(1, width)`` float32.

        Raises:
            UserError: If the query is a text or a picture, or if it has another width.
        """
        if not isinstance(value, np.ndarray):
            what = "a text" if isinstance(value, str) else "a picture"
            raise UserError(
                f"The run was trained on precomputed {self.modality} features with {self.width} columns, and the query is "
                f"{what}. Pass a .npy vector that was computed like those features."
            )
        return self.transform(value.reshape(1, -1), np.zeros(1, np.int64))

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        return dict(self.summed or {}), {"kind": self.kind, "modality": self.modality, "width": self.width}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> GivenFeatures:
        """Return the featurizer with a given state."""
        width = about["width"]
        return cls(about["modality"], width, stored_sums(arrays, dict.fromkeys(MOMENTS, (width,))))

    def _vectors(self, column: Column) -> npt.NDArray[Any]:
        if not isinstance(column, np.ndarray) or not is_features(column) or column.dtype.kind not in "fiub":
            raise UserError(
                f"The run was trained on precomputed {self.modality} features with {self.width} columns, and this archive "
                "does not have any. Use an archive with such features."
            )
        if column.shape[1] != self.width:
            raise UserError(
                f"The run was trained on precomputed {self.modality} features with {self.width} columns, and these have "
                f"{column.shape[1]:,}. Compute them like the features of the run."
            )
        return column
