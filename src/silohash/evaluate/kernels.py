"""Compiled loops of the evaluator: counts of items by distance, and the order by distance.

Distances are counted on bit planes. A block of 4,096 items is stored as one row of 64 words per bit of the code, so that
one word operation handles 64 items. Carry-save adders add the planes that differ from the query into a number of 9 planes
per item, its distance. 8 of those planes become one byte per item, and the bytes are counted in pairs (one increment for
two items). All item indices are unsigned, so that no check for negative indices prevents vectorization.

Source: W. Muła, N. Kurz, D. Lemire, "Faster population counts using AVX2 instructions", 2018 (the carry-save tree);
H. Warren, "Hacker's Delight", 2nd edition, section 7-3 (the transposition).
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from silohash.index.compiling import provide_cache

provide_cache()

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
P = ParamSpec("P")
T = TypeVar("T")

LANES = 64
"""Number of words per plane of a block."""
BLOCK_ITEMS = LANES * 64
PLANES_AT_ONCE = 16
"""Number of planes per pass of the adders. The planes of a code are padded to a multiple of it."""
DISTANCE_PLANES = 9
RELEVANT_PLANE = 7
"""Position of the relevance in an item's byte, for codes of at most 128 bits."""
SPAN_BLOCKS = 16
"""Number of blocks that a query processes before the next query. They stay in the second-level cache, and the 16-bit
counts of pairs cannot overflow (32,768 pairs)."""
COUNTER_PLANES = 8

_word = np.uint64
_LANES = np.uint64(LANES)
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_ODD = np.uint64(0x5555555555555555)
_PAIRS = np.uint64(0x3333333333333333)
_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_LOW_HALF = np.uint64(0x00000000FFFFFFFF)


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function at its first call, cache the machine code on disk, and run it without the interpreter's lock."""
    return cast("Callable[P, T]", numba.njit(cache=True, nogil=True)(function))


def _emit_set_bits(_context: Any, _word: Any) -> Any:  # noqa: ANN401  numba's own types
    """Define the number of set bits of a word for numba: one instruction if the processor has it."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:  # noqa: ANN401
        """Emit the instruction."""
        return builder.ctpop(values[0])

    return types.int64(types.uint64), generate


_set_bits: Any = intrinsic(_emit_set_bits)


@compiled
def _add(low: np.uint64, first: np.uint64, second: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Add three bits in each of 64 columns; return (sum, carry)."""
    half = low ^ first
    return half ^ second, (low & first) | (half & second)


@compiled
def _add_four(
    planes: Words, at: np.uint64, flip: Words, flip_at: np.uint64, one: np.uint64, two: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Add four planes to (one, two); return (one, two, carry of weight four)."""
    one, carry_a = _add(one, planes[at] ^ flip[flip_at], planes[at + _LANES] ^ flip[flip_at + _ONE])
    at, flip_at = at + _TWO * _LANES, flip_at + _TWO
    one, carry_b = _add(one, planes[at] ^ flip[flip_at], planes[at + _LANES] ^ flip[flip_at + _ONE])
    two, carry = _add(two, carry_a, carry_b)
    return one, two, carry


@compiled
def _add_planes(planes: Words, start: np.uint64, flip: Words, flip_at: np.uint64, distance: Words) -> None:
    """Add 16 planes, each flipped where the query's bit is set, to the 9 planes of the distances (flat, LANES words)."""
    four = _FOUR * _LANES
    for i in range(LANES):
        at = start + _word(i)
        one, two = distance[i], distance[i + LANES]
        fours, eights = distance[i + 2 * LANES], distance[i + 3 * LANES]
        one, two, a = _add_four(planes, at, flip, flip_at, one, two)
        one, two, b = _add_four(planes, at + four, flip, flip_at + _FOUR, one, two)
        fours, eight_a = _add(fours, a, b)
        one, two, a = _add_four(planes, at + _TWO * four, flip, flip_at + _TWO * _FOUR, one, two)
        one, two, b = _add_four(planes, at + four + _TWO * four, flip, flip_at + _FOUR + _TWO * _FOUR, one, two)
        fours, eight_b = _add(fours, a, b)
        eights, carry = _add(eights, eight_a, eight_b)
        distance[i], distance[i + LANES] = one, two
        distance[i + 2 * LANES], distance[i + 3 * LANES] = fours, eights
        high = distance[i + 4 * LANES]
        distance[i + 4 * LANES], carry = high ^ carry, high & carry
        high = distance[i + 5 * LANES]
        distance[i + 5 * LANES], carry = high ^ carry, high & carry
        high = distance[i + 6 * LANES]
        distance[i + 6 * LANES], carry = high ^ carry, high & carry
        high = distance[i + 7 * LANES]
        distance[i + 7 * LANES], carry = high ^ carry, high & carry
        distance[i + 8 * LANES] ^= carry


@compiled
def _weave(first: np.uint64, second: np.uint64, mask: np.uint64, shift: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Interleave the fields of two words; return (even fields of both, odd fields of both)."""
    return (first & mask) | ((second & mask) << shift), ((first >> shift) & mask) | (second & ~mask)


@compiled
def _to_bytes(planes: Words, out: Words) -> None:
    """Turn 8 planes (flat, LANES words each) into one byte per item. The order of the items changes."""
    for i in range(LANES):
        a, b = _weave(planes[i], planes[i + LANES], _ODD, _ONE)
        c, d = _weave(planes[i + 2 * LANES], planes[i + 3 * LANES], _ODD, _ONE)
        e, f = _weave(planes[i + 4 * LANES], planes[i + 5 * LANES], _ODD, _ONE)
        g, h = _weave(planes[i + 6 * LANES], planes[i + 7 * LANES], _ODD, _ONE)
        a, c = _weave(a, c, _PAIRS, _TWO)
        b, d = _weave(b, d, _PAIRS, _TWO)
        e, g = _weave(e, g, _PAIRS, _TWO)
        f, h = _weave(f, h, _PAIRS, _TWO)
        out[i], out[i + LANES] = _weave(a, e, _NIBBLES, _FOUR)
        out[i + 2 * LANES], out[i + 3 * LANES] = _weave(b, f, _NIBBLES, _FOUR)
        out[i + 4 * LANES], out[i + 5 * LANES] = _weave(c, g, _NIBBLES, _FOUR)
        out[i + 6 * LANES], out[i + 7 * LANES] = _weave(d, h, _NIBBLES, _FOUR)


@compiled
def _count_pairs(pairs: npt.NDArray[np.uint16], table: npt.NDArray[np.uint16]) -> None:
    for i in range(len(pairs)):
        table[pairs[i]] += np.uint16(1)


@compiled
def _fold_row(row: npt.NDArray[np.uint16], columns: npt.NDArray[np.uint16]) -> int:
    """Add a row of the pair table to the sums of the columns, clear it, and return its sum."""
    total = np.uint16(0)
    for i in range(len(row)):
        total = np.uint16(total + row[i])
    for i in range(len(row)):
        columns[i] = np.uint16(columns[i] + row[i])
    row[:] = np.uint16(0)
    return int(total)


@compiled
def _fold(table: npt.NDArray[np.uint16], values: Counts, counts: Counts) -> None:
    """Add the counts of the pair table to the counts of single bytes and clear it; `values` are the bytes that can occur."""
    columns = np.zeros(values[-1] + 1, np.uint16)
    for value in values:
        counts[value] += _fold_row(table[value * 256 : value * 256 + len(columns)], columns)
    for value in values:
        counts[value] += columns[value]


@compiled
def _mark(labels: Words, start: np.uint64, counter: Words) -> None:
    """Mark the items of a label as relevant in the first plane of the counter."""
    for i in range(LANES):
        counter[i] |= labels[start + _word(i)]


@compiled
def _set_relevant(counter: Words, distance: Words) -> tuple[int, int]:
    """Replace the plane of weight 128, which only a distance of 128 sets, by the relevance.

    Return the numbers of items at that distance, not relevant and relevant. Their bytes now state a distance of 0.
    """
    other, relevant, any_far = 0, 0, _word(0)
    for i in range(LANES):
        any_far |= distance[i + RELEVANT_PLANE * LANES]
    if any_far:
        for i in range(LANES):
            far = distance[i + RELEVANT_PLANE * LANES]
            other += _set_bits(far & ~counter[i])
            relevant += _set_bits(far & counter[i])
    for i in range(LANES):
        distance[i + RELEVANT_PLANE * LANES] = counter[i]
    return other, relevant


@compiled
def _count_label(labels: Words, start: np.uint64, counter: Words) -> None:
    """Add the plane of a label to the counter of shared labels (8 planes)."""
    for i in range(LANES):
        carry = labels[start + _word(i)]
        for plane in range(COUNTER_PLANES):
            held = counter[i + plane * LANES]
            counter[i + plane * LANES] = held ^ carry
            carry &= held


@compiled
def _keep_level(counter: Words, level: int, distance: Words) -> tuple[int, int]:
    """Clear the distances of items that do not share exactly `level` labels.

    Return the numbers of items that were cleared, and of the others at a distance of 256. The bytes of all state 0.
    """
    cleared, far = 0, 0
    for i in range(LANES):
        mask = _ONES
        for plane in range(COUNTER_PLANES):
            held = counter[i + plane * LANES]
            mask &= held if (level >> plane) & 1 else ~held
        for plane in range(DISTANCE_PLANES):
            distance[i + plane * LANES] &= mask
        cleared += _set_bits(~mask)
        far += _set_bits(distance[i + 8 * LANES])
    return cleared, far


@compiled
def count_bytes(
    planes: Words,
    flips: Words,
    label_planes: Words,
    query_labels: Counts,
    level: int,
    graded: bool,
    values: Counts,
    counts: Counts,
) -> None:
    """Count the bytes that encode the distances of the items from each query.

    Args:
        planes: ``(blocks, planes, LANES)`` uint64, codes of the database as `bit_planes` writes them.
        flips: ``(Q, planes)`` uint64, all ones where the query's bit is set.
        label_planes: ``(blocks, label planes, LANES)`` uint64.
        query_labels: ``(Q, most)`` int64, labels of each query, padded with -1.
        level: -1: the byte is the distance, plus 128 for an item that shares a label (at most 128 bits);
            otherwise the byte is the distance of items that share exactly ``level`` labels, and 0 for the others.
        graded: Whether shared labels are counted; otherwise the level is 1 for one or more.
        values: ``(v,)`` int64, the bytes that can occur, ascending.
        counts: ``(Q, 258)`` int64, incremented: counts of the bytes, and of two groups of items whose bytes wrongly state a
            distance of 0. With a level, these are items of another level and items at a distance of 256. Without, they
            are items at a distance of 128, first those that are not relevant, then the relevant ones.
    """
    blocks, bits, label_bits = planes.shape[0], planes.shape[1], label_planes.shape[1]
    flat, flat_labels, flat_flips = planes.reshape(-1), label_planes.reshape(-1), flips.reshape(-1)
    distance = np.zeros(DISTANCE_PLANES * LANES, np.uint64)
    counter = np.zeros(COUNTER_PLANES * LANES, np.uint64)
    items = np.zeros(8 * LANES, np.uint64)
    pairs = items.view(np.uint16)
    table = np.zeros(1 << 16, np.uint16)
    for start in range(0, blocks, SPAN_BLOCKS):
        for query in range(len(flips)):
            for block in range(start, min(blocks, start + SPAN_BLOCKS)):
                distance[:] = _word(0)
                for plane in range(0, bits, PLANES_AT_ONCE):
                    at = _word((block * bits + plane) * LANES)
                    _add_planes(flat, at, flat_flips, _word(query * bits + plane), distance)
                counter[:] = _word(0)
                for label in query_labels[query]:
                    if label < 0:
                        break
                    at = _word((block * label_bits + label) * LANES)
                    if graded:
                        _count_label(flat_labels, at, counter)
                    else:
                        _mark(flat_labels, at, counter)
                if level < 0:
                    other, relevant = _set_relevant(counter, distance)
                else:
                    other, relevant = _keep_level(counter, level, distance)
                counts[query, 256] += other
                counts[query, 257] += relevant
                _to_bytes(distance, items)
                _count_pairs(pairs, table)
            _fold(table, values, counts[query])


@compiled
def _transpose(square: Words) -> None:
    """Swap bit j of word k with bit k of word j, in place, for 64 words."""
    step, mask = 32, _LOW_HALF
    while step:
        shift = _word(step)
        for start in range(0, 64, 2 * step):
            for k in range(start, start + step):
                swap = ((square[k] >> shift) ^ square[k + step]) & mask
                square[k] ^= swap << shift
                square[k + step] ^= swap
        step >>= 1
        mask ^= mask << _word(step)


@compiled
def bit_planes(words: Words, planes: Words) -> None:
    """Write the first P bits of the items' words ``(N, W)`` as bit planes ``(blocks, P, LANES)``, which are zero before."""
    square = np.zeros(64, np.uint64)
    for lane in range((len(words) + 63) // 64):
        block, column = lane // LANES, lane % LANES
        for w in range((planes.shape[1] + 63) // 64):
            square[:] = _word(0)
            for k in range(min(64, len(words) - lane * 64)):
                square[k] = words[lane * 64 + k, w]
            _transpose(square)
            for plane in range(min(64, planes.shape[1] - w * 64)):
                planes[block, w * 64 + plane, column] = square[plane]


@compiled
def order_gains(
    query_words: Words, database_words: Words, bits: int, gains: npt.NDArray[np.uint16], out: npt.NDArray[np.uint16]
) -> None:
    """Write the gains ``(B, N)`` of each query to ``out``, sorted by distance.

    Equal distances keep the order of the database. Words are ``(B, W)`` of the queries and ``(N, W)`` of the database.
    """
    distance = np.zeros(len(database_words), np.uint16)
    for query in range(len(query_words)):
        place = np.zeros(bits + 2, np.int64)
        for i in range(len(database_words)):
            total = 0
            for w in range(query_words.shape[1]):
                total += _set_bits(database_words[i, w] ^ query_words[query, w])
            distance[i] = total
            place[total + 1] += 1
        place = np.cumsum(place)
        for i in range(len(database_words)):
            out[query, place[distance[i]]] = gains[query, i]
            place[distance[i]] += 1


@compiled
def count_nearest(
    queries: Words, sides: Words, held: npt.NDArray[np.bool_], query_labels: Words, labels: Words, counts: Counts
) -> None:
    """Add the numbers of items at each distance from each query, by shared labels, to counts ``(Q, bits + 1, levels)``.

    The last level takes all higher numbers. Queries have codes ``(Q, W)``, and items codes ``(S, N, W)`` on the sides that
    ``held (S, N)`` marks. Labels are bit masks, ``(Q, L)`` and ``(N, L)``.
    """
    farthest, highest = counts.shape[1], counts.shape[2] - 1
    for query in range(len(queries)):
        for item in range(sides.shape[1]):
            nearest = np.int64(farthest)
            for side in range(len(sides)):
                if held[side, item]:
                    distance = np.int64(0)
                    for word in range(queries.shape[1]):
                        distance += _set_bits(queries[query, word] ^ sides[side, item, word])
                    nearest = min(nearest, distance)
            shared = np.int64(0)
            for word in range(labels.shape[1]):
                shared += _set_bits(query_labels[query, word] & labels[item, word])
            counts[query, nearest, min(shared, highest)] += 1
