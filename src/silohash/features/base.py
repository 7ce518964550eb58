"""The contract of featurizers, which are fitted on sums over silos and turn pictures or texts into arrays.

Fitting is exactly federated: each silo sends a few sums, and the featurizer fitted on the added sums equals the one fitted
on pooled data. Texts and pictures do not leave the silo. A sum over few items still reveals much about each of them, so
a silo with few items should not send its sums.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import SilosDiffer, TooFewSilos, UnsuitableFeatures, UserError, WrongType
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Column

if TYPE_CHECKING:
    from PIL import Image

Featurizers: TypeAlias = "Mapping[Modality, Featurizer]"
"""One featurizer per modality."""

Value: TypeAlias = "str | Image.Image | np.ndarray"
"""One query: a text, a picture, or a precomputed feature vector."""

MOMENTS = ("count", "sum", "sum_squares")
"""The sums per column from which `mean_and_deviation` computes."""

CONSTANT = 1e-10
"""A column counts as constant if its variance divided by its mean square is at most this, the rounding error of the sums."""

SETS = frozenset({"word_digests"})
"""Statistics that are sorted sets of numbers. The sets of silos are united, all other statistics are added."""


class Featurizer(Protocol):
    """Turns a column of an archive, or one query, into the input of a tower."""

    @property
    def kind(self) -> str:
        """The name of the featurizer in the table of `silohash.features`."""

    @property
    def modality(self) -> Modality:
        """The modality of the inputs."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one item's array."""

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return sums over the rows. `add_statistics` turns those of disjoint sets of rows into those of their union."""

    def fitted(self, summed: Arrays) -> Self:
        """Return a featurizer fitted on the added sums of all silos."""

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[Any]:
        """Return the rows as ``(n, *shape)``, float32, or uint8 for pixels.

        Raises:
            UserError: If the column is not of the kind that the featurizer was made for, or an item cannot be read.
        """

    def encode_one(self, value: Value) -> npt.NDArray[Any]:
        """Return one query as ``(1, *shape)``, computed by the same code as `transform`.

        Raises:
            UserError: If the featurizer does not support this kind of query.
        """

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the named arrays and the JSON value from which `from_state` restores the featurizer."""

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Self:
        """Return the featurizer with a given state. Its outputs are bitwise equal to those of the original."""


def lacking(kind: str, modality: Modality, needed: str) -> UserError:
    """Return the error for a column of an archive that does not hold what a kind of featurizer needs."""
    return UnsuitableFeatures(
        f'[features] kind "{kind}" needs {needed}, and this archive\'s {modality} column does not hold any. '
        'Set kind = "auto".'
    )


def check_switches(options: Mapping[str, object], *names: str) -> None:
    """Check that options are truth values.

    Raises:
        UserError: If one is not.
    """
    for name in names:
        if not isinstance(options[name], bool):
            raise WrongType(f"[features] {name} is {options[name]!r}; it must be true or false.")


def add_statistics(parts: Iterable[Arrays]) -> Arrays:
    """Return the sum of the silos' statistics, added in the given order. The statistics in `SETS` are united.

    Raises:
        UserError: If the shapes of the statistics differ, or if there are none.
    """
    total: Arrays = {}
    for number, part in enumerate(parts):
        if number == 0:
            total = {name: np.array(array) for name, array in part.items()}
            continue
        shapes = _shapes(part)
        if shapes != _shapes(total):
            raise SilosDiffer(
                f"The statistics of silo {number + 1} have the shapes {shapes}, which differ from those before. "
                "Give all silos the same [features] settings and data of the same width."
            )
        total = {
            name: np.union1d(array, part[name]) if name in SETS else array + part[name] for name, array in total.items()
        }
    if not total:
        raise TooFewSilos(
            "No silo sent statistics, so the features cannot be standardized. At least one silo must take part."
        )
    return total


def _shapes(statistics: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shape of each statistic. A set has any number of members, so its length is left out."""
    return {name: () if name in SETS else array.shape for name, array in statistics.items()}


def blocks(rows: Rows, most: int) -> Iterator[tuple[slice, Rows]]:
    """Yield the rows in blocks of at most ``most``, each with the slice of ``rows`` that it covers."""
    for start in range(0, len(rows), most):
        yield slice(start, min(start + most, len(rows))), rows[start : start + most]


def mean_and_deviation(summed: Arrays) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the mean and the standard deviation of columns, ``(D,)`` float64, from the `MOMENTS`.

    The deviation of a constant or empty column is zero.
    """
    count = np.maximum(summed["count"].astype(np.float64), 1.0)
    mean = summed["sum"] / count
    mean_square = summed["sum_squares"] / count
    variance = mean_square - mean**2
    return mean, np.sqrt(np.where(variance > CONSTANT * mean_square, variance, 0.0))


def stored_sums(arrays: Arrays, shapes: Mapping[str, tuple[int, ...] | None]) -> Arrays | None:
    """Return the arrays of a stored featurizer, or None if it was stored before it was fitted.

    Raises:
        ValueError: If a sum is missing, or if it is not numbers of its shape. None stands for any length.
    """
    if not arrays:
        return None
    for name, shape in shapes.items():
        if name not in arrays:
            raise ValueError(f'the array "{name}" is missing')
        found = arrays[name]
        if (shape is not None and found.shape != shape) or found.dtype.kind not in "fiu":
            raise ValueError(f'"{name}" is {found.dtype} of shape {found.shape} instead of numbers of shape {shape}')
    return dict(arrays)


def known(summed: Arrays | None, kind: str) -> Arrays:
    """Return the sums that a featurizer was fitted on.

    Raises:
        RuntimeError: If it was not fitted.
    """
    if summed is None:
        raise RuntimeError(f'The featurizer "{kind}" is not fitted. Call fitted(add_statistics(...)) first.')
    return summed
