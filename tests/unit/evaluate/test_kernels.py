"""Compiled loops against plain ones, at the edges of words, lanes and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.evaluate import kernels
from silohash.evaluate.relevance import to_words
from tests.unit.evaluate.rankings import pack


@pytest.mark.parametrize("count", [1, 63, 64, 65, 4097])
@pytest.mark.parametrize("bits", [12, 64, 70])
def test_bit_planes_hold_bit_p_of_item_i_in_lane_i(count, bits):
    signs = np.random.default_rng(count).integers(0, 2, (count, bits), dtype=np.uint8)
    planes = np.zeros((-(-count // kernels.BLOCK_ITEMS), bits, kernels.LANES), np.uint64)
    kernels.bit_planes(to_words(pack(signs), bits), planes)
    items = np.unpackbits(planes.view(np.uint8).reshape(len(planes), bits, -1), axis=2, bitorder="little")
    found = items.transpose(0, 2, 1).reshape(-1, bits)
    np.testing.assert_array_equal(found[:count], signs)
    assert not found[count:].any()


@pytest.mark.parametrize("bits", [5, 64, 100])
def test_gains_are_sorted_by_distance_and_ties_keep_their_order(bits):
    generator = np.random.default_rng(bits)
    queries, items = (generator.integers(0, 2, (count, bits), dtype=np.uint8) for count in (3, 50))
    gains = np.arange(150, dtype=np.uint16).reshape(3, 50)
    out = np.empty_like(gains)
    kernels.order_gains(to_words(pack(queries), bits), to_words(pack(items), bits), bits, gains, out)
    for query in range(3):
        distance = [sum(int(a != b) for a, b in zip(queries[query], item, strict=True)) for item in items]
        order = sorted(range(50), key=lambda item: (distance[item], item))
        assert out[query].tolist() == [int(gains[query, item]) for item in order]


def test_counts_by_the_nearest_of_several_codes():
    queries = np.array([[1, 0]], np.uint64)
    sides = np.array([[[126, 0], [1, 3], [1, 0]], [[62, 0], [1, 15], [2, 0]]], np.uint64)
    held = np.array([[True, True, False], [True, True, True]])
    labels = np.array([[0b1], [0b111], [0b110]], np.uint64)
    counts = np.zeros((1, 129, 3), np.int64)
    kernels.count_nearest(queries, sides, held, np.array([[0b111]], np.uint64), labels, counts)
    expected = np.zeros_like(counts)
    expected[0, 6, 1] = 1  # seven bits on the first side and six on the second, one shared label
    expected[0, 2, 2] = 2  # two bits on the first side and three labels, counted as two; two bits on the only side
    np.testing.assert_array_equal(counts, expected)
    kernels.count_nearest(queries, sides[:1], held[:1] | True, np.zeros((1, 0), np.uint64), labels[:, :0], counts)
    expected[0, [7, 2, 0], 0] += 1
    np.testing.assert_array_equal(counts, expected)
