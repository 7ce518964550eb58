"""What every featuriser does: it learns from sums that silos may add up, and turns pictures or texts into arrays.

The fit is exactly federable: what a silo sends is a handful of sums, and the featuriser made of the added sums is the
one that pooled data would have given. No text and no picture leaves the silo; but a sum over few items says much about
each of them, so silos with few items should add noise (see `silohash.exchange`) or send none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Column
from silohash.types import Arrays, Modality, Rows, UserError

if TYPE_CHECKING:
    from PIL import Image

Value: TypeAlias = "str | Image.Image | np.ndarray"
"""One query: a text, a picture, or a given feature vector."""

CONSTANT = 1e-10
"""A column whose variance is below this part of its mean square counts as constant: sums cannot tell it from one."""


class Featuriser(Protocol):
    """Turn a column of an archive, or one query, into the array that a tower takes."""

    @property
    def kind(self) -> str:
        """Its name in the table of `silohash.features`."""
        ...

    @property
    def modality(self) -> Modality:
        """The modality that it takes."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one item's array."""
        ...

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return sums over the rows; the sums of disjoint rows add up to those of all."""
        ...

    def fitted(self, summed: Arrays) -> Featuriser:
        """Return the featuriser that knows the added sums."""
        ...

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[Any]:
        """Return ``(n, *shape)``, float32 or (pixels) uint8."""
        ...

    def encode_one(self, value: Value) -> npt.NDArray[Any]:
        """Return one query as ``(1, *shape)``, by the code that `transform` runs.

        Raises:
            UserError: if the query is of another kind than what the featuriser was made for.
        """
        ...

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that `from_state` needs: named arrays and a JSON value."""
        ...

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Featuriser:
        """Return the featuriser that gave the state; it transforms bit for bit as that one did."""
        ...


def add_statistics(parts: Iterable[Arrays]) -> Arrays:
    """Add silos' statistics up, in the order given.

    Raises:
        UserError: if the silos' statistics do not fit together, or there are none.
    """
    total: Arrays = {}
    for number, part in enumerate(parts):
        if number == 0:
            total = {name: np.array(array) for name, array in part.items()}
            continue
        shapes = {name: array.shape for name, array in part.items()}
        if shapes != {name: array.shape for name, array in total.items()}:
            raise UserError(
                f"The statistics of silo {number + 1} have the shapes {shapes}, other than those before. "
                "Give every silo the same [features] settings and data of the same width."
            )
        total = {name: array + part[name] for name, array in total.items()}
    if not total:
        raise UserError(
            "No silo sent statistics, so that the features cannot be scaled. Let at least one silo take part."
        )
    return total


def blocks(rows: Rows, most: int) -> Iterator[tuple[slice, Rows]]:
    """Yield the rows in blocks of at most ``most``, each with the place of the block among them."""
    for start in range(0, len(rows), most):
        yield slice(start, min(start + most, len(rows))), rows[start : start + most]


def mean_and_deviation(summed: Arrays) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return mean and standard deviation a column from ``count``, ``sum`` and ``sum_squares``.

    Returns:
        Two ``(D,)`` float64; the deviation of a constant or empty column is zero.
    """
    count = np.maximum(summed["count"].astype(np.float64), 1.0)
    mean = summed["sum"] / count
    mean_square = summed["sum_squares"] / count
    variance = mean_square - mean**2
    return mean, np.sqrt(np.where(variance > CONSTANT * mean_square, variance, 0.0))


def known(summed: Arrays | None, kind: str) -> Arrays:
    """Return the sums of a featuriser that was fitted.

    Raises:
        RuntimeError: if it was not.
    """
    if summed is None:
        raise RuntimeError(f'The featuriser "{kind}" was not fitted: call fitted(add_statistics(...)) first.')
    return summed
