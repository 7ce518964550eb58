"""Probabilities by distance: calibrated on what they were learned from, and the bar of the promised share."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.evaluate import calibration as module
from silohash.evaluate.calibration import (
    HITS_COUNTED,
    Calibration,
    HitCounts,
    calibration_error,
    hit_counts,
    reliability,
)
from silohash.evaluate.ties import Histogram

BITS = 16


def histogram_of(distances: np.ndarray, right: np.ndarray, bits: int = BITS) -> Histogram:
    counts = np.zeros((len(distances), bits + 1, 2), np.int64)
    rows = np.arange(len(distances))[:, None]
    np.add.at(counts, (rows, distances, right.astype(int)), 1)
    return Histogram(counts)


def searches(items: int, queries: int, *, seed: int = 0) -> HitCounts:
    """Count queries among two groups of items, of which the right one is nearer to most queries but not to all."""
    generator = np.random.default_rng(seed)
    right = generator.random((queries, items)) < 0.5
    middles = np.where(right, generator.normal(7, 2, (queries, 1)), generator.normal(9, 2, (queries, 1)))
    distances = generator.normal(middles, 2).round().clip(0, BITS).astype(int)
    return hit_counts(histogram_of(distances, right))


def error(calibration: Calibration, counts: HitCounts) -> float:
    """Return the mean probability of the hits less the share that is right."""
    found = np.array([calibration.probability(d, int(counts.searched[0])) for d in range(BITS + 1)])
    return float((counts.items * found - counts.right).sum() / counts.items.sum())


def test_hits_are_counted_as_in_the_mean_over_all_orders_of_ties() -> None:
    distances = np.array([[0, 2, 2, 3, *[3] * 8], [1, 1, 1, 3, *[3] * 8]])
    right = np.array([[1, 0, 1, 0, *[0] * 8], [0, 0, 1, 1, *[0] * 8]])
    generator, draws = np.random.default_rng(0), 4000
    wanted = np.zeros((2, HITS_COUNTED, 4))
    for query in range(2):
        for _ in range(draws):
            shuffled = generator.permutation(12)
            first = shuffled[np.argsort(distances[query][shuffled], kind="stable")][:HITS_COUNTED]
            np.add.at(wanted[0], (np.arange(HITS_COUNTED), distances[query][first]), right[query][first] / draws)
            np.add.at(wanted[1], (np.arange(HITS_COUNTED), distances[query][first]), 1 / draws)
    found = hit_counts(histogram_of(distances, right, bits=3))
    assert found.right == pytest.approx(wanted[0], abs=0.05)
    assert found.items == pytest.approx(wanted[1], abs=0.05)
    assert found.nearest.tolist() == [1, 1, 0, 0]
    assert found.searched.tolist() == [12]


def test_probabilities_do_not_rise_with_the_distance_or_with_the_number_of_items() -> None:
    found = Calibration.learned([searches(300, 400)])
    assert found is not None
    values = [found.probability(distance, 300) for distance in range(BITS + 1)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.8 > 0.3 > values[-1]
    assert found.probability(5, 600) <= found.probability(5, 300)
    assert found.probability(5) == found.probability(5, found.searched)
    assert (found.queries, found.searched) == (400, 300)


def test_what_silos_learn_among_few_items_holds_among_many() -> None:
    silos = [searches(200, 100, seed=seed) for seed in range(10)]
    found, pooled = Calibration.learned(silos), searches(20_000, 200, seed=99)
    assert found is not None
    assert abs(error(found, silos[0])) < 0.05
    assert abs(error(found, pooled)) < 0.05
    assert error(found, pooled._replace(searched=silos[0].searched)) > 0.06


def test_a_few_items_do_not_make_a_hit_certain() -> None:
    one = hit_counts(histogram_of(np.zeros((1, 1), int), np.ones((1, 1), int)))
    found = Calibration.learned([one])
    assert found is not None
    assert found.probability(0) < 0.75


@pytest.mark.parametrize(
    ("nearest", "bar"), [([18, 1, 1], 1), ([19, 0, 1], 0), ([18, 0, 2], 2), ([9, 1, 0], 1), ([5, 0, 0], 0)]
)
def test_at_most_the_promised_share_of_queries_is_beyond_the_bar(nearest: list[int], bar: int) -> None:
    distances = np.repeat(np.arange(3), nearest)[:, None]
    found = Calibration.learned([hit_counts(histogram_of(distances, np.ones_like(distances), bits=2))])
    assert found is not None
    assert found.bar_bits == bar
    assert sum(nearest[bar + 1 :]) <= module.MOST_REFUSED * sum(nearest) + 1e-9


def test_without_queries_or_right_items_nothing_is_learned() -> None:
    assert Calibration.learned([]) is None
    assert Calibration.learned([hit_counts(histogram_of(np.zeros((3, 4), int), np.zeros((3, 4), int)))]) is None


def test_strength_follows_the_probability_and_the_bar() -> None:
    learned = Calibration(3.0, 1.0, 0.0, 4, 10, 100)
    judged = [learned.judged(distance) for distance in range(7)]
    assert [name for _, name in judged] == ["strong", "strong", "likely", "likely", "weak", "none", "none"]
    assert [p for p, _ in judged] == pytest.approx([1 / (1 + np.exp(distance - 3)) for distance in range(7)])
    assert [learned.judged(distance, bar=0.6)[1] for distance in (2, 3)] == ["likely", "none"]
    assert learned.judged(5, bar=0.0)[1] == "weak"
    assert Calibration(3.0, 1.0, 0.5, 4, 10, 100).judged(0, searched=10**6)[1] == "weak"


def test_words_that_the_model_does_not_know_give_no_strength() -> None:
    learned = Calibration(float(np.log(9)), 0.0, 0.0, 0, 10, 100)
    assert learned.judged(0, known=0.75) == (pytest.approx(0.675), "likely")
    assert learned.judged(0, known=0.5)[1] == "weak"
    assert learned.judged(0, known=0.39)[1] == "none"
    assert learned.judged(0, known=0.39, bar=0.0)[1] == "none"
    assert learned.judged(0, known=0.0) == (0.0, "none")


def test_unknown_words_take_up_their_share_of_the_bar() -> None:
    learned = Calibration(3.0, 0.0, 0.0, 20, 10, 100)
    found = [
        [learned.judged(distance, known=known)[1] != "none" for distance in (10, 12, 20)] for known in (0.5, 0.6, 1)
    ]
    assert found == [[True, False, False], [True, True, False], [True] * 3]
    assert learned.judged(20, known=0.5, bar=0.3)[1] == "weak"


def test_reliability_compares_probabilities_with_what_is_right() -> None:
    counts = searches(300, 50)
    found, items = Calibration(2.0, 0.3, 0.0, 9, 1, 300), counts.items.sum(0)
    sure = reliability(found, [counts, counts])
    wanted = []
    for tenth in range(10):
        inside = [d for d in range(BITS + 1) if tenth <= 10 * found.probability(d) < tenth + 1 and items[d]]
        hits = sum(items[d] for d in inside)
        if hits:
            mean = sum(items[d] * found.probability(d) for d in inside) / hits
            wanted.append((mean, sum(counts.right.sum(0)[d] for d in inside) / hits, hits / items.sum()))
    assert len(wanted) > 2
    assert [list(each) for each in sure] == [pytest.approx(each) for each in wanted]
    assert sum(share for _, _, share in sure) == pytest.approx(1)
    assert calibration_error([(0.9, 0.8, 0.75), (0.2, 0.6, 0.25)]) == pytest.approx(0.175)
