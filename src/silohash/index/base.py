"""What every index promises, and the manifest that binds an index to the model whose codes it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.index.codes import Words, word_type
from silohash.types import MODALITIES, Modality, UserError

FORMAT_VERSION = 1

Keys: TypeAlias = npt.NDArray[np.int64]
"""Keys of items, ``(n,)``, none negative: what an index knows an item by."""

Allowed: TypeAlias = "Keys | npt.NDArray[np.bool_]"
"""A filter: the keys that may be found, or one bool for each of ``index.keys``."""


@dataclass(frozen=True)
class IndexManifest:
    """What an index holds.

    Attributes:
        format_version: of the file; a newer one than ``FORMAT_VERSION`` is refused.
        model_digest: of the model that made the codes.
        bits: length of a code.
        modality: what was encoded.
        count: live items.
    """

    model_digest: str
    bits: int
    modality: Modality
    count: int = 0
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if self.format_version > FORMAT_VERSION:
            raise UserError(
                f"The index has format {self.format_version}, and this silohash reads up to {FORMAT_VERSION}. "
                "Install a newer silohash."
            )
        if self.modality not in MODALITIES:
            raise UserError(f'The index says modality "{self.modality}"; there are: {", ".join(MODALITIES)}.')
        word_type(self.bits)

    def to_json(self) -> dict[str, Any]:
        """Returns the manifest as a JSON value."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> IndexManifest:
        """Reads what `to_json` gave.

        Raises:
            UserError: if a field is missing or unknown, or the format is newer.
        """
        try:
            return cls(**value)
        except TypeError as error:
            raise UserError(f"The index's manifest is damaged ({error}). Build the index again.") from error

    def check(self, model_digest: str, bits: int) -> None:
        """Makes sure that codes may be compared with those in the index.

        Raises:
            UserError: if another model made them, or they have another length.
        """
        if bits != self.bits:
            raise UserError(f"The index holds codes of {self.bits} bits, the query has {bits}. Use the index's model.")
        if model_digest != self.model_digest:
            raise UserError(
                f"The index was made with model {self.model_digest[:12]}, the query with {model_digest[:12]}; their "
                "codes cannot be compared. Encode with the index's model, or build the index again."
            )


@dataclass(frozen=True)
class Neighbours:
    """The nearest items of some queries, ordered by (distance, key).

    Attributes:
        keys: ``(Q, k)`` int64, -1 where the index holds fewer than k items.
        distances: ``(Q, k)`` int32 in bits, -1 where there is none.
        ties_at_cut: ``(Q,)`` int64, how many more items lie at the last distance and were left out.
    """

    keys: Keys
    distances: npt.NDArray[np.int32]
    ties_at_cut: npt.NDArray[np.int64]


class Index(Protocol):
    """Codes under keys, searched by Hamming distance.

    Attributes:
        bits: length of a code.
        exact: whether the answers are those of a full scan.
        keys: the live keys, ascending.
    """

    @property
    def bits(self) -> int:
        """Length of a code."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the answers are those of a full scan."""
        ...

    @property
    def keys(self) -> Keys:
        """The live keys, ascending."""
        ...

    def __len__(self) -> int:
        """Returns how many items live in the index."""
        ...

    def add(self, keys: Keys, words: Words) -> None:
        """Adds codes under keys; a key that exists already gets the new code."""
        ...

    def remove(self, keys: Keys) -> int:
        """Removes keys and returns how many of them were there."""
        ...

    def search(self, words: Words, k: int, *, allowed: Allowed | None = None) -> Neighbours:
        """Returns the ``k`` nearest items of each query, ``(Q, W)`` words."""
        ...

    def search_radius(self, words: Words, radius_bits: int, *, allowed: Allowed | None = None) -> list[Neighbours]:
        """Returns all items within a distance of each query: one answer a query, with arrays ``(1, hits)``."""
        ...


def check_keys(keys: Keys, count: int) -> Keys:
    """Returns the keys of ``count`` codes as int64.

    Raises:
        UserError: if a key is negative or there twice, or their number is another.
    """
    given = np.asarray(keys, np.int64)
    if given.shape != (count,):
        raise UserError(f"There are {count} codes but keys of shape {given.shape}; each code needs one key.")
    if count and given.min() < 0:
        raise UserError(f"Keys are not negative, but {given.min()} is among them.")
    if count > 1 and not (given[1:] > given[:-1]).all():
        ordered = np.sort(given)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.size:
            raise UserError(f"Key {twice[0]} is given twice; each item needs a key of its own.")
    return given


def check_k(k: int) -> None:
    """Raises `UserError` unless at least one neighbour is asked for."""
    if k < 1:
        raise UserError(f"At least one neighbour must be asked for, not k = {k}.")


def check_radius(radius_bits: int) -> None:
    """Raises `UserError` if the radius is negative."""
    if radius_bits < 0:
        raise UserError(f"A radius is at least 0 bits, not {radius_bits}.")


def positions(ordered: Keys, keys: Keys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Finds keys among ascending ones.

    Returns:
        ``(n,)`` int64, where each key stands (or would stand), and ``(n,)`` bool, whether it is there.
    """
    places = np.searchsorted(ordered, keys)
    if not len(ordered):
        return places, np.zeros(len(places), bool)
    return places, ordered[np.minimum(places, len(ordered) - 1)] == keys


def allowed_keys(allowed: Allowed, live: Keys) -> Keys:
    """Returns the live keys that a filter lets through, ascending.

    Raises:
        UserError: if a mask has another length than there are live keys.
    """
    given = np.asarray(allowed)
    if given.dtype == np.bool_:
        if given.shape != live.shape:
            raise UserError(f"The filter has shape {given.shape}, the index {len(live)} items; give one bool an item.")
        return np.asarray(live[given], np.int64)
    wanted: Keys = np.unique(given.astype(np.int64))
    return wanted[positions(live, wanted)[1]]
