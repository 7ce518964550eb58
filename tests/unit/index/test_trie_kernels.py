"""The nodes of a trie against the codes that they stand for, and its search against explicit distances."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.index.flat import filled_blocks
from silohash.index.trie_kernels import build, search, within_cut

ALL = np.uint64(2**64 - 1)


def collapsed(count, words, seed=0):
    """Return codes ``(count, words)`` around a few centers, of which many are equal."""
    generator = np.random.default_rng(seed)
    centers = generator.integers(0, 2**64, (5, words), dtype=np.uint64)
    flips = np.uint64(1) << generator.integers(0, 64, (count, words), dtype=np.uint64)
    return centers[generator.integers(0, 5, count)] ^ np.where(generator.random((count, words)) < 0.6, flips, 0)


def ones(words):
    return np.bitwise_count(words).sum(axis=1).astype(int)


@pytest.mark.parametrize("words", [1, 2, 4])
def test_nodes_describe_their_codes(words):
    codes = collapsed(3000, words)
    original, rows = codes.copy(), np.arange(3000, dtype=np.int32)
    nodes = build(codes, rows, 20)
    assert (original[rows] == codes).all()
    seen = []

    def check(node):
        """Return the slots of a node, after checking what it says of them."""
        value, mask, packed, numbers = (
            nodes[node, :words],
            nodes[node, words:-2],
            int(nodes[node, -2]),
            int(nodes[node, -1]),
        )
        if packed >> 32:
            slots = list(range(packed & 0xFFFFFFFF, (packed & 0xFFFFFFFF) + (packed >> 32)))
            assert len(slots) <= 20 or (mask == ALL).all()
            seen.extend(slots)
        else:
            one, two = check(packed), check(packed + 1)
            assert one
            assert two
            slots = one + two
        some = codes[slots]
        assert (mask == ~(np.bitwise_or.reduce(some) ^ np.bitwise_and.reduce(some))).all()
        assert ((some & mask) == value).all()
        outside = ones(some & ~mask)
        assert (numbers & 0xFFFF, numbers >> 16) == (outside.min(), outside.max())
        return slots

    check(0)
    assert sorted(seen) == list(range(3000))


def found(codes, asked, k, budget=10**7, alive=None, limit=None):
    """Return (distance, row) of what a search finds, its cut, and whether the budget sufficed."""
    ordered, rows = codes.copy(), np.arange(len(codes), dtype=np.int32)
    nodes = build(ordered, rows, 20)
    bits = 64 * codes.shape[1]
    state, counts = np.array([0, 0, bits if limit is None else limit]), np.zeros(bits + 2, np.int64)
    scratch = np.empty(2048, np.uint16 if bits > 255 else np.uint8)
    given = filled_blocks(ordered.view(np.uint8)), (alive, rows)
    query = asked.view(np.uint8)
    leaves, done = search(nodes, given, asked, query, k, budget, (scratch, state, counts))
    slots, measured = np.empty(0, np.int64), np.empty(0, np.int32)
    if done:
        total = int(state[1] + counts[state[2]])
        slots, measured = within_cut(nodes, given, leaves, query, scratch, state[2], total)
    return done, sorted(zip(measured.tolist(), rows[slots].tolist(), strict=True)), int(state[2]), counts


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("k", [1, 10, 700])
@pytest.mark.parametrize("dead", [False, True])
def test_a_search_finds_all_codes_up_to_the_kth_distance(words, k, dead):
    codes = collapsed(3000, words, 1)
    alive = (np.random.default_rng(2).random(3000) < 0.5).astype(np.uint8) if dead else None
    for asked in (codes[5], collapsed(1, words, 3)[0], ~codes[7]):
        plain = [
            (int(distance), row) for row, distance in enumerate(ones(codes ^ asked)) if alive is None or alive[row]
        ]
        cut = sorted(plain)[k - 1][0]
        done, got, at, _ = found(codes, asked, k, alive=alive)
        assert done
        assert (got, at) == (sorted(pair for pair in plain if pair[0] <= cut), cut)
        _, limited, *_ = found(codes, asked, k, alive=alive, limit=cut - 1 if cut else 0)
        assert limited == sorted(pair for pair in plain if pair[0] <= max(0, cut - 1))


def test_a_search_that_costs_too_much_keeps_only_its_cut():
    codes = np.random.default_rng(0).integers(0, 2**64, (3000, 1), dtype=np.uint64)
    asked = np.array([1234567], np.uint64)
    cut = int(np.sort(ones(codes ^ asked))[9])
    done, got, at, counts = found(codes, asked, 10, budget=5_000)
    assert not done
    assert got == []
    assert cut <= at < 64
    assert not counts.any()
