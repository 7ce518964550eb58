"""An exact index that scans every code, which is the fastest method for up to a hundred million codes.

Codes are stored in slots in ascending order of their keys, in the blocks that `kernels` scans. A removed item remains as
a tombstone that the scan skips. When a quarter of the slots are tombstones, the index is compacted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from silohash.base.errors import OutOfRange, UnknownItem
from silohash.index import base, kernels
from silohash.index.codes import CodeBytes, Words, byte_count, from_bytes, to_bytes, word_type

QUERIES_AT_ONCE = 64
GROWTH = 1.1
SWEEP_SHARE = 0.25
GATHER_SHARE = 0.02
"""If a filter passes a smaller share than this, the codes that pass are copied and scanned alone."""

Slots = npt.NDArray[np.int64]
Alive = npt.NDArray[np.uint8]


class FlatIndex:
    """Search codes in memory exactly. An item takes one byte per eight bits of code, plus eight bytes for its key.

    Example:
        >>> from silohash.index.codes import pack
        >>> index = FlatIndex(8)
        >>> index.add(np.array([7, 9]), pack([[1] * 8, [-1] * 8]))
        >>> index.search(pack([[1] * 7 + [-1]]), 1).keys
        array([[7]])
    """

    exact = True

    def __init__(self, bits: int, *, capacity: int = 0, threads: int = 1) -> None:
        """Create an empty index for codes of ``bits`` bits, from 8 to 256.

        Memory is reserved for ``capacity`` items, which avoids copies while items are added. The queries of a batch are
        divided among ``threads`` threads.

        Raises:
            UserError: If ``bits`` or ``threads`` is out of range.
        """
        word_type(bits)
        if threads < 1:
            raise OutOfRange(f"threads is {threads}. A search needs at least one thread.")
        self.bits = bits
        self.threads = threads
        self._slot_keys = np.empty(0, np.int64)
        self._blocks = kernels.aligned_empty((0, byte_count(bits), kernels.BLOCK_CODES), np.uint8)
        self._used = 0
        self._alive: Alive | None = None
        self._reserve(capacity)

    def __len__(self) -> int:
        return self._used if self._alive is None else int(np.count_nonzero(self._alive[: self._used]))

    @property
    def keys(self) -> base.Keys:
        """Live keys, in ascending order."""
        used = self._slot_keys[: self._used]
        return used if self._alive is None else used[self._alive[: self._used] != 0]

    def copy(self) -> FlatIndex:
        """Return a copy, which can be changed while this index is searched."""
        copied = FlatIndex(self.bits, threads=self.threads)
        copied._slot_keys, copied._used = self._slot_keys.copy(), self._used
        copied._blocks = kernels.aligned_empty(self._blocks.shape, np.uint8)
        copied._blocks[:] = self._blocks
        copied._alive = None if self._alive is None else self._alive.copy()
        return copied

    @property
    def memory_bytes(self) -> int:
        """Memory used by codes, keys and tombstones, in bytes."""
        return self._blocks.nbytes + self._slot_keys.nbytes + (0 if self._alive is None else self._alive.nbytes)

    def words(self, keys: base.Keys) -> Words:
        """Return the codes under live keys, ``(n, W)``.

        Raises:
            UserError: If a key does not exist.
        """
        slots, there = self._find(np.asarray(keys, np.int64))
        if not there.all():
            raise UnknownItem(f"Key {np.asarray(keys)[~there][0]} is not in the index. It may have been removed.")
        return from_bytes(self._read(slots), self.bits)

    def add(self, keys: base.Keys, words: Words) -> None:
        """Add codes under keys. See `Index.add`."""
        packed = to_bytes(words, self.bits)
        given = base.check_keys(keys, len(packed))
        if not len(given):
            return
        if self._used and given.min() <= self._slot_keys[self._used - 1]:
            self._merge(given, packed)
        else:
            order = np.argsort(given) if (given[1:] < given[:-1]).any() else slice(None)
            self._append(given[order], packed[order])

    def remove(self, keys: base.Keys) -> int:
        """Remove keys, and return how many of them existed."""
        slots, there = self._find(np.unique(np.asarray(keys, np.int64)))
        removed = int(np.count_nonzero(there))
        if not removed:
            return 0
        if self._alive is None:
            self._alive = np.ones(len(self._slot_keys), np.uint8)
        self._alive[slots[there]] = 0
        if self._used - len(self) > SWEEP_SHARE * self._used:
            self.compact()
        return removed

    def compact(self) -> None:
        """Remove all tombstones, so that they take neither memory nor search time."""
        if self._alive is not None:
            live = np.flatnonzero(self._alive[: self._used])
            self._rebuild(self._slot_keys[live], self._read(live))

    def search(self, words: Words, k: int, *, allowed: base.Allowed | None = None) -> base.Neighbors:
        """Return the k nearest items of each query. See `Index.search`."""
        base.check_k(k)
        queries = np.ascontiguousarray(to_bytes(words, self.bits))
        blocks, slot_keys, alive = self._scanned(allowed)
        depth = min(k, len(slot_keys))
        answer = base.Neighbors.empty(len(queries), k)
        if not depth:
            return answer

        def fill(start: int) -> None:
            """Fill in the results of one slice of the queries."""
            some = slice(start, start + step)
            scratch = kernels.aligned_empty((kernels.BLOCK_CODES,), self._distance_type)
            slots, distances, left_out = kernels.nearest(blocks, len(slot_keys), queries[some], depth, alive, scratch)
            answer.keys[some, :depth] = np.where(slots < 0, -1, slot_keys[slots])
            answer.distances[some, :depth] = distances
            answer.ties_at_cut[some] = left_out

        step = max(1, min(QUERIES_AT_ONCE, -(-len(queries) // self.threads)))
        starts = range(0, len(queries), step)
        if self.threads == 1 or len(starts) == 1:
            for start in starts:
                fill(start)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(fill, starts))
        return answer

    def search_radius(
        self, words: Words, radius_bits: int, *, allowed: base.Allowed | None = None
    ) -> list[base.Neighbors]:
        """Return all items within a distance of each query. See `Index.search_radius`."""
        base.check_radius(radius_bits)
        queries = np.ascontiguousarray(to_bytes(words, self.bits))
        blocks, slot_keys, alive = self._scanned(allowed)
        distances = kernels.aligned_empty((len(blocks), kernels.BLOCK_CODES), self._distance_type)
        answers = []
        for query in queries:
            kernels.measure_all(blocks, query, distances)
            measured = distances.reshape(-1)[: len(slot_keys)]
            hits = np.flatnonzero(measured <= radius_bits)
            if alive is not None:
                hits = hits[alive[hits] != 0]
            hits = hits[np.argsort(measured[hits], kind="stable")]
            answers.append(base.Neighbors.whole(slot_keys[hits], measured[hits].astype(np.int32)))
        return answers

    def search_with_ties(
        self, words: Words, k: int, *, allowed: base.Allowed | None = None, limit_bits: int | None = None
    ) -> tuple[base.Keys, base.Distances]:
        """Return the k nearest items of one query, and all ties with the last. See `Index.search_with_ties`."""
        base.check_k(k)
        query = np.ascontiguousarray(to_bytes(words, self.bits))
        blocks, slot_keys, alive = self._scanned(allowed)
        depth = min(k, len(slot_keys))
        if not depth:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        scratch = kernels.aligned_empty((kernels.BLOCK_CODES,), self._distance_type)
        limit = 8 * byte_count(self.bits) if limit_bits is None else limit_bits
        slots, distances = kernels.nearest_with_ties(blocks, len(slot_keys), query, depth, alive, scratch, limit)
        return slot_keys[slots], distances

    @property
    def _distance_type(self) -> type[np.unsignedinteger]:
        return np.uint16 if 8 * byte_count(self.bits) > 255 else np.uint8

    def _scanned(self, allowed: base.Allowed | None) -> tuple[CodeBytes, base.Keys, Alive | None]:
        """Return the blocks to scan, the keys of their slots, and a mask of the slots that count (None for all)."""
        blocks, slot_keys = self._blocks[: _blocks_of(self._used)], self._slot_keys[: self._used]
        if allowed is None:
            return blocks, slot_keys, self._alive
        given = np.asarray(allowed)
        is_mask = given.dtype == np.bool_ and self._alive is None and given.shape == slot_keys.shape
        if is_mask and np.count_nonzero(given) >= GATHER_SHARE * self._used:
            return blocks, slot_keys, np.ascontiguousarray(given).view(np.uint8)
        chosen = base.allowed_keys(allowed, self.keys)
        slots, _ = base.positions(slot_keys, chosen)
        if len(slots) < GATHER_SHARE * self._used:
            return filled_blocks(self._read(slots)), chosen, None
        alive = np.zeros(self._used, np.uint8)
        alive[slots] = 1
        return blocks, slot_keys, alive

    def _find(self, keys: base.Keys) -> tuple[Slots, npt.NDArray[np.bool_]]:
        slots, there = base.positions(self._slot_keys[: self._used], keys)
        if self._alive is not None:
            there[there] = self._alive[slots[there]] != 0
        return slots, there

    def _read(self, slots: Slots) -> CodeBytes:
        return read_slots(self._blocks, slots)

    def _append(self, keys: base.Keys, packed: CodeBytes) -> None:
        """Append codes after the last slot. Their keys must be ascending and higher than all existing keys."""
        end = self._used + len(keys)
        if end > len(self._slot_keys):
            self._reserve(max(end, int(GROWTH * self._used)))
        self._slot_keys[self._used : end] = keys
        _write(self._blocks, self._used, packed)
        if self._alive is not None:
            self._alive[self._used : end] = 1
        self._used = end

    def _merge(self, keys: base.Keys, packed: CodeBytes) -> None:
        """Replace the codes of existing keys, and insert the others in the order of their keys."""
        slots, there = base.positions(self._slot_keys[: self._used], keys)
        replaced = slots[there]
        self._blocks[replaced // kernels.BLOCK_CODES, :, replaced % kernels.BLOCK_CODES] = packed[there]
        if self._alive is not None:
            self._alive[replaced] = 1
        if not there.all():
            self.compact()
            merged = np.concatenate([self._slot_keys[: self._used], keys[~there]])
            order = np.argsort(merged, kind="stable")
            both = np.concatenate([self._read(np.arange(self._used)), packed[~there]])
            self._rebuild(merged[order], both[order])

    def _rebuild(self, keys: base.Keys, packed: CodeBytes) -> None:
        self._slot_keys, self._blocks, self._alive, self._used = keys, filled_blocks(packed), None, len(keys)

    def _reserve(self, capacity: int) -> None:
        """Grow the arrays to hold ``capacity`` items in total."""
        more = capacity - len(self._slot_keys)
        if more <= 0:
            return
        grown = kernels.aligned_empty((_blocks_of(capacity), *self._blocks.shape[1:]), np.uint8)
        grown[: len(self._blocks)] = self._blocks
        self._blocks = grown
        self._slot_keys = np.concatenate([self._slot_keys, np.empty(more, np.int64)])
        if self._alive is not None:
            self._alive = np.concatenate([self._alive, np.zeros(more, np.uint8)])


def _blocks_of(count: int) -> int:
    return -(-count // kernels.BLOCK_CODES)


def read_slots(blocks: CodeBytes, slots: npt.NDArray[np.integer]) -> CodeBytes:
    """Return the codes in some slots of blocks, ``(n, bytes)``."""
    return blocks[slots // kernels.BLOCK_CODES, :, slots % kernels.BLOCK_CODES]


def filled_blocks(packed: CodeBytes) -> CodeBytes:
    """Return new blocks that hold codes ``(n, bytes)``."""
    blocks = kernels.aligned_empty((_blocks_of(len(packed)), packed.shape[1], kernels.BLOCK_CODES), np.uint8)
    _write(blocks, 0, packed)
    return blocks


def _write(blocks: CodeBytes, start: int, packed: CodeBytes) -> None:
    """Write codes ``(n, bytes)`` into the slots from ``start`` on."""
    done = 0
    while done < len(packed):
        block, place = divmod(start + done, kernels.BLOCK_CODES)
        some = packed[done : done + kernels.BLOCK_CODES - place]
        blocks[block, :, place : place + len(some)] = some.T
        done += len(some)
