"""The figures of attacks equal explicit loops, find what is there, and find nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.runtime.audit.attacks import area_under_curve, explained_share, mean_estimate, ridge_predictions

GENERATOR = np.random.default_rng(0)


def test_the_area_counts_pairs_and_half_of_the_ties() -> None:
    positive, negative = GENERATOR.integers(0, 6, 40), GENERATOR.integers(0, 5, 30)
    by_hand = np.mean([float(p > n) + 0.5 * float(p == n) for p in positive for n in negative])
    found = area_under_curve(positive, negative)
    assert found.value == pytest.approx(by_hand)
    assert 0 <= found.low < found.value < found.high <= 1


def test_intervals_cover_the_true_area() -> None:
    """Scores of a normal distribution that is shifted by 1 separate with probability 0.7602."""
    covered = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        found = area_under_curve(generator.normal(1.0, 1.0, 60), generator.normal(0.0, 1.0, 60))
        covered += found.low <= 0.7602 <= found.high
    assert 180 <= covered <= 200


@pytest.mark.parametrize(("shift", "low", "high"), [(0.0, 0.45, 0.55), (5.0, 0.99, 1.0)])
def test_equal_scores_are_guesses_and_separate_ones_are_found(shift: float, low: float, high: float) -> None:
    found = area_under_curve(GENERATOR.normal(shift, 1, 2000), GENERATOR.normal(0, 1, 2000))
    assert low <= found.value <= high
    assert area_under_curve(np.ones(5), np.ones(7)).value == 0.5


def test_the_mean_of_areas_has_a_narrower_interval() -> None:
    one = area_under_curve(GENERATOR.normal(1, 1, 100), GENERATOR.normal(0, 1, 100))
    found = mean_estimate([one] * 4)
    assert found.value == pytest.approx(one.value)
    assert found.high - found.low == pytest.approx((one.high - one.low) / 2)


def test_ridge_finds_a_linear_map_and_nothing_in_noise() -> None:
    inputs, noise = GENERATOR.normal(size=(400, 10)), GENERATOR.normal(size=(400, 3))
    linear = inputs @ GENERATOR.normal(size=(10, 3)) + 2.0
    for targets, low, high in ((linear, 0.99, 1.0), (noise, -0.2, 0.05)):
        predicted = ridge_predictions(inputs[:200], targets[:200], inputs[200:])
        found = explained_share(predicted, targets[200:])
        assert low <= found.value <= high
        assert found.low < found.value < found.high


def test_the_mean_explains_nothing() -> None:
    true = GENERATOR.normal(size=(50, 4))
    assert explained_share(np.tile(true.mean(axis=0), (50, 1)), true).value == pytest.approx(0.0)
    assert explained_share(true, true).value == 1.0
