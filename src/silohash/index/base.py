"""The interface of an index, and the manifest that ties an index to the model whose codes it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base import errors
from silohash.base.analysis import UNICODE, Analysis
from silohash.base.types import MODALITIES, Modality
from silohash.index.codes import Words, word_type

FORMAT_VERSION = 3

FIELDS = ("caption", "labels", "preview", "file")
"""The fields of an item that an index can store with its codes, and that a silo can release in addition to the item's id and
distance. ``file`` is the name of its picture file within the silo's archive. Further columns of the archive are stored and
released by their names."""

MOST_COLUMNS = 32
"""Most further columns of the archive that a silo releases."""

Keys: TypeAlias = npt.NDArray[np.int64]
"""Keys of items, ``(n,)``, at least 0. An index identifies each item by its key."""

Distances: TypeAlias = npt.NDArray[np.int32]
"""Distances in bits."""

Answer: TypeAlias = tuple[Keys, Distances, int]
"""Keys and distances of the items that answer a query, in order, and the number of ties left out."""

Allowed: TypeAlias = Keys | npt.NDArray[np.bool_]
"""A filter: the keys that a search may return, or a boolean mask over ``index.keys``."""


@dataclass(frozen=True)
class IndexManifest:
    """Describe the contents of an index.

    Attributes:
        model_digest: Digest of the model that computed the codes.
        bits: Code length.
        modality: The modality that was encoded.
        count: Number of live items.
        format_version: Version of the file format. Any other than ``FORMAT_VERSION`` is refused.
        silo: Name of the silo that holds the items.
        analysis: The analysis of the words that are stored with the codes, and of queries for them.
    """

    model_digest: str
    bits: int
    modality: Modality
    count: int = 0
    format_version: int = FORMAT_VERSION
    silo: str = ""
    analysis: Analysis = UNICODE

    def __post_init__(self) -> None:
        if self.format_version != FORMAT_VERSION:
            raise errors.OtherVersion(
                f"The index has format version {self.format_version}, but this silohash reads version "
                f"{FORMAT_VERSION}. Build the index again."
            )
        if self.modality not in MODALITIES:
            raise errors.WrongChoice(
                f'The index has the unknown modality "{self.modality}"; choose one of: {", ".join(MODALITIES)}.'
            )
        word_type(self.bits)

    def check_holder(self, silo: str, modality: Modality) -> None:
        """Check that the index belongs to a silo and holds codes of a modality.

        Raises:
            UserError: If it was built for another silo or modality.
        """
        if self.silo != silo:
            raise errors.IndexDiffers(
                f'The index was built for the silo "{self.silo}", not for "{silo}". Index "{silo}" again.'
            )
        if self.modality != modality:
            raise errors.IndexDiffers(
                f"The index holds {self.modality} codes instead of {modality} codes. "
                f'Index "{silo}" again, or give the files their former names.'
            )

    def check(self, model_digest: str, bits: int) -> None:
        """Check that codes can be compared with those in the index.

        Raises:
            UserError: If the codes come from a different model or have a different length.
        """
        if bits != self.bits:
            raise errors.BitsDiffer(
                f"The index holds codes of {self.bits} bits, but the query has {bits} bits. Use the model of the index."
            )
        if model_digest != self.model_digest:
            raise errors.ModelsDiffer(
                f"The index was built with model {self.model_digest[:12]} and the query was encoded with "
                f"{model_digest[:12]}; their codes cannot be compared. Use the model of the index, or build the index again."
            )


@dataclass(frozen=True)
class Neighbors:
    """Hold the nearest items of each query, ordered by (distance, key).

    Attributes:
        keys: ``(Q, k)`` int64. Filled up with -1 if fewer than k items can be returned.
        distances: ``(Q, k)`` int32, in bits. Filled up with -1 in the same places.
        ties_at_cut: ``(Q,)`` int64, the number of further items at the last returned distance.
    """

    keys: Keys
    distances: Distances
    ties_at_cut: npt.NDArray[np.int64]

    @classmethod
    def empty(cls, queries: int, k: int) -> Self:
        """Return a result that is filled up with -1, to be filled in."""
        shape = (queries, k)
        return cls(np.full(shape, -1, np.int64), np.full(shape, -1, np.int32), np.zeros(queries, np.int64))

    @classmethod
    def whole(cls, keys: Keys, distances: Distances) -> Self:
        """Return the result of one query of which no item was left out, from keys and distances ``(n,)``."""
        return cls(keys[None], distances[None], np.zeros(1, np.int64))

    def __repr__(self) -> str:
        """Return the numbers of queries and of items per query, in one line."""
        queries, k = self.keys.shape
        return f"Neighbors(the nearest {k:,} items of {queries:,} queries: keys, distances, ties_at_cut)"


class Index(Protocol):
    """Store codes under keys and search them by Hamming distance.

    Attributes:
        bits: Code length.
        exact: Whether a search returns exactly what a full scan would return.
    """

    bits: int
    exact: bool

    @property
    def keys(self) -> Keys:
        """Live keys, in ascending order."""
        ...

    def __len__(self) -> int:
        """Return the number of live items."""
        ...

    def add(self, keys: Keys, words: Words) -> None:
        """Add codes under keys. An existing key gets the new code.

        Args:
            keys: ``(n,)`` unique keys of at least 0.
            words: ``(n, W)`` packed codes.

        Raises:
            UserError: If keys or words do not have this form.
        """
        ...

    def remove(self, keys: Keys) -> int:
        """Remove keys, and return how many of them existed."""
        ...

    def search(self, words: Words, k: int, *, allowed: Allowed | None = None) -> Neighbors:
        """Return the k nearest items of each query, ordered by (distance, key), filled up with -1 if there are fewer.

        Args:
            words: ``(Q, W)`` packed codes.
            k: Number of items per query, at least 1.
            allowed: An optional filter: the keys that may be returned, or a boolean mask over ``keys``.

        Raises:
            UserError: If the codes have a different length, or k is less than 1.
        """
        ...

    def search_radius(self, words: Words, radius_bits: int, *, allowed: Allowed | None = None) -> list[Neighbors]:
        """Return all items within a distance of each query, at least 0, ordered by (distance, key).

        The other arguments are those of `search`. The arrays of each query's result have the shape ``(1, hits)``.
        """
        ...

    def search_with_ties(
        self, words: Words, k: int, *, allowed: Allowed | None = None, limit_bits: int | None = None
    ) -> tuple[Keys, Distances]:
        """Return the k nearest items of one query, and all further items at the distance of the last of them.

        Unless overridden, this takes a second search if items tie with the last. The arguments are those of `search`, with
        words ``(1, W)``. Items beyond ``limit_bits`` are left out.

        Returns:
            ``(n,)`` keys in any order, and ``(n,)`` int32 distances.
        """
        found = self.search(words, k, allowed=allowed)
        if found.ties_at_cut[0]:
            [found] = self.search_radius(words, int(found.distances[0, -1]), allowed=allowed)
        exists = found.keys[0] >= 0
        if limit_bits is not None:
            exists &= found.distances[0] <= limit_bits
        return found.keys[0][exists], found.distances[0][exists]


def check_keys(keys: Keys, count: int) -> Keys:
    """Return the keys of ``count`` codes as int64.

    Raises:
        UserError: If a key is negative or repeated, or the number of keys is not ``count``.
    """
    given = np.asarray(keys, np.int64)
    if given.shape != (count,):
        raise errors.WrongShape(
            f"There are {count} codes, but the keys have shape {given.shape}. Give one key per code."
        )
    if count and given.min() < 0:
        raise errors.OutOfRange(f"The key {given.min()} is negative. Use keys of at least 0.")
    if count > 1 and not (given[1:] > given[:-1]).all():
        ordered = np.sort(given)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.size:
            raise errors.RepeatedValue(f"The key {twice[0]} is given twice. Give each item its own key.")
    return given


def check_k(k: int) -> None:
    """Check that at least one neighbor is requested.

    Raises:
        UserError: If ``k`` is less than 1.
    """
    if k < 1:
        raise errors.OutOfRange(f"k = {k} does not request any neighbor. Use k of at least 1.")


def check_radius(radius_bits: int) -> None:
    """Check that the radius is not negative.

    Raises:
        UserError: If it is.
    """
    if radius_bits < 0:
        raise errors.OutOfRange(f"A radius of {radius_bits} bits is negative. Use a radius of at least 0 bits.")


def positions(ordered: Keys, keys: Keys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Look up keys in a sorted array.

    Args:
        ordered: Different keys in ascending order.
        keys: ``(n,)`` keys to look up.

    Returns:
        ``(n,)`` int64 insertion positions, and ``(n,)`` bool, whether each key was found at its position.
    """
    if not len(ordered):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    # An index from which nothing was removed has keys without gaps.
    first, last = int(ordered[0]), int(ordered[-1])
    if last - first == len(ordered) - 1:
        return np.minimum(np.maximum(keys - first, 0), len(ordered)), (keys >= first) & (keys <= last)
    places = np.searchsorted(ordered, keys)
    return places, ordered[np.minimum(places, len(ordered) - 1)] == keys


def distinct(keys: Keys) -> Keys:
    """Return each key once, in ascending order. `numpy.unique` does the same, and loads masked arrays for it.

    Example:
        >>> distinct(np.array([7, 2, 7]))
        array([2, 7])
    """
    ordered = np.sort(keys)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def allowed_keys(allowed: Allowed, live: Keys) -> Keys:
    """Return the live keys that pass a filter, in ascending order.

    Raises:
        UserError: If a mask does not have one element per live key.
    """
    given = np.asarray(allowed)
    if given.dtype == np.bool_:
        if given.shape != live.shape:
            raise errors.WrongShape(
                f"The filter has shape {given.shape}, but the index holds {len(live)} items. Give one bool per item."
            )
        return np.asarray(live[given], np.int64)
    wanted = distinct(given.astype(np.int64))
    return wanted[positions(live, wanted)[1]]


def chosen_keys(allowed: Allowed | None, index: Index) -> Keys | None:
    """Return the keys of a filter for an index that need not check whether they exist; None if all items pass.

    Raises:
        UserError: If a mask does not have one element per item.
    """
    if allowed is None:
        return None
    given = np.asarray(allowed)
    if given.dtype != np.bool_:
        return distinct(given.astype(np.int64))
    if given.all() and given.shape == (len(index),):
        return None
    return allowed_keys(given.astype(np.bool_), index.keys)


def ordered(keys: npt.ArrayLike, distances: npt.ArrayLike) -> tuple[Keys, Distances]:
    """Return the keys and distances of some items, ``(n,)`` each, ordered by (distance, key)."""
    some, measured = np.asarray(keys, np.int64), np.asarray(distances, np.int32)
    order = np.lexsort((some, measured))
    return some[order], measured[order]


def ordered_pairs(pairs: Sequence[tuple[int, int]]) -> tuple[Keys, Distances]:
    """Return the keys and distances of (key, distance) pairs, ordered by (distance, key)."""
    return ordered(*np.array(pairs, np.int64).reshape(-1, 2).T)


def inside(keys: Keys, distances: Distances, limit_bits: int) -> tuple[Keys, Distances]:
    """Return the keys and distances of the items within a distance."""
    near = distances <= limit_bits
    return (keys, distances) if near.all() else (keys[near], distances[near])


def cut(keys: Keys, distances: Distances, k: int) -> Answer:
    """Return the first k of some ordered items, and the number of further items at the last of these distances."""
    left_out = int(np.count_nonzero(distances[k:] == distances[k - 1])) if len(keys) > k else 0
    return keys[:k], distances[:k], left_out


def first(keys: Keys, distances: Distances, k: int) -> Answer:
    """Return the first k of some items in any order, ordered by (distance, key), and the number of ties left out.

    Items at the last distance are not sorted, because they may be many.
    """
    if len(keys) <= k:
        return *ordered(keys, distances), 0
    last = np.partition(distances, k - 1)[k - 1]
    near, tied = np.flatnonzero(distances < last), np.flatnonzero(distances == last)
    missing = k - len(near)
    rows = np.concatenate([near, tied[np.argpartition(keys[tied], missing - 1)[:missing]]])
    return *ordered(keys[rows], distances[rows]), len(tied) - missing


def merged_answers(answers: Sequence[Answer], k: int) -> Neighbors:
    """Return the answers to several queries, of at most k items each, as one result."""
    merged = Neighbors.empty(len(answers), k)
    for row, (keys, distances, left_out) in enumerate(answers):
        merged.keys[row, : len(keys)], merged.distances[row, : len(keys)] = keys, distances
        merged.ties_at_cut[row] = left_out
    return merged
