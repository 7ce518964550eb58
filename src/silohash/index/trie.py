"""An exact index that searches a trie of codes, which is the fastest method for some millions.

Codes that a model has learned are unevenly spread, and many are equal. A trie over their bits (`trie_kernels`) finds the
nearest ones after a look at a small share of them. Evenly spread codes would cost it more than a scan, so it gives up after
a tenth of the cost of a scan, and the codes are scanned. They are stored once, in the order of the trie, in the blocks
that `kernels` scans. Results equal those of `FlatIndex`.

New items go to a flat index, the tail, which is searched first. Removed items are skipped. When both are a share of the
items, the trie is built again. Fewer than `TRIE_ITEMS` items are all in the tail, because a scan takes as little time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.index import base, kernels, trie_kernels
from silohash.index.codes import CodeBytes, Words, byte_count, from_bytes, to_bytes
from silohash.index.flat import GATHER_SHARE, QUERIES_AT_ONCE, Alive, FlatIndex, filled_blocks, read_slots
from silohash.index.small import TRIE_ITEMS

CHANGED_SHARE = 0.03
"""The trie is built again when the tail and the removed items are more than this share of its items."""

BUDGET_SHARE, BATCH_BUDGET_SHARE = 0.1, 0.04
"""Cost of a search after which the codes are scanned, as a share of the cost of a scan for one query. The scan for several
queries together costs less per query."""

LEAF_CODES = 256
"""Most codes of a leaf, unless they are equal."""

Found: TypeAlias = tuple[base.Keys, base.Distances]
Integers: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Trie:
    """Codes in the order of a trie.

    Attributes:
        keys: ``(n,)`` their keys, in ascending order.
        rows: ``(n,)`` for each slot, the position of its key.
        blocks: The codes in their slots.
        nodes: The nodes of `trie_kernels.build`.
    """

    keys: base.Keys
    rows: Numbers
    blocks: CodeBytes
    nodes: trie_kernels.Nodes

    @classmethod
    def built(cls, keys: base.Keys, packed: CodeBytes) -> Trie:
        """Return the trie of codes ``(n, bytes)``, at least one. Their keys ascend."""
        words, rows = _as_words(packed), np.arange(len(keys), dtype=np.int32)
        nodes = trie_kernels.build(words, rows, LEAF_CODES)
        return cls(keys, rows, filled_blocks(words.view(np.uint8)[:, : packed.shape[1]]), nodes)

    def nearest(
        self, queries: CodeBytes, k: int, alive: Alive | None, states: Integers, counts: Integers
    ) -> list[tuple[Integers, base.Distances]]:
        """Return the slots and distances of the nearest codes of each query ``(Q, bytes)``, with all ties.

        ``alive`` has 0 for each row to skip. ``states`` and ``counts`` are as in `kernels.narrow_all`.
        """
        scratch = kernels.aligned_empty((kernels.BLOCK_CODES,), np.uint16 if queries.shape[1] > 31 else np.uint8)
        codes, size, before = (self.blocks, (alive, self.rows)), len(self.keys), counts.copy()
        budget = int((BUDGET_SHARE if len(queries) == 1 else BATCH_BUDGET_SHARE) * size)
        asked, leaves, missed = _as_words(queries), [], []
        for q, query in enumerate(queries):
            work = scratch, states[q], counts[q]
            some, done = trie_kernels.search(self.nodes, codes, asked[q], query, k, budget, work)
            leaves.append(some)
            missed += [] if done else [q]
        if missed:
            scanned, narrowed, counted = queries[missed], states[missed], counts[missed]
            lowest = kernels.narrow_all(codes, size, scanned, k, scratch, narrowed, counted)
            states[missed], counts[missed] = narrowed, counted
        found = []
        for q, query in enumerate(queries):
            cut = states[q, 2]
            within = scratch, cut, int((counts[q] - before[q])[: cut + 1].sum())
            if q in missed:
                found.append(kernels.within_cut(codes, size, query, *within, lowest[missed.index(q)]))
            else:
                found.append(trie_kernels.within_cut(self.nodes, codes, leaves[q], query, *within))
        return found


class TrieIndex(base.Index):
    """Search codes in memory exactly. An item takes about five bytes more than in a `FlatIndex`.

    It takes another four from then on if codes are read by their keys, or a filter passes few items.
    """

    exact = True

    def __init__(self, bits: int, *, capacity: int = 0, threads: int = 1) -> None:
        """Create an empty index. The arguments are those of `FlatIndex`.

        The trie is built when the index holds ``capacity`` items. Until then, a batch is divided among ``threads`` threads.

        Raises:
            UserError: If ``bits`` or ``threads`` is out of range.
        """
        self._tail = FlatIndex(bits, capacity=capacity, threads=threads)
        self.bits, self._capacity = bits, capacity
        blocks = filled_blocks(np.empty((0, byte_count(bits)), np.uint8))
        self._trie = Trie(np.empty(0, np.int64), np.empty(0, np.int32), blocks, np.empty((0, 0), np.uint64))
        self._alive: Alive | None = None
        self._removed = 0
        self._slots: Numbers | None = None
        self._live: base.Keys | None = None

    def __len__(self) -> int:
        return len(self._trie.keys) - self._removed + len(self._tail)

    @property
    def keys(self) -> base.Keys:
        """Live keys, in ascending order."""
        if self._live is None:
            built = self._trie.keys if self._alive is None else self._trie.keys[self._alive != 0]
            both = np.concatenate([built, self._tail.keys]) if len(self._tail) else built
            self._live = both if (both[1:] > both[:-1]).all() else np.sort(both)
        return self._live

    @property
    def memory_bytes(self) -> int:
        """Memory used by codes, keys, the trie and tombstones, in bytes."""
        arrays = (*vars(self._trie).values(), self._alive, self._slots)
        return self._tail.memory_bytes + sum(int(array.nbytes) for array in arrays if array is not None)

    def copy(self) -> TrieIndex:
        """Return a copy, which can be changed while this index is searched."""
        copied = TrieIndex.__new__(TrieIndex)
        copied.__dict__.update(self.__dict__, _tail=self._tail.copy())
        return copied  # all other values are replaced and never changed

    def words(self, keys: base.Keys) -> Words:
        """Return the codes under live keys, ``(n, W)``.

        Raises:
            UserError: If a key does not exist.
        """
        given = np.asarray(keys, np.int64)
        rows, there = self._rows_of(given)
        packed = np.empty((len(given), byte_count(self.bits)), np.uint8)
        if not there.all():
            packed[~there] = to_bytes(self._tail.words(given[~there]), self.bits)
        if self._slots is None:
            slots = np.empty(len(self._trie.keys), np.int32)
            slots[self._trie.rows] = np.arange(len(slots), dtype=np.int32)
            self._slots = slots
        packed[there] = read_slots(self._trie.blocks, self._slots[rows[there]])
        return from_bytes(packed, self.bits)

    def add(self, keys: base.Keys, words: Words) -> None:
        """Add codes under keys. See `Index.add`."""
        self._tail.add(keys, words)
        self._drop(np.asarray(keys, np.int64))
        self._follow()

    def remove(self, keys: base.Keys) -> int:
        """Remove keys, and return how many of them existed."""
        given = base.distinct(np.asarray(keys, np.int64))
        removed = self._tail.remove(given) + self._drop(given)
        self._follow()
        return removed

    def search(self, words: Words, k: int, *, allowed: base.Allowed | None = None) -> base.Neighbors:
        """Return the k nearest items of each query. See `Index.search`."""
        if not len(self._trie.keys):
            return self._tail.search(words, k, allowed=allowed)
        base.check_k(k)
        parts = [words[start : start + QUERIES_AT_ONCE] for start in range(0, len(words), QUERIES_AT_ONCE)] or [words]
        found = [each for some in parts for each in self._nearest(some, k, self.bits, allowed)]
        return base.merged_answers([base.first(*each, k) for each in found], k)

    def search_radius(
        self, words: Words, radius_bits: int, *, allowed: base.Allowed | None = None
    ) -> list[base.Neighbors]:
        """Return all items within a distance of each query. See `Index.search_radius`."""
        base.check_radius(radius_bits)
        found = self._nearest(words, len(self) + 1, radius_bits, allowed)
        return [base.Neighbors.whole(*base.ordered(*each)) for each in found]

    def search_with_ties(
        self, words: Words, k: int, *, allowed: base.Allowed | None = None, limit_bits: int | None = None
    ) -> Found:
        """Return the k nearest items of one query, and all ties with the last. See `Index.search_with_ties`."""
        base.check_k(k)
        [found] = self._nearest(words, k, self.bits if limit_bits is None else limit_bits, allowed)
        return found

    def _nearest(self, words: Words, k: int, limit_bits: int, allowed: base.Allowed | None) -> list[Found]:
        """Return the k nearest items of each query within a limit, with all ties, in any order."""
        queries, limit = np.ascontiguousarray(to_bytes(words, self.bits)), min(limit_bits, self.bits)
        tail, trie, alive, others = self._tail, self._trie, self._alive, allowed
        few = not len(self._trie.keys)
        if allowed is not None and not few:
            alive, others = self._passing(trie, allowed)
            if alive is None:
                few, tail = True, FlatIndex(self.bits)
                tail.add(others, self.words(others))
                others = None
        search = partial(tail.search_with_ties, k=k, allowed=others, limit_bits=limit)
        in_tail = [search(query[None]) for query in words] if few or len(tail) else []
        if few:
            return in_tail
        states, counts = np.zeros((len(words), 3), np.int64), np.zeros((len(words), 8 * queries.shape[1] + 2), np.int64)
        states[:, 2] = limit
        for state, count, (_, distances) in zip(states, counts, in_tail, strict=False):
            count += np.bincount(distances, minlength=len(count))
            state[2] = min(limit, distances.max()) if len(distances) >= k else limit
            state[1] = count[: state[2]].sum()
        found = trie.nearest(queries, k, alive, states, counts)
        near = [(trie.keys[trie.rows[slots]], distances) for slots, distances in found]
        for q, more in enumerate(in_tail):
            keys, distances = base.inside(*more, states[q, 2])
            near[q] = np.concatenate([near[q][0], keys]), np.concatenate([near[q][1], distances])
        return near

    def _passing(self, trie: Trie, allowed: base.Allowed) -> tuple[Alive | None, base.Keys]:
        """Return which rows of the trie pass a filter, and the other keys that do; None and all keys if they are few."""
        given = np.asarray(allowed)
        unchanged = self._alive is None and not len(self._tail)
        is_mask = given.dtype == np.bool_ and given.shape == trie.keys.shape
        if unchanged and is_mask and np.count_nonzero(given) >= GATHER_SHARE * len(given):
            return np.ascontiguousarray(given).view(np.uint8), trie.keys[:0]
        chosen = base.allowed_keys(allowed, self.keys)
        if len(chosen) < GATHER_SHARE * len(self):
            return None, chosen
        rows, there = self._rows_of(chosen)
        alive = np.zeros(len(trie.keys), np.uint8)
        alive[rows[there]] = 1
        return alive, chosen[~there]

    def _rows_of(self, keys: base.Keys) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the rows of keys in the trie, and whether each is there."""
        rows, there = base.positions(self._trie.keys, keys)
        if self._alive is not None:
            there[there] = self._alive[rows[there]] != 0
        return rows, there

    def _drop(self, keys: base.Keys) -> int:
        """Mark keys of the trie as removed, and return how many of them were there."""
        rows, there = self._rows_of(keys)
        if there.any():
            alive = np.ones(len(self._trie.keys), np.uint8) if self._alive is None else self._alive.copy()
            alive[rows[there]] = 0
            self._alive = alive
            self._removed += int(np.count_nonzero(there))
        return int(np.count_nonzero(there))

    def _follow(self) -> None:
        """Build the trie again if much has changed."""
        self._live = None
        least = 1 if len(self._trie.keys) else max(TRIE_ITEMS, self._capacity)
        if len(self) >= least and len(self._tail) + self._removed > CHANGED_SHARE * len(self._trie.keys):
            self._trie = Trie.built(self.keys, to_bytes(self.words(self.keys), self.bits))
            self._tail = FlatIndex(self.bits)
            self._alive, self._removed, self._slots, self._live = None, 0, None, None


def _as_words(packed: CodeBytes) -> npt.NDArray[np.uint64]:
    """Return codes ``(n, bytes)`` as words, ``(n, W)``."""
    words = np.zeros((len(packed), -(-packed.shape[1] // 8)), np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    return words
