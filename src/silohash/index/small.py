"""An exact index for few items, computed with NumPy alone.

Loading the compiled kernels of `FlatIndex` takes longer than a search among few items, and compiling them takes seconds when
silohash has just been installed. Results equal those of `FlatIndex`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silohash.base.errors import UnknownItem
from silohash.index import base
from silohash.index.codes import Words, check_words, word_count, word_type

SMALL_ITEMS = 100_000
"""Indexes of at most this many items are searched with NumPy."""

SMALL_ITEMS_IF_PREPARED = 10_000
"""The same number for a process that answers many queries and has loaded the kernels before the first."""

TRIE_ITEMS = 1_000_000
"""Indexes of at least this many items are searched with a trie by a process that answers many queries."""


class SmallIndex:
    """Codes in memory, in ascending order of their keys.

    Example:
        >>> from silohash.index.codes import pack
        >>> index = SmallIndex(8)
        >>> index.add(np.array([7, 9]), pack([[1] * 8, [-1] * 8]))
        >>> index.search(pack([[1] * 7 + [-1]]), 1).keys
        array([[7]])
    """

    exact = True

    def __init__(self, bits: int) -> None:
        """Create an empty index for codes of ``bits`` bits, from 8 to 256."""
        self.bits = bits
        self._keys: base.Keys = np.empty(0, np.int64)
        self._words: Words = np.empty((0, word_count(bits)), word_type(bits))

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> base.Keys:
        """Live keys, in ascending order."""
        return self._keys

    def copy(self) -> SmallIndex:
        """Return a copy, which can be changed while this index is searched."""
        copied = SmallIndex(self.bits)
        copied._keys, copied._words = self._keys, self._words  # a change replaces both arrays
        return copied

    def words(self, keys: base.Keys) -> Words:
        """Return the codes under live keys, ``(n, W)``.

        Raises:
            UserError: If a key does not exist.
        """
        places, there = base.positions(self._keys, keys)
        if not there.all():
            raise UnknownItem(f"Key {keys[~there][0]} is not in the index. It may have been removed.")
        return self._words[places]

    def add(self, keys: base.Keys, words: Words) -> None:
        """Add codes under keys. See `Index.add`."""
        checked = check_words(words, self.bits)
        given = base.check_keys(keys, len(checked))
        self.remove(given)
        both = np.concatenate([self._keys, given])
        order = np.argsort(both, kind="stable")
        self._keys, self._words = both[order], np.concatenate([self._words, checked])[order]

    def remove(self, keys: base.Keys) -> int:
        """Remove keys, and return how many of them existed."""
        places, there = base.positions(self._keys, base.distinct(np.asarray(keys, np.int64)))
        self._keys = np.delete(self._keys, places[there])
        self._words = np.delete(self._words, places[there], axis=0)
        return int(np.count_nonzero(there))

    def search(self, words: Words, k: int, *, allowed: base.Allowed | None = None) -> base.Neighbors:
        """Return the k nearest items of each query. See `Index.search`."""
        base.check_k(k)
        queries = check_words(words, self.bits)
        keys, codes = self._searched(allowed)
        answer = base.Neighbors.empty(len(queries), k)
        depth = min(k, len(keys))
        for row in range(len(queries) if depth else 0):
            distances = _distances(codes, queries[row])
            order = np.argsort(distances, kind="stable")[:depth]
            answer.keys[row, :depth], answer.distances[row, :depth] = keys[order], distances[order]
            answer.ties_at_cut[row] = np.count_nonzero(distances <= distances[order[-1]]) - depth
        return answer

    def search_radius(
        self, words: Words, radius_bits: int, *, allowed: base.Allowed | None = None
    ) -> list[base.Neighbors]:
        """Return all items within a distance of each query. See `Index.search_radius`."""
        base.check_radius(radius_bits)
        keys, codes = self._searched(allowed)
        answers = []
        for query in check_words(words, self.bits):
            distances = _distances(codes, query)
            hits = np.flatnonzero(distances <= radius_bits)
            hits = hits[np.argsort(distances[hits], kind="stable")]
            answers.append(base.Neighbors.whole(keys[hits], distances[hits].astype(np.int32)))
        return answers

    def search_with_ties(
        self, words: Words, k: int, *, allowed: base.Allowed | None = None, limit_bits: int | None = None
    ) -> tuple[base.Keys, base.Distances]:
        """Return the k nearest items of one query, and all ties with the last. See `Index.search_with_ties`."""
        base.check_k(k)
        [query] = check_words(words, self.bits)
        keys, codes = self._searched(allowed)
        distances = _distances(codes, query)
        limit = self.bits if limit_bits is None else limit_bits
        if k < len(keys):
            limit = min(limit, int(np.partition(distances, k - 1)[k - 1]))
        return base.inside(keys, distances.astype(np.int32), limit)

    def _searched(self, allowed: base.Allowed | None) -> tuple[base.Keys, Words]:
        """Return the keys and codes that pass a filter."""
        if allowed is None:
            return self._keys, self._words
        chosen = base.allowed_keys(allowed, self._keys)
        return chosen, self._words[base.positions(self._keys, chosen)[0]]


def _distances(codes: Words, query: Words) -> npt.NDArray[np.uint16]:
    """Return the distances in bits between codes ``(n, W)`` and a query ``(W,)``, ``(n,)``."""
    differing = np.bitwise_count(codes ^ query)
    # The sum over a single word would take longer than the rest.
    return np.asarray(differing[:, 0] if len(query) == 1 else differing.sum(axis=1), np.uint16)
