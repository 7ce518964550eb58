"""Measures of rankings in a known order, against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.evaluate.ranked import average_precision, first_rank, hits, ndcg
from tests.unit.evaluate import rankings

GAINS = np.random.default_rng(4).integers(0, 4, (6, 12)) * (np.random.default_rng(5).random((6, 12)) < 0.5)
GAINS[3] = 0


@pytest.mark.parametrize("denominator", ["retrieved", "min", "first-k-relevant", "all"])
@pytest.mark.parametrize("cutoff", [1, 2, 5, 12, 40])
def test_average_precision(denominator, cutoff):
    found = average_precision(GAINS.astype(np.uint16), cutoff, denominator)
    plain = [rankings.average_precision(row, cutoff, denominator) for row in GAINS.tolist()]
    np.testing.assert_allclose(found, plain, atol=1e-12)


def test_average_precision_of_all_items():
    plain = [rankings.average_precision(row, 12, "all") for row in GAINS.tolist()]
    np.testing.assert_allclose(average_precision(GAINS.astype(np.uint16), None, "retrieved"), plain, atol=1e-12)


@pytest.mark.parametrize("cutoff", [1, 3, None])
def test_hits(cutoff):
    assert hits(GAINS.astype(np.uint16), cutoff).tolist() == [
        sum(g > 0 for g in row[:cutoff]) for row in GAINS.tolist()
    ]


@pytest.mark.parametrize(("gain", "worth"), [("linear", lambda s: s), ("exponential", lambda s: 2**s - 1)])
@pytest.mark.parametrize("cutoff", [1, 3, 12])
def test_ndcg(gain, worth, cutoff):
    found = ndcg(GAINS.astype(np.uint16), cutoff, gain)
    np.testing.assert_allclose(found, [rankings.ndcg(row, cutoff, worth) for row in GAINS.tolist()], atol=1e-12)
    np.testing.assert_allclose(
        ndcg(GAINS.astype(np.uint16), None, gain), [rankings.ndcg(row, 12, worth) for row in GAINS.tolist()], atol=1e-12
    )


def test_first_rank():
    gains = np.array([[0, 0, 2, 1], [1, 0, 0, 0], [0, 0, 0, 0]], np.uint16)
    assert first_rank(gains).tolist() == [3.0, 1.0, 5.0]
