"""Epsilon of every round is that of all rounds so far, over the largest silo share, also after a resumption."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from silohash.training.privacy.budget import (
    ASKED,
    MULTIPLIERS,
    Budget,
    epsilon_of_noise,
    epsilon_of_sampled_silos,
    epsilon_of_samples,
    joint,
    sampling,
)
from silohash.training.rounds import participants
from tests.runs import Records, prepared, run_loop

SIZES = (60, 40, 20)
DELTA = 1e-5


def inputs(unit: str, *, rounds: int = 3, silos: tuple[int, ...] = SIZES, federated: Any = None, **privacy):
    return prepared(
        silos, validation=0, local={"name": "csq"}, train={"batch": 16}, evaluate={"validation": 0.0},
        federated={"rounds": rounds, "local_epochs": 2, **(federated or {})},
        exchange={"privacy": {"unit": unit, "noise_multiplier": 2.0, **privacy}},
    )  # fmt: skip


def budget(unit: str, **more) -> Budget:
    made = inputs(unit, **more)
    return Budget(made.resolved, made.config.exchange.privacy, [train for _, train, _ in made.silos])


def test_epsilon_per_item_is_that_of_the_smallest_silo() -> None:
    """Its items take part in steps most often."""
    counts, spent = budget("record"), {}
    for number in range(1, 4):
        spent, record = counts.spent(spent, asked=[0, 1, 2], used=[0, 1, 2])
        rate, steps = sampling(20, 16)
        expected = epsilon_of_samples(2.0, rate, steps * 2 * number, delta=DELTA)
        assert record.epsilon == pytest.approx(expected)
        assert record.epsilon_server == record.epsilon
    assert spent[ASKED].tolist() == [3, 3, 3]


def test_a_silo_that_was_asked_counts_whether_or_not_it_answered() -> None:
    counts = budget("record")
    spent, _ = counts.spent({}, asked=[0, 2], used=[0])
    assert spent[ASKED].tolist() == [1, 0, 1]


def test_statistics_cost_a_release_per_round() -> None:
    plain = budget("record")
    paid = budget("record", federated={"name": "fedproc", "min_count": 1}, statistics_noise_multiplier=4.0)
    for found, statistics in ((plain, []), (paid, [4.0])):
        rate, steps = sampling(20, 16)
        expected = epsilon_of_samples(2.0, rate, steps * 2, statistics=statistics, delta=DELTA)
        assert found.spent({}, asked=[0, 1, 2], used=[0, 1, 2])[1].epsilon == pytest.approx(expected)


def test_epsilon_per_silo_is_that_of_noisy_sums_and_larger_for_the_server() -> None:
    counts, spent = budget("silo"), {}
    for number in range(1, 4):
        spent, record = counts.spent(spent, asked=[0, 1, 2], used=[0, 1, 2])
        assert record.epsilon == pytest.approx(epsilon_of_noise([2.0] * number, delta=DELTA))
        single = 2.0 / math.sqrt(2) / 2  # one silo's share of the noise, for a change by twice the limit
        assert record.epsilon_server == pytest.approx(epsilon_of_noise([single] * number, delta=DELTA))
        assert record.epsilon_server > record.epsilon


def test_the_noise_of_missing_silos_is_missing() -> None:
    counts = budget("silo")
    _, all_there = counts.spent({}, asked=[0, 1, 2], used=[0, 1, 2])
    spent, one_lost = counts.spent({}, asked=[0, 1, 2], used=[0, 2])
    assert one_lost.epsilon == pytest.approx(epsilon_of_noise([2.0 / math.sqrt(2)], delta=DELTA))
    assert one_lost.epsilon > all_there.epsilon
    assert spent[MULTIPLIERS][0, 1] == 0.0
    _, alone = counts.spent({}, asked=[0, 1, 2], used=[1])
    assert alone.epsilon is None


def test_drawing_silos_lowers_epsilon_only_where_silos_are_drawn() -> None:
    many = (10,) * 40
    drawn, everyone = budget("silo", silos=many, federated={"fraction": 0.05}), budget("silo", silos=many)
    assert (drawn.drawn, everyone.drawn) == (2, 40)
    _, few = drawn.spent({}, asked=[3, 5], used=[3, 5])
    _, all_of_them = everyone.spent({}, asked=range(40), used=range(40))
    assert few.epsilon == pytest.approx(epsilon_of_sampled_silos([2.0], drawn=2, silos=40, delta=DELTA))
    assert few.epsilon < all_of_them.epsilon == pytest.approx(epsilon_of_noise([2.0], delta=DELTA))
    items = budget("record", silos=many, federated={"fraction": 0.05}), budget("record", silos=many)
    epsilons = [found.spent({}, asked=[3, 5], used=[3, 5])[1].epsilon for found in items]
    assert epsilons[0] == epsilons[1]


@pytest.mark.whole_run
@pytest.mark.parametrize("unit", ["record", "silo"])
def test_every_round_has_its_epsilon_and_a_resumed_run_continues_with_it(unit: str) -> None:
    whole, parts, rest = Records(), Records(), Records()
    made = inputs(unit, repeatable=True)
    state = run_loop(made, whole)
    half = run_loop(made, parts, stop=2)
    resumed = run_loop(made, rest, state=half)
    epsilons = [record.privacy.epsilon for record in whole.records]
    assert epsilons == sorted(epsilons)
    assert epsilons == [record.privacy.epsilon for record in (*parts.records, *rest.records)]
    assert all(np.array_equal(resumed.server.params[n], array) for n, array in state.server.params.items())
    assert np.array_equal(resumed.server.private[ASKED], state.server.private[ASKED])


def test_who_takes_part_depends_on_the_secret() -> None:
    from silohash.training.rounds import RoundSettings

    settings = RoundSettings(rounds=1, silos=[str(n) for n in range(100)], fraction=0.1)
    keys = [np.full(32, value, np.uint8) for value in (1, 1, 2)]
    first, again, other = (participants(settings, 3, key) for key in keys)
    assert first == again
    assert first != other
    assert len(other) == 10
    assert participants(settings, 3) == participants(replace(settings, rounds=5), 3)


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
    rounds = [3.0] * 5
    always = epsilon_of_noise(rounds, delta=DELTA)
    assert epsilon_of_sampled_silos(rounds, drawn=10, silos=10, delta=DELTA) == always
    assert epsilon_of_sampled_silos(rounds, drawn=9, silos=10, delta=DELTA) == always
    assert epsilon_of_sampled_silos(rounds, drawn=10, silos=1000, delta=DELTA) < always / 2


def test_epsilon_grows_with_every_step_and_falls_with_the_noise() -> None:
    growing = [epsilon_of_samples(1.0, 0.1, steps, delta=DELTA) for steps in (1, 10, 100)]
    falling = [epsilon_of_samples(noise, 0.1, 10, delta=DELTA) for noise in (0.6, 1.0, 3.0)]
    assert np.all(np.diff(growing) > 0)
    assert np.all(np.diff(falling) < 0)
