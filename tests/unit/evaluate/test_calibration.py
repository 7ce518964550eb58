"""Probabilities by distance: isotonic, calibrated on what they were learned from, and with the bar of the promised share."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.evaluate import calibration as module
from silohash.evaluate.calibration import (
    Calibration,
    HitCounts,
    decreasing,
    hit_counts,
)
from silohash.evaluate.ties import Histogram


def counts_of(right: list[float], items: list[float], nearest: list[float]) -> HitCounts:
    return HitCounts(*(np.array(values, np.float64) for values in (right, items, nearest)))


@pytest.mark.parametrize("seed", range(8))
def test_isotonic_values_equal_the_min_max_formula(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values, weights = generator.random(9), generator.integers(1, 6, 9).astype(float)

    def mean(first: int, last: int) -> float:
        return float(np.average(values[first : last + 1], weights=weights[first : last + 1]))

    wanted = [min(max(mean(a, b) for b in range(i, 9)) for a in range(i + 1)) for i in range(9)]
    assert decreasing(values, weights) == pytest.approx(wanted)


@pytest.mark.parametrize("cutoff", [1, 2, 3, None])
def test_hits_are_counted_as_in_the_mean_over_all_orders_of_ties(cutoff: int | None) -> None:
    distances, right = np.array([[0, 2, 2, 3], [1, 1, 1, 3]]), np.array([[1, 0, 1, 0], [0, 0, 1, 1]])
    histogram = np.zeros((2, 4, 2), np.int64)
    for query, item in np.ndindex(2, 4):
        histogram[query, distances[query, item], right[query, item]] += 1
    generator, draws = np.random.default_rng(0), 4000
    wanted = np.zeros((2, 4))
    for query in range(2):
        for _ in range(draws):
            shuffled = generator.permutation(4)
            first = shuffled[np.argsort(distances[query][shuffled], kind="stable")][:cutoff]
            np.add.at(wanted[0], distances[query][first], right[query][first] / draws)
            np.add.at(wanted[1], distances[query][first], 1 / draws)
    found = hit_counts(Histogram(histogram), cutoff)
    assert found.right == pytest.approx(wanted[0], abs=0.05)
    assert found.items == pytest.approx(wanted[1], abs=0.05)
    assert found.nearest.tolist() == [1, 1, 0, 0]


def test_probabilities_do_not_rise_and_fill_distances_without_items() -> None:
    found = Calibration.learned(counts_of([0, 90, 0, 60, 0], [0, 100, 0, 100, 0], [0, 15, 0, 5, 0]))
    assert found is not None
    assert found.probabilities == tuple(sorted(found.probabilities, reverse=True))
    assert found.probabilities[0] == found.probabilities[1] == pytest.approx(0.9, abs=0.02)
    assert found.probabilities[3] == pytest.approx(0.6, abs=0.02)
    assert found.probability(99) == found.probabilities[4]
    assert found.queries == 20


def test_a_few_items_do_not_make_a_hit_certain() -> None:
    found = Calibration.learned(counts_of([1, 10], [1, 100], [1, 99]))
    assert found is not None
    assert found.probabilities[0] < 0.6


@pytest.mark.parametrize(
    ("nearest", "bar"), [([18, 1, 1], 1), ([19, 0, 1], 0), ([18, 0, 2], 2), ([9, 1, 0], 1), ([5, 0, 0], 0)]
)
def test_at_most_the_promised_share_of_queries_is_beyond_the_bar(nearest: list[float], bar: int) -> None:
    found = Calibration.learned(counts_of([5, 5, 5], [10, 10, 10], nearest))
    assert found is not None
    assert found.bar_bits == bar
    assert sum(nearest[bar + 1 :]) <= module.MOST_REFUSED * sum(nearest) + 1e-9


def test_without_queries_or_right_items_nothing_is_learned() -> None:
    assert Calibration.learned(counts_of([0, 0], [0, 0], [0, 0])) is None
    assert Calibration.learned(counts_of([0, 0], [5, 5], [1, 1])) is None


def test_strength_follows_the_probability_and_the_bar() -> None:
    learned = Calibration((0.95, module.STRONG, 0.79, module.LIKELY, 0.1, 0.1), 4, 10)
    judged = [learned.judged(distance) for distance in range(7)]
    assert [name for _, name in judged] == ["strong", "strong", "likely", "likely", "weak", "none", "none"]
    assert [p for p, _ in judged] == [*learned.probabilities, 0.1]
    assert [learned.judged(distance, bar=0.6)[1] for distance in (2, 3)] == ["likely", "none"]
    assert learned.judged(5, bar=0.0)[1] == "weak"


def test_words_that_the_model_does_not_know_give_no_strength() -> None:
    learned = Calibration((0.9,), 0, 10)
    assert learned.judged(0, known=0.75) == (pytest.approx(0.675), "likely")
    assert learned.judged(0, known=0.5)[1] == "weak"
    assert learned.judged(0, known=0.49)[1] == "none"
    assert learned.judged(0, known=0.49, bar=0.0)[1] == "none"
    assert learned.judged(0, known=0.0) == (0.0, "none")
