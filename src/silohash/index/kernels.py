"""The exact scan, compiled with numba: distances block by block, a shrinking threshold, and selection by counting.

Codes are stored in blocks of shape ``(blocks, bytes, BLOCK_CODES)`` uint8. Byte ``w`` of all codes of a block is one
contiguous row, so a processor compares it with a byte of the query for 32 or 64 codes at a time. A block fits into the
L1 cache and is compared with many queries before the next block is read.

For each query, ``cut`` is the lowest distance within which k of the items seen so far lie. A block is skipped if its
lowest distance exceeds the cut. Otherwise eight distances are tested at once, as one uint64, and only those that pass are
examined. Items nearer than the cut are stored, and items at the cut are only counted. Slots are scanned in ascending
order, so among equal distances the item stored first wins.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import intrinsic

from silohash.index.compiling import provide_cache

provide_cache()

BLOCK_CODES = 2048
GROUP_WORDS = 8

ALIGNED_BYTES = 64
"""Arrays of codes and distances begin at a multiple of this address: a vector that crosses two lines of a cache is read
twice, which makes a scan a quarter slower."""

CACHED_BYTES = 1 << 20
"""Blocks of at most this size together are read from a processor's cache, where they remain from one search to the next."""

Alive = npt.NDArray[np.uint8] | None
Rows = npt.NDArray[np.signedinteger[Any]] | None
Passing = tuple[Alive, Rows]
Blocks = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.signedinteger[Any]]
Buffer = npt.NDArray[np.unsignedinteger[Any]]
Kept = tuple[Numbers, Numbers] | None
Stored = tuple[Blocks, Passing]
"""Blocks, and which of their codes count (`passes`)."""


def aligned_empty(shape: tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a new array for codes or distances, with the alignment that the scan prefers. Its values are arbitrary."""
    wanted = np.dtype(kind)
    size = math.prod(shape) * wanted.itemsize
    memory = np.empty(size + ALIGNED_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNED_BYTES
    return memory[start : start + size].view(wanted).reshape(shape)


def _emit_bit_distance(_context: Any, left: Any, right: Any) -> Any:  # noqa: ANN401  numba's own types
    """Define the number of differing bits of two words for numba: one instruction if the processor has it."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:  # noqa: ANN401
        """Emit the instructions."""
        return builder.ctpop(builder.xor(*values))

    return left(left, right), generate


bit_distance: Any = intrinsic(_emit_bit_distance)


@njit(cache=True, nogil=True)
def _measure(block: Blocks, query: Blocks, fresh: bool, distances: Buffer) -> Any:  # noqa: ANN401  a number
    """Write the distances between a query ``(bytes,)`` and a block ``(bytes, codes)``, and return the lowest."""
    if fresh:  # from memory, which the processor can prefetch row by row; groups of rows are faster in its cache
        _measure_by_rows(block, query, distances)
    else:
        _measure_by_groups(block, query, distances)
    lowest = distances[0]
    for i in range(len(distances)):
        if distances[i] < lowest:
            lowest = distances[i]
    return lowest


@njit(cache=True, nogil=True)
def _measure_by_rows(block: Blocks, query: Blocks, distances: Buffer) -> None:
    """Write the distances between a query and a block, and read one row after the other."""
    row, byte = block[0], query[0]
    for i in range(len(distances)):
        distances[i] = bit_distance(row[i], byte)
    for w in range(1, len(block)):
        row, byte = block[w], query[w]
        for i in range(len(distances)):
            distances[i] += bit_distance(row[i], byte)


@njit(cache=True, nogil=True)
def _measure_by_groups(block: Blocks, query: Blocks, distances: Buffer) -> None:
    """Write the distances between a query and a block, and read eight rows at a time, then four, then one."""
    distances[:] = 0
    eights, fours = len(block) // 8 * 8, len(block) // 4 * 4
    for w in range(0, eights, 8):
        row0, row1, row2, row3 = block[w], block[w + 1], block[w + 2], block[w + 3]
        row4, row5, row6, row7 = block[w + 4], block[w + 5], block[w + 6], block[w + 7]
        byte0, byte1, byte2, byte3 = query[w], query[w + 1], query[w + 2], query[w + 3]
        byte4, byte5, byte6, byte7 = query[w + 4], query[w + 5], query[w + 6], query[w + 7]
        for i in range(len(distances)):
            left = bit_distance(row0[i], byte0) + bit_distance(row1[i], byte1)
            left += bit_distance(row2[i], byte2) + bit_distance(row3[i], byte3)
            right = bit_distance(row4[i], byte4) + bit_distance(row5[i], byte5)
            right += bit_distance(row6[i], byte6) + bit_distance(row7[i], byte7)
            distances[i] += left + right
    for w in range(eights, fours, 4):
        row0, row1, row2, row3 = block[w], block[w + 1], block[w + 2], block[w + 3]
        byte0, byte1, byte2, byte3 = query[w], query[w + 1], query[w + 2], query[w + 3]
        for i in range(len(distances)):
            left = bit_distance(row0[i], byte0) + bit_distance(row1[i], byte1)
            distances[i] += left + bit_distance(row2[i], byte2) + bit_distance(row3[i], byte3)
    for w in range(fours, len(block)):
        row, byte = block[w], query[w]
        for i in range(len(distances)):
            distances[i] += bit_distance(row[i], byte)


@njit(cache=True, nogil=True)
def passes(alive: Alive, rows: Rows, slot: int) -> Any:  # noqa: ANN401  a truth value
    """Return whether the code in a slot counts. ``alive`` is indexed by ``rows[slot]``, or by the slot if they are None."""
    if alive is None:
        return True
    if rows is None:
        return alive[slot] != 0
    return alive[rows[slot]] != 0


@njit(cache=True, nogil=True)
def narrow(k: int, state: Numbers, counts: Numbers) -> None:
    """Lower a query's cut while k items are nearer than it. ``state`` is that of `_keep`."""
    while state[1] >= k:
        state[2] -= 1
        state[1] -= counts[state[2]]


@njit(cache=True, nogil=True)
def _keep(
    k: int, distance: np.int64, slot: int, state: Numbers, counts: Numbers, slots: Numbers, stored: Numbers
) -> None:
    """Store an item nearer than the cut. ``state`` holds (number stored, number nearer than the cut, cut)."""
    if state[0] == len(slots):
        kept = 0
        for i in range(len(slots)):
            if stored[i] <= state[2]:
                slots[kept], stored[kept] = slots[i], stored[i]
                kept += 1
        state[0] = kept
    slots[state[0]], stored[state[0]] = slot, distance
    state[0] += 1
    state[1] += 1
    narrow(k, state, counts)


@njit(cache=True, nogil=True)
def _ordered(
    k: int, state: Numbers, counts: Numbers, slots: Numbers, stored: Numbers, out: Numbers, out_distances: Numbers
) -> Any:  # noqa: ANN401  a number
    """Write the stored items ordered by (distance, slot), and return how many items at the cut are left out."""
    cut, start = state[2], 0
    left_out = max(0, state[1] + counts[cut] - k)
    for distance in range(cut + 1):
        start, counts[distance] = start + counts[distance], start
    for i in range(state[0]):
        distance = stored[i]
        if distance <= cut:
            place = counts[distance]
            counts[distance] += 1
            if place < k:
                out[place], out_distances[place] = slots[i], distance
    return left_out


@njit(cache=True, nogil=True)
def admit(
    first: int, count: int, k: int, passing: Passing, distances: Buffer, state: Numbers, counts: Numbers, kept: Kept
) -> Any:  # noqa: ANN401  a number
    """Add the items of a block that lie within the cut to a query's state, and return their number.

    The items have the slots from ``first`` up to ``count``. If ``kept`` is None, they are counted and not stored.
    """
    (alive, rows), admitted = passing, 0
    eight = distances.view(np.uint64)
    lanes = len(distances) // len(eight)
    highest = 1 << (64 // lanes - 1)
    ones = np.uint64(0xFFFFFFFFFFFFFFFF) // np.uint64(2 * highest - 1)
    tops = ones * np.uint64(highest)
    for group in range(0, len(eight), GROUP_WORDS):
        bar = ones * np.uint64(min(state[2] + 1, highest))
        beyond = tops
        for word in range(group, group + GROUP_WORDS):
            beyond &= (eight[word] | tops) - bar
        if beyond == tops:
            continue
        for word in range(group, group + GROUP_WORDS):
            if ((eight[word] | tops) - bar) & tops == tops:
                continue
            start = word * lanes
            for place in range(start, start + lanes):
                distance, slot = np.int64(distances[place]), first + place
                if distance > state[2] or slot >= count or not passes(alive, rows, slot):
                    continue
                counts[distance] += 1
                admitted += 1
                if distance < state[2]:
                    if kept is None:
                        state[1] += 1
                        narrow(k, state, counts)
                    else:
                        _keep(k, distance, slot, state, counts, kept[0], kept[1])
    return admitted


@njit(cache=True, nogil=True)
def nearest(blocks: Blocks, count: int, queries: Blocks, k: int, alive: Alive, distances: Buffer) -> Any:  # noqa: ANN401
    """Find the k nearest codes of each query.

    Args:
        blocks: ``(blocks, bytes, BLOCK_CODES)``, with padding at the end of the last block.
        count: Number of codes in the blocks.
        queries: ``(Q, bytes)``.
        k: Number of codes per query, at least 1 and at most ``count``.
        alive: ``(count,)`` uint8, with 0 for codes to skip; or None to scan all codes.
        distances: ``(BLOCK_CODES,)`` work array; uint16 if a distance can exceed 255, otherwise uint8.

    Returns:
        ``(Q, k)`` int64 slots (-1 for none), ``(Q, k)`` int32 distances, and ``(Q,)`` int64 numbers of codes left out at
        the cut.
    """
    total, farthest = len(queries), 8 * queries.shape[1] + 1
    room = min(count, 4 * k)
    slots, stored = np.empty((total, room), np.int64), np.empty((total, room), np.int32)
    counts, states = np.zeros((total, farthest + 1), np.int64), np.zeros((total, 3), np.int64)
    states[:, 2] = farthest
    for block in range(len(blocks)):
        for q in range(total):
            if _measure(blocks[block], queries[q], q == 0, distances) <= states[q, 2]:
                first = block * len(distances)
                admit(first, count, k, (alive, None), distances, states[q], counts[q], (slots[q], stored[q]))
    found, found_distances = np.full((total, k), -1, np.int64), np.full((total, k), -1, np.int32)
    left_out = np.zeros(total, np.int64)
    for q in range(total):
        left_out[q] = _ordered(k, states[q], counts[q], slots[q], stored[q], found[q], found_distances[q])
    return found, found_distances, left_out


@njit(cache=True, nogil=True)
def narrow_all(
    codes: Stored, count: int, queries: Blocks, k: int, distances: Buffer, states: Numbers, counts: Numbers
) -> Any:  # noqa: ANN401  an array
    """Find the cut of each query, and return the lowest distance of each block, ``(Q, blocks)`` int16.

    ``states``, ``(Q, 3)``, and ``counts``, ``(Q, farthest + 1)``, are as in `_keep`. They may hold a lower cut from the
    start, and items that are in no block.
    """
    blocks, passing = codes
    lowest = np.empty((len(queries), len(blocks)), np.int16)
    fresh = blocks.size > CACHED_BYTES
    for block in range(len(blocks)):
        first = block * len(distances)
        for q in range(len(queries)):
            lowest[q, block] = _measure(blocks[block], queries[q], fresh and q == 0, distances)
            if lowest[q, block] <= states[q, 2]:
                admit(first, count, k, passing, distances, states[q], counts[q], None)
    return lowest


@njit(cache=True, nogil=True)
def within_cut(
    codes: Stored, count: int, query: Blocks, distances: Buffer, cut: int, total: int, lowest: Numbers
) -> Any:  # noqa: ANN401  two arrays
    """Return the slots and distances of all ``total`` codes within a cut. Only blocks with a lower ``lowest`` are read."""
    blocks, (alive, rows) = codes
    found, measured, kept = np.empty(total, np.int64), np.empty(total, np.int32), 0
    for block in range(len(blocks)):
        if lowest[block] <= cut:
            _measure(blocks[block], query, False, distances)
            first = block * len(distances)
            for place in range(min(len(distances), count - first)):
                if distances[place] <= cut and passes(alive, rows, first + place):
                    found[kept], measured[kept] = first + place, distances[place]
                    kept += 1
    return found, measured


@njit(cache=True, nogil=True)
def nearest_with_ties(
    blocks: Blocks, count: int, query: Blocks, k: int, alive: Alive, distances: Buffer, limit: int
) -> Any:  # noqa: ANN401
    """Find the k nearest codes of one query, and all further codes at the distance of the last of them.

    The first pass over the blocks finds the cut and notes the lowest distance of each block. The second pass visits only the
    blocks that hold a code within the cut, which are few.

    The arguments are those of `nearest`, with a query of shape ``(1, bytes)``, and the largest distance to find.

    Returns:
        ``(n,)`` int64 slots in ascending order, and ``(n,)`` int32 distances. If fewer than k codes are within the limit,
        they are returned.
    """
    farthest, codes = 8 * query.shape[1] + 1, (blocks, (alive, None))
    counts, states = np.zeros((1, farthest + 1), np.int64), np.zeros((1, 3), np.int64)
    states[0, 2] = min(limit, farthest)
    lowest = narrow_all(codes, count, query, k, distances, states, counts)
    cut = states[0, 2]
    return within_cut(codes, count, query[0], distances, cut, states[0, 1] + counts[0, cut], lowest[0])


@njit(cache=True, nogil=True)
def measure_all(blocks: Blocks, query: Blocks, distances: Buffer) -> None:
    """Write the distances between all codes and a query ``(bytes,)`` into ``(blocks, BLOCK_CODES)``."""
    for block in range(len(blocks)):
        _measure(blocks[block], query, True, distances[block])
