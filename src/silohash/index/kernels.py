"""The exact scan, compiled by numba: distances a block at a time, a threshold that shrinks, selection by counting.

Codes lie in blocks, ``(blocks, bytes, BLOCK_CODES)`` uint8: byte ``w`` of a block's codes is one contiguous row, which
a processor compares with a query's byte 32 or 64 codes at a time. A block fits the nearest cache and serves many
queries before the next is read.

Of a query one keeps ``cut``, the lowest distance within which k of the items seen so far lie. A block whose lowest
distance exceeds it is done with; otherwise eight distances are tested at once (as one uint64) and the few that pass are
looked at. Items nearer than the cut are stored, items at the cut are only counted: slots ascend, so that one stored
earlier wins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import intrinsic

BLOCK_CODES = 2048
GROUP_WORDS = 8

Alive = npt.NDArray[np.uint8] | None
Blocks = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.signedinteger[Any]]
Buffer = npt.NDArray[np.unsignedinteger[Any]]


def _emit_byte_distance(_context: Any, _left: Any, _right: Any) -> Any:  # noqa: ANN401  numba's own types
    """Tells numba how to count the bits in which two bytes differ: one instruction, where the processor has it."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:  # noqa: ANN401
        """Emits the instructions."""
        return builder.ctpop(builder.xor(*values))

    return types.uint8(types.uint8, types.uint8), generate


_byte_distance: Any = intrinsic(_emit_byte_distance)


@njit(cache=True, nogil=True)
def _measure(block: Blocks, query: Blocks, fresh: bool, distances: Buffer) -> Any:  # noqa: ANN401  a number
    """Writes the distances of a block's codes ``(bytes, codes)`` to a query ``(bytes,)``; returns the lowest.

    A fresh block comes from memory: its rows are read one after another, which the processor foresees. From the cache,
    four rows at a time are faster.
    """
    distances[:] = 0
    fours = 0 if fresh else len(block) // 4 * 4
    for w in range(0, fours, 4):
        row0, row1, row2, row3 = block[w], block[w + 1], block[w + 2], block[w + 3]
        byte0, byte1, byte2, byte3 = query[w], query[w + 1], query[w + 2], query[w + 3]
        for i in range(len(distances)):
            left = _byte_distance(row0[i], byte0) + _byte_distance(row1[i], byte1)
            distances[i] += left + _byte_distance(row2[i], byte2) + _byte_distance(row3[i], byte3)
    for w in range(fours, len(block)):
        row, byte = block[w], query[w]
        for i in range(len(distances)):
            distances[i] += _byte_distance(row[i], byte)
    lowest = distances[0]
    for i in range(len(distances)):
        if distances[i] < lowest:
            lowest = distances[i]
    return lowest


@njit(cache=True, nogil=True)
def _keep(
    k: int, distance: np.int64, slot: int, state: Numbers, counts: Numbers, slots: Numbers, stored: Numbers
) -> None:
    """Stores an item nearer than the cut; ``state`` is how many are stored, how many are nearer, the cut."""
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
    while state[1] >= k:
        state[2] -= 1
        state[1] -= counts[state[2]]


@njit(cache=True, nogil=True)
def _ordered(
    k: int, state: Numbers, counts: Numbers, slots: Numbers, stored: Numbers, out: Numbers, out_distances: Numbers
) -> Any:  # noqa: ANN401  a number
    """Writes the stored items in order of (distance, slot); returns how many at the cut are left out."""
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
def _admit(
    first: int,
    count: int,
    k: int,
    alive: Alive,
    distances: Buffer,
    state: Numbers,
    counts: Numbers,
    slots: Numbers,
    stored: Numbers,
) -> None:
    """Takes the items of a block (slots ``first`` on) that lie within the cut into a query's state."""
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
                if distance > state[2] or slot >= count:
                    continue
                if alive is not None and alive[slot] == 0:
                    continue
                counts[distance] += 1
                if distance < state[2]:
                    _keep(k, distance, slot, state, counts, slots, stored)


@njit(cache=True, nogil=True)
def nearest(blocks: Blocks, count: int, queries: Blocks, k: int, alive: Alive, distances: Buffer) -> Any:  # noqa: ANN401
    """Finds the k nearest codes of each query.

    Args:
        blocks: ``(blocks, bytes, BLOCK_CODES)``, the last one padded.
        count: codes in the blocks.
        queries: ``(Q, bytes)``.
        k: how many; at least 1 and at most ``count``.
        alive: ``(count,)`` uint8, 0 for codes that are to be passed over; or None.
        distances: ``(BLOCK_CODES,)`` scratch; uint16 where a distance can exceed 255, else uint8.

    Returns:
        ``(Q, k)`` int64 slots (-1 for none), ``(Q, k)`` int32 distances, ``(Q,)`` int64 left out at the cut.
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
                _admit(first, count, k, alive, distances, states[q], counts[q], slots[q], stored[q])
    found, found_distances = np.full((total, k), -1, np.int64), np.full((total, k), -1, np.int32)
    left_out = np.zeros(total, np.int64)
    for q in range(total):
        left_out[q] = _ordered(k, states[q], counts[q], slots[q], stored[q], found[q], found_distances[q])
    return found, found_distances, left_out


@njit(cache=True, nogil=True)
def measure_all(blocks: Blocks, query: Blocks, distances: Buffer) -> None:
    """Writes the distance of every code to a query ``(bytes,)`` into ``(blocks, BLOCK_CODES)``."""
    for block in range(len(blocks)):
        _measure(blocks[block], query, True, distances[block])
