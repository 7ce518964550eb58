"""Precision and recall by radius, worked out by hand."""

import numpy as np

from silohash.evaluate.curves import precision_recall
from silohash.evaluate.ties import Histogram


def test_precision_and_recall_by_radius():
    counts = Histogram(np.array([[[0, 1], [3, 0], [0, 1]], [[0, 0], [2, 2], [1, 0]]]))
    curve = precision_recall(counts)
    assert curve.radius_bits.tolist() == [0, 1, 2]
    np.testing.assert_allclose(curve.precision, [0.5, (1 / 4 + 1 / 2) / 2, (2 / 5 + 2 / 5) / 2])
    np.testing.assert_allclose(curve.recall, [0.25, 0.75, 1.0])
    np.testing.assert_allclose(curve.items, [0.5, 4.0, 5.0])
