"""An exact index that searches a trie of codes, which is the fastest method for more than about half a million.

Codes that a model has learned are unevenly spread, and many are equal. A trie over their bits (`trie_kernels`) finds the
nearest ones after a look at a small share of them. Evenly spread codes would cost it more than a scan, so it gives up after
a tenth of the cost of a scan, and the codes are scanned. They are stored once, in the order of the trie, in the blocks
that `kernels` scans. Results equal those of `FlatIndex`.

New items go to a flat index, the tail, which is searched first. Removed items are skipped. When both are a share of the
items, the trie is built again. Fewer than `TRIE_ITEMS` items are all in the tail, because a scan takes as little time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.index import base, kernels, trie_kernels
from silohash.index.codes import CodeBytes, Words, byte_count, from_bytes, to_bytes
from silohash.index.flat import QUERIES_AT_ONCE, Alive, FlatIndex, filled_blocks, read_slots
from silohash.index.small import TRIE_ITEMS

CHANGED_SHARE = 0.03
"""The trie is built again when the tail and the removed items are more than this share of its items."""

FEW_SHARE = 0.02
"""If a filter passes a smaller share than this, the codes that pass are copied and scanned alone."""

BUDGET_SHARE, BATCH_BUDGET_SHARE = 0.1, 0.04
"""Cost of a search after which the codes are scanned, as a share of the cost of a scan for one query. The scan for several
queries together costs less per query."""

MANY_ITEMS = 3_000_000
"""From this number of items on, a leaf has up to 512 codes, otherwise 256."""

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
        nodes = trie_kernels.build(words, rows, 512 if len(keys) >= MANY_ITEMS else 256)
        return cls(keys, rows, filled_blocks(words.view(np.uint8)[:, : packed.shape[1]]), nodes)

    def slots(self) -> Numbers:
        """Return for each key its slot, ``(n,)``."""
        slots = np.empty(len(self.rows), np.int32)
        slots[self.rows] = np.arange(len(slots), dtype=np.int32)
        return slots

    def nearest(
        self, queries: CodeBytes, k: int, alive: Alive | None, states: Integers, counts: Integers
    ) -> list[tuple[Numbers, Numbers]]:
        """Return the rows and distances of the nearest codes of each query ``(Q, bytes)``, with all ties.

        ``alive`` has 0 for each row to skip. ``states`` and ``counts`` are as in `kernels.narrow_all`.
        """
        scratch = kernels.aligned_empty((kernels.BLOCK_CODES,), np.uint16 if 8 * queries.shape[1] > 255 else np.uint8)
        budget = int((BUDGET_SHARE if len(queries) == 1 else BATCH_BUDGET_SHARE) * len(self.keys))
        asked, found, missed = _as_words(queries), [], []
        for q in range(len(queries)):
            done, rows, distances = trie_kernels.search(
                self.nodes,
                self.blocks,
                asked[q],
                queries[q],
                k,
                alive,
                self.rows,
                budget,
                scratch,
                states[q],
                counts[q],
            )
            found.append((rows, distances))
            if not done:
                missed.append(q)
        if missed:
            some, narrowed, counted = queries[missed], states[missed], counts[missed]
            before = counted.copy()
            slots = self.blocks, len(self.keys)
            lowest = kernels.narrow_all(*slots, some, k, alive, self.rows, scratch, narrowed, counted)
            states[missed] = narrowed
            for place, q in enumerate(missed):
                cut = narrowed[place, 2]
                total = int((counted[place] - before[place])[: cut + 1].sum())
                found[q] = np.empty(total, np.int32), np.empty(total, np.int32)
                kernels.within_cut(*slots, some[place], alive, self.rows, scratch, cut, lowest[place], *found[q])
                found[q] = self.rows[found[q][0]], found[q][1]
        return found


class TrieIndex(base.Index):
    """Search codes in memory exactly. An item takes about five bytes more than in a `FlatIndex`.

    It takes another four from then on if codes are read by their keys, or a filter passes few items.

    Example:
        >>> from silohash.index.codes import pack
        >>> index = TrieIndex(8)
        >>> index.add(np.array([7, 9]), pack([[1] * 8, [-1] * 8]))
        >>> index.search(pack([[1] * 7 + [-1]]), 1).keys
        array([[7]])
    """

    exact = True

    def __init__(self, bits: int, *, capacity: int = 0, threads: int = 1) -> None:
        """Create an empty index for codes of ``bits`` bits, from 8 to 256.

        The trie is built when the index holds ``capacity`` items, for which memory is reserved. The queries of a batch are
        divided among ``threads`` threads.

        Raises:
            UserError: If ``bits`` or ``threads`` is out of range.
        """
        self._tail = FlatIndex(bits, capacity=capacity, threads=threads)
        self.bits = bits
        self.threads = threads
        self._capacity = capacity
        self._trie: Trie | None = None
        self._alive: Alive | None = None
        self._removed = 0
        self._slots: Numbers | None = None
        self._live: base.Keys | None = None

    def __len__(self) -> int:
        return self._built - self._removed + len(self._tail)

    @property
    def keys(self) -> base.Keys:
        """Live keys, in ascending order."""
        if self._trie is None:
            return self._tail.keys
        if self._live is None:
            built = self._trie.keys if self._alive is None else self._trie.keys[self._alive != 0]
            both = np.concatenate([built, self._tail.keys]) if len(self._tail) else built
            self._live = both if (both[1:] > both[:-1]).all() else np.sort(both)
        return self._live

    @property
    def memory_bytes(self) -> int:
        """Memory used by codes, keys, the trie and tombstones, in bytes."""
        built = () if self._trie is None else (self._trie.keys, self._trie.rows, self._trie.blocks, self._trie.nodes)
        arrays = (*built, self._alive, self._slots)
        return self._tail.memory_bytes + sum(array.nbytes for array in arrays if array is not None)

    def copy(self) -> TrieIndex:
        """Return a copy, which can be changed while this index is searched."""
        copied = TrieIndex.__new__(TrieIndex)
        copied.__dict__.update(
            self.__dict__, _tail=self._tail.copy()
        )  # all other values are replaced and never changed
        return copied

    def words(self, keys: base.Keys) -> Words:
        """Return the codes under live keys, ``(n, W)``.

        Raises:
            UserError: If a key does not exist.
        """
        if self._trie is None:
            return self._tail.words(keys)
        given = np.asarray(keys, np.int64)
        rows, there = self._rows_of(given)
        packed = np.empty((len(given), byte_count(self.bits)), np.uint8)
        if not there.all():
            packed[~there] = to_bytes(self._tail.words(given[~there]), self.bits)
        if self._slots is None:
            self._slots = self._trie.slots()
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
        if self._trie is None:
            return self._tail.search(words, k, allowed=allowed)
        base.check_k(k)
        step = max(1, min(QUERIES_AT_ONCE, -(-len(words) // self.threads)))
        parts = [words[start : start + step] for start in range(0, len(words), step)] or [words]
        search = partial(self._nearest, k=k, limit_bits=self.bits, allowed=allowed)
        if self.threads == 1 or len(parts) == 1:
            found = [search(some) for some in parts]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(search, parts))
        return base.merged_answers([base.first(*each, k) for some in found for each in some], k)

    def search_radius(
        self, words: Words, radius_bits: int, *, allowed: base.Allowed | None = None
    ) -> list[base.Neighbors]:
        """Return all items within a distance of each query. See `Index.search_radius`."""
        if self._trie is None:
            return self._tail.search_radius(words, radius_bits, allowed=allowed)
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

    @property
    def _built(self) -> int:
        return 0 if self._trie is None else len(self._trie.keys)

    def _nearest(self, words: Words, k: int, limit_bits: int, allowed: base.Allowed | None) -> list[Found]:
        """Return the k nearest items of each query within a limit, with all ties, in any order."""
        queries, limit = np.ascontiguousarray(to_bytes(words, self.bits)), min(limit_bits, self.bits)
        tail, trie, alive, others = self._tail, self._trie, self._alive, allowed
        if trie is not None and allowed is not None:
            alive, others = self._passing(trie, allowed)
            if alive is None:
                trie, tail = None, FlatIndex(self.bits)
                tail.add(others, self.words(others))
        search = partial(tail.search_with_ties, k=k, allowed=None if trie is None else others, limit_bits=limit)
        in_tail = [search(query[None]) for query in words] if trie is None or len(tail) else []
        if trie is None:
            return in_tail
        states, counts = np.zeros((len(words), 3), np.int64), np.zeros((len(words), 8 * queries.shape[1] + 2), np.int64)
        states[:, 2] = limit
        for state, count, (_, distances) in zip(states, counts, in_tail, strict=False):
            count += np.bincount(distances, minlength=len(count))
            state[2] = min(limit, distances.max()) if len(distances) >= k else limit
            state[1] = count[: state[2]].sum()
        found = trie.nearest(queries, k, alive, states, counts)
        near = [(trie.keys[rows], distances) for rows, distances in found]
        for q, more in enumerate(in_tail):
            keys, distances = base.inside(*more, states[q, 2])
            near[q] = np.concatenate([near[q][0], keys]), np.concatenate([near[q][1], distances])
        return near

    def _passing(self, trie: Trie, allowed: base.Allowed) -> tuple[Alive | None, base.Keys]:
        """Return which rows of the trie pass a filter, and the other keys that do; None and all keys if they are few."""
        given = np.asarray(allowed)
        unchanged = self._alive is None and not len(self._tail)
        is_mask = given.dtype == np.bool_ and given.shape == trie.keys.shape
        if unchanged and is_mask and np.count_nonzero(given) >= FEW_SHARE * len(given):
            return np.ascontiguousarray(given).view(np.uint8), trie.keys[:0]
        chosen = base.allowed_keys(allowed, self.keys)
        if len(chosen) < FEW_SHARE * len(self):
            return None, chosen
        rows, there = self._rows_of(chosen)
        alive = np.zeros(len(trie.keys), np.uint8)
        alive[rows[there]] = 1
        return alive, chosen[~there]

    def _rows_of(self, keys: base.Keys) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the rows of keys in the trie, and whether each is there."""
        if self._trie is None:
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
        rows, there = base.positions(self._trie.keys, keys)
        if self._alive is not None:
            there[there] = self._alive[rows[there]] != 0
        return rows, there

    def _drop(self, keys: base.Keys) -> int:
        """Mark keys of the trie as removed, and return how many of them were there."""
        rows, there = self._rows_of(keys)
        if there.any():
            alive = np.ones(self._built, np.uint8) if self._alive is None else self._alive.copy()
            alive[rows[there]] = 0
            self._alive = alive
            self._removed += int(np.count_nonzero(there))
        return int(np.count_nonzero(there))

    def _follow(self) -> None:
        """Build the trie again if much has changed."""
        self._live = None
        least = max(TRIE_ITEMS, self._capacity) if self._trie is None else 1
        if len(self) >= least and len(self._tail) + self._removed > CHANGED_SHARE * self._built:
            self._trie = Trie.built(self.keys, to_bytes(self.words(self.keys), self.bits))
            self._tail = FlatIndex(self.bits, threads=self.threads)
            self._alive, self._removed, self._slots, self._live = None, 0, None, None


def _as_words(packed: CodeBytes) -> npt.NDArray[np.uint64]:
    """Return codes ``(n, bytes)`` as words, ``(n, W)``."""
    words = np.zeros((len(packed), -(-packed.shape[1] // 8)), np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    return words
