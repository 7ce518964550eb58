"""The loops of the trie, compiled with numba: the build, and the search that visits the nearest nodes first.

A node stands for codes that are next to each other. It is one row of uint64 words, so that both children of a node are read
together: W words of its ``value``, W words of its ``mask``, and two words of numbers. The mask has the bits that are equal
in all codes of the node, and the value has these bits. The first number word holds the first child, or the first slot of a
leaf, and from bit 32 on the number of codes of a leaf, which is 0 for other nodes. The second one holds the lowest and, from
bit 16 on, the highest number of set bits that a code of the node has outside the mask, both 0 if all codes are equal.

A code differs from a query at least in the bits of the mask in which the value does, and outside the mask by at least the
difference of the numbers of set bits. This bound of a node is never lower than that of its parent, because its mask has more
bits.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from silohash.index.kernels import Blocks, Buffer, Numbers, Stored, admit, bit_distance, narrow, passes

SAMPLE = 1024
"""Number of codes of a node by which its bit is chosen."""

NODE_COST, LEAF_COST = 128, 256
"""Costs of a node, and of a leaf in addition to its codes, in codes of a scan."""

GROUP = 64
"""Codes are compared in aligned groups of this size, which takes one step of a processor per byte of code."""

Nodes = npt.NDArray[np.uint64]
Work = tuple[Buffer, Numbers, Numbers]

_NONE = np.uint64(0)
_HALF = np.uint64(0xFFFFFFFF)
_SHORT = np.uint64(0xFFFF)


@njit(cache=True, nogil=True)
def _describe(codes: Nodes, node: Nodes) -> None:
    """Write the value, the mask and the numbers of set bits of a node."""
    words = codes.shape[1]
    for w in range(words):
        some = every = codes[0, w]
        for i in range(len(codes)):
            some |= codes[i, w]
            every &= codes[i, w]
        node[w], node[words + w] = every, ~(some ^ every)
    low, high = np.int64(64 * words), np.int64(0)
    for i in range(len(codes)):
        ones = np.int64(0)
        for w in range(words):
            ones += np.int64(bit_distance(codes[i, w] & ~node[words + w], _NONE))
        low, high = min(low, ones), max(high, ones)
    node[2 * words + 1] = np.uint64(low) | np.uint64(high) << np.uint64(16)


@njit(cache=True, nogil=True)
def _most_even_bit(codes: Nodes, node: Nodes, ones: Numbers) -> Any:  # noqa: ANN401  a number
    """Return the bit outside a node's mask that is set in about half of its codes, as far as a sample of them tells."""
    words, step = codes.shape[1], max(1, len(codes) // SAMPLE)
    best, least = -1, len(codes) + 1
    for w in range(words):
        free = ~node[words + w]
        if free == _NONE:
            continue
        ones[:] = 0
        sampled = 0
        for i in range(0, len(codes), step):
            code = codes[i, w]
            sampled += 1
            for bit in range(64):
                ones[bit] += np.int64(code >> np.uint64(bit) & np.uint64(1))
        for bit in range(64):
            uneven = abs(2 * ones[bit] - sampled)
            if uneven < least and free >> np.uint64(bit) & np.uint64(1):
                best, least = 64 * w + bit, uneven
    return best


@njit(cache=True, nogil=True)
def _split(codes: Nodes, order: Numbers, bit: int, spare: Nodes, spare_order: Numbers) -> Any:  # noqa: ANN401  a number
    """Move the codes without a bit before those with it, each in their former order, and return how many are without."""
    words, word, place = codes.shape[1], bit // 64, np.uint64(bit % 64)
    left, right = np.int64(0), np.int64(0)
    for i in range(len(codes)):
        # Both places are written, because a branch on a random bit takes longer.
        has = np.int64(codes[i, word] >> place & np.uint64(1))
        for w in range(words):
            spare[right, w] = codes[i, w]
            codes[left, w] = codes[i, w]
        spare_order[right] = order[i]
        order[left] = order[i]
        right += has
        left += 1 - has
    codes[left:] = spare[:right]
    order[left:] = spare_order[:right]
    return left


@njit(cache=True, nogil=True)
def build(codes: Nodes, order: Numbers, most: int) -> Any:  # noqa: ANN401  an array
    """Sort codes, ``(n, W)``, into a trie, and return its nodes, ``(nodes, 2 W + 2)``. The first is the root.

    The codes and ``order``, ``(n,)``, are put into the order of the trie. Leaves have at most ``most`` codes, or equal ones.
    """
    count, words = codes.shape
    nodes = np.empty((2 * count, 2 * words + 2), np.uint64)  # of which most will not be used, and take no memory
    spare, spare_order, ones = np.empty_like(codes), np.empty_like(order), np.empty(64, np.int64)
    waiting = np.empty((64 * words + 2, 3), np.int64)
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, 0, count
    left, used = 1, 1
    while left:
        left -= 1
        node, start, end = waiting[left, 0], waiting[left, 1], waiting[left, 2]
        some = codes[start:end]
        _describe(some, nodes[node])
        if nodes[node, 2 * words + 1] == _NONE or end - start <= most:
            nodes[node, 2 * words] = np.uint64(start) | np.uint64(end - start) << np.uint64(32)
            continue
        bit = _most_even_bit(some, nodes[node], ones)
        middle = start + _split(some, order[start:end], bit, spare, spare_order)
        nodes[node, 2 * words] = used
        waiting[left, 0], waiting[left, 1], waiting[left, 2] = used + 1, middle, end
        waiting[left + 1, 0], waiting[left + 1, 1], waiting[left + 1, 2] = used, start, middle
        left, used = left + 2, used + 2
    return nodes[:used].copy()


@njit(cache=True, nogil=True)
def _codes_of(nodes: Nodes, node: int) -> Any:  # noqa: ANN401  two numbers
    """Return the first child of a node and 0, or the first slot and the number of codes of a leaf."""
    packed = nodes[node, nodes.shape[1] - 2]
    return np.int64(packed & _HALF), np.int64(packed >> np.uint64(32))


@njit(cache=True, nogil=True)
def _bound(nodes: Nodes, node: int, asked: Nodes) -> Any:  # noqa: ANN401  a number
    """Return the bound of a node for a query ``(W,)``."""
    words = len(asked)
    distance = ones = np.int64(0)
    for w in range(words):
        mask = nodes[node, words + w]
        distance += np.int64(bit_distance(asked[w] & mask, nodes[node, w]))
        ones += np.int64(bit_distance(asked[w] & ~mask, _NONE))
    numbers: Any = nodes[node, 2 * words + 1]
    low, high = np.int64(numbers & _SHORT), np.int64(numbers >> np.uint64(16))
    return distance + max(np.int64(0), low - ones, ones - high)


@njit(cache=True, nogil=True)
def _measure_groups(blocks: Blocks, first: int, last: int, query: Blocks, distances: Buffer) -> Any:  # noqa: ANN401
    """Write the distances between a query and the groups of codes that hold the slots from first to last, and return them.

    Those of the codes before the first slot are replaced by the largest number.
    """
    start = first // GROUP * GROUP
    for place in range(start, last, GROUP):
        block, column = divmod(place, blocks.shape[2])
        part = distances[place - start : place - start + GROUP]
        part[:] = 0
        for w in range(len(query)):
            row, byte = blocks[block, w][column : column + GROUP], query[w]
            for i in range(GROUP):
                part[i] += bit_distance(row[i], byte)
    distances[: first - start] = -1
    return distances[: -(-(last - start) // GROUP) * GROUP]


@njit(cache=True, nogil=True)
def _count_leaf(nodes: Nodes, codes: Stored, node: int, bound: int, query: Blocks, k: int, work: Work) -> Any:  # noqa: ANN401  a number
    """Count the codes of a leaf that lie within the cut, and return their number."""
    (blocks, passing), (distances, state, counts) = codes, work
    first, count = _codes_of(nodes, node)
    if nodes[node, nodes.shape[1] - 1]:
        measured = _measure_groups(blocks, first, first + count, query, distances)
        return admit(first // GROUP * GROUP, first + count, k, passing, measured, state, counts, None)
    live, (alive, rows) = count, passing
    if alive is not None:
        live = 0
        for slot in range(first, first + count):
            live += passes(alive, rows, slot)
    counts[bound] += live
    if bound < state[2]:
        state[1] += live
        narrow(k, state, counts)
    return live


@njit(cache=True, nogil=True)
def search(nodes: Nodes, codes: Stored, asked: Nodes, query: Blocks, k: int, budget: int, work: Work) -> Any:  # noqa: ANN401  an array
    """Visit nodes until those left lie beyond the cut, and return the leaves with codes within it and their bounds.

    Nodes wait in one list per bound, and those at the lowest bound come first. ``asked`` is the query as words, ``budget``
    the most cost in codes of a scan, and ``work`` a work array as for `kernels.nearest`, and the state and the counts of
    `kernels.narrow_all` for the query.

    Returns:
        ``(n, 2)`` int32 leaves and bounds, and whether the budget sufficed. If not, the state keeps the cut alone.
    """
    distances, state, counts = work
    before, heads = counts.copy(), np.full(len(counts), -1, np.int32)
    pending = np.empty((2 * (budget // NODE_COST) + 6, 2), np.int32)
    leaves = np.empty((budget // (NODE_COST + LEAF_COST) + 2, 2), np.int32)
    nearest = _bound(nodes, 0, asked)
    pending[0, 0], pending[0, 1], heads[nearest] = 0, -1, 0
    pushed, visited = 1, 0
    while nearest <= state[2] and budget >= 0:
        entry = heads[nearest]
        if entry < 0:
            nearest += 1
            continue
        node, heads[nearest] = pending[entry, 0], pending[entry, 1]
        first, count = _codes_of(nodes, node)
        budget -= NODE_COST
        if count:
            budget -= LEAF_COST + min(count, len(distances))
            if _count_leaf(nodes, codes, node, nearest, query, k, work):
                leaves[visited, 0], leaves[visited, 1] = node, nearest
                visited += 1
            continue
        for child in range(first, first + 2):
            bound = _bound(nodes, child, asked)
            if bound <= state[2]:
                pending[pushed, 0], pending[pushed, 1], heads[bound] = child, heads[bound], pushed
                pushed += 1
    if budget < 0:
        counts[:] = before
        state[1] = counts[: state[2]].sum()
    return leaves[:visited], budget >= 0


@njit(cache=True, nogil=True)
def within_cut(
    nodes: Nodes, codes: Stored, leaves: Numbers, query: Blocks, distances: Buffer, cut: int, total: int
) -> Any:  # noqa: ANN401  two arrays
    """Return the slots and distances of all ``total`` codes within a cut, which are in the leaves that `search` found."""
    blocks, (alive, rows) = codes
    found, measured, kept = np.empty(total, np.int64), np.empty(total, np.int32), 0
    for leaf in range(len(leaves)):
        first, count = _codes_of(nodes, leaves[leaf, 0])
        equal = nodes[leaves[leaf, 0], nodes.shape[1] - 1] == _NONE
        if not equal:
            _measure_groups(blocks, first, first + count, query, distances)
        for i in range(count):
            distance = np.int64(leaves[leaf, 1]) if equal else np.int64(distances[first % GROUP + i])
            if distance <= cut and passes(alive, rows, first + i):
                found[kept], measured[kept] = first + i, distance
                kept += 1
    return found, measured
