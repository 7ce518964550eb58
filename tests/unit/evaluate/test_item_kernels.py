"""The compiled count of items by the nearest of their codes, on counts made by hand."""

import numpy as np

from silohash.evaluate.item_kernels import count_nearest


def test_counts_made_by_hand():
    queries = np.array([[1, 0]], np.uint64)
    sides = np.array([[[126, 0], [1, 3], [1, 0]], [[62, 0], [1, 15], [2, 0]]], np.uint64)
    held = np.array([[True, True, False], [True, True, True]])
    labels = np.array([[0b1], [0b111], [0b110]], np.uint64)
    counts = np.zeros((1, 129, 3), np.int64)
    count_nearest(queries, sides, held, np.array([[0b111]], np.uint64), labels, counts)
    expected = np.zeros_like(counts)
    expected[0, 6, 1] = 1  # seven bits on the first side and six on the second, one shared label
    expected[0, 2, 2] = 2  # two bits on the first side and three labels, counted as two; two bits on the only side
    np.testing.assert_array_equal(counts, expected)
    count_nearest(queries, sides[:1], held[:1] | True, np.zeros((1, 0), np.uint64), labels[:, :0], counts)
    expected[0, [7, 2, 0], 0] += 1
    np.testing.assert_array_equal(counts, expected)
