"""The same exact index, implemented with faiss.

It serves machines without numba, and it is the independent reference in the tests. faiss breaks ties arbitrarily, so a
search first requests the distance of the k-th item and then all items within that distance. The results equal those of
`FlatIndex`, at several times its cost. Codes are padded with zero bytes to a multiple of 32 bits, because faiss has no
fast path for shorter codes.
"""

from typing import Any

import faiss
import numpy as np

from silohash.index import base
from silohash.index.codes import CodeBytes, Words, byte_count, from_bytes, to_bytes, word_type

Selector = Any


class FaissIndex(base.Index):
    """Index codes in a faiss ``IndexBinaryIDMap2`` over ``IndexBinaryFlat``."""

    exact = True

    def __init__(self, bits: int, *, capacity: int = 0, threads: int = 1) -> None:
        """Create an empty index for codes of ``bits`` bits. faiss makes no use of the other arguments."""
        word_type(bits)
        self.bits = bits
        self._padded_bytes = 4 * -(-bits // 32)
        self._index: Any = faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(8 * self._padded_bytes))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def keys(self) -> base.Keys:
        """Live keys, in ascending order."""
        return np.sort(faiss.vector_to_array(self._index.id_map).astype(np.int64))

    def add(self, keys: base.Keys, words: Words) -> None:
        """Add codes under keys. An existing key gets the new code."""
        padded = self._pad(words)
        given = base.check_keys(keys, len(padded))
        self.remove(given)
        if len(given):
            self._index.add_with_ids(padded, given)

    def words(self, keys: base.Keys) -> Words:
        """Return the codes under live keys, ``(n, W)``."""
        padded = [self._index.reconstruct(key) for key in np.asarray(keys, np.int64).tolist()]
        return from_bytes(
            np.array(padded, np.uint8).reshape(-1, self._padded_bytes)[:, : byte_count(self.bits)], self.bits
        )

    def remove(self, keys: base.Keys) -> int:
        """Remove keys, and return how many of them existed."""
        given = np.unique(np.asarray(keys, np.int64))
        there = given[base.positions(self.keys, given)[1]] if len(self) else given[:0]
        return int(self._index.remove_ids(there)) if there.size else 0

    def search(self, words: Words, k: int, *, allowed: base.Allowed | None = None) -> base.Neighbors:
        """Return the k nearest items of each query. See `Index.search`."""
        base.check_k(k)
        padded = self._pad(words)
        selector, live = self._selected(allowed)
        depth = min(k, live)
        if not depth:
            return base.Neighbors.empty(len(padded), k)
        answers = []
        for row in padded:
            query = row[None]
            farthest = int(self._index.search(query, depth, params=selector)[0][0, -1])
            answers.append(base.cut(*self._within(query, farthest, selector), depth))
        return base.merged_answers(answers, k)

    def search_radius(
        self, words: Words, radius_bits: int, *, allowed: base.Allowed | None = None
    ) -> list[base.Neighbors]:
        """Return all items within a distance of each query. See `Index.search_radius`."""
        base.check_radius(radius_bits)
        padded = self._pad(words)
        selector, live = self._selected(allowed)
        if not live:
            return [base.Neighbors.empty(1, 0) for _ in padded]
        return [base.Neighbors.whole(*self._within(query[None], radius_bits, selector)) for query in padded]

    def _pad(self, words: Words) -> CodeBytes:
        packed = to_bytes(words, self.bits)
        padded = np.zeros((len(packed), self._padded_bytes), np.uint8)
        padded[:, : packed.shape[1]] = packed
        return padded

    def _selected(self, allowed: base.Allowed | None) -> tuple[Selector, int]:
        """Return the faiss form of a filter (None for no filter), and how many items pass it."""
        if allowed is None:
            return None, len(self)
        chosen = base.allowed_keys(allowed, self.keys)
        parameters: Any = faiss.SearchParameters
        return parameters(sel=faiss.IDSelectorBatch(chosen)), len(chosen)

    def _within(self, query: CodeBytes, radius_bits: int, selector: Selector) -> tuple[base.Keys, base.Distances]:
        # faiss leaves out the items at the radius itself.
        _, distances, keys = self._index.range_search(query, radius_bits + 1, params=selector)
        return base.ordered(keys, distances)
