"""Epsilon equals what is worked out by hand, and sampling lowers it only where items or silos are sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from silohash.training.privacy.accounting import epsilon_of_noise, epsilon_of_sampled_silos, epsilon_of_samples, joint

DELTA = 1e-5


def delta_of(epsilon: float, multiplier: float) -> float:
    """Delta of one Gaussian release at an epsilon; Balle and Wang, theorem 8."""
    half, rest = 1 / (2 * multiplier), epsilon * multiplier
    return norm.cdf(half - rest) - math.exp(epsilon) * norm.cdf(-half - rest)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_epsilon_of_one_release_is_exact(multiplier: float) -> None:
    epsilon = epsilon_of_noise([multiplier], delta=DELTA)
    assert delta_of(epsilon, multiplier) == pytest.approx(DELTA, rel=1e-3)


def test_four_releases_are_worth_one_with_half_the_noise() -> None:
    assert epsilon_of_noise([2.0] * 4, delta=DELTA) == pytest.approx(epsilon_of_noise([1.0], delta=DELTA))
    assert joint([3.0, 4.0]) == pytest.approx(2.4)


def test_without_releases_nothing_is_lost_and_without_noise_everything() -> None:
    assert epsilon_of_noise([], delta=DELTA) == 0.0
    assert epsilon_of_samples(1.0, 0.1, 0, delta=DELTA) == 0.0
    assert epsilon_of_noise([1.0, 0.0], delta=DELTA) == math.inf


def divergence(order: int, rate: float, multiplier: float) -> float:
    """Rényi divergence of one step with a random sample, for an integer order; Mironov et al., section 3.3."""
    terms = [
        math.comb(order, k) * (1 - rate) ** (order - k) * rate**k * math.exp((k * k - k) / (2 * multiplier**2))
        for k in range(order + 1)
    ]
    return math.log(sum(terms)) / (order - 1)


@pytest.mark.parametrize(("rate", "steps", "multiplier"), [(0.05, 100, 1.0), (0.2, 40, 2.0)])
def test_epsilon_of_samples_follows_from_the_divergences(rate: float, steps: int, multiplier: float) -> None:
    found = epsilon_of_samples(multiplier, rate, steps, delta=DELTA)
    by_hand = min(
        steps * divergence(order, rate, multiplier) + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1)
        for order in range(2, 33)
    )
    assert found <= by_hand + 1e-9
    assert found == pytest.approx(by_hand, rel=0.02)


def test_samples_reveal_less_than_all_items_and_statistics_add_to_them() -> None:
    everything = epsilon_of_samples(1.0, 1.0, 50, delta=DELTA)
    assert everything == epsilon_of_noise([1.0] * 50, delta=DELTA)
    some = epsilon_of_samples(1.0, 0.1, 50, delta=DELTA)
    assert some < everything / 4
    assert epsilon_of_samples(1.0, 0.1, 50, statistics=[4.0], delta=DELTA) > some
    assert epsilon_of_samples(1.0, 1.0, 50, statistics=[4.0], delta=DELTA) > everything


def test_silos_that_are_drawn_reveal_less_only_if_few_are_drawn() -> None:
    rounds = [3.0] * 20
    always = epsilon_of_noise(rounds, delta=DELTA)
    assert epsilon_of_sampled_silos(rounds, drawn=10, silos=10, delta=DELTA) == always
    assert epsilon_of_sampled_silos(rounds, drawn=9, silos=10, delta=DELTA) == always
    assert epsilon_of_sampled_silos(rounds, drawn=10, silos=1000, delta=DELTA) < always / 2


def test_epsilon_grows_with_every_step_and_falls_with_the_noise() -> None:
    growing = [epsilon_of_samples(1.0, 0.1, steps, delta=DELTA) for steps in (1, 10, 100)]
    falling = [epsilon_of_samples(noise, 0.1, 10, delta=DELTA) for noise in (0.6, 1.0, 3.0)]
    assert np.all(np.diff(growing) > 0)
    assert np.all(np.diff(falling) < 0)
