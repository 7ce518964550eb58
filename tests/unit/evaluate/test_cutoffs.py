"""Measures with a cutoff equal the mean, highest and lowest value over all orders of ties."""

import numpy as np
import pytest

from silohash.evaluate.cutoffs import average_precision_at, discount_sums, first_rank, gains_of, hits, ndcg, success
from silohash.evaluate.ties import Histogram
from tests.unit.evaluate import rankings

DENOMINATORS = ["retrieved", "min", "first-k-relevant", "all"]


def check_agrees(found, figure, groups):
    expected = rankings.over_orders(figure, groups)
    np.testing.assert_allclose([value[0] for value in found], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("cutoff", [1, 2, 3, 5, 8, 20])
def test_average_precision_of_each_convention_equals_the_mean_over_all_orders(denominator, cutoff):
    generator = np.random.default_rng([cutoff, DENOMINATORS.index(denominator)])
    for _ in range(40):
        groups = rankings.random_groups(generator)
        found = average_precision_at(Histogram(rankings.counts_of(groups)), cutoff, denominator)
        check_agrees(found, lambda ranking: rankings.average_precision(ranking, cutoff, denominator), groups)


def test_the_conventions_differ_as_published():
    hit_miss_hit = Histogram(rankings.counts_of([[1], [0], [1]]))
    values = {d: average_precision_at(hit_miss_hit, 2, d).expected[0] for d in DENOMINATORS}
    assert values == pytest.approx({"retrieved": 1.0, "min": 0.5, "first-k-relevant": 5 / 6, "all": 0.5})


def test_per_retrieved_is_not_monotone():
    worse = average_precision_at(Histogram(rankings.counts_of([[1], [0], [0]])), 3, "retrieved").expected[0]
    better = average_precision_at(Histogram(rankings.counts_of([[1], [0], [1]])), 3, "retrieved").expected[0]
    assert (worse, better) == pytest.approx((1.0, 5 / 6))


@pytest.mark.parametrize("denominator", ["retrieved", "first-k-relevant"])
def test_large_tie_groups_agree_with_drawn_orders(denominator):
    before, group, cutoff = 40, 3000, 700
    generator = np.random.default_rng(5)
    counts = np.array([[[25, 15], [2000, 1000]]])
    found = average_precision_at(Histogram(counts), cutoff, denominator)
    drawn = []
    for _ in range(100):
        head = generator.permutation(np.arange(before) < 15)
        tail = generator.permutation(np.arange(group) < 1000)
        drawn.append(rankings.average_precision([*head.tolist(), *tail.tolist()], cutoff, denominator))
    assert found.expected[0] == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / np.sqrt(len(drawn)))
    assert found.worst[0] < min(drawn)
    assert max(drawn) < found.best[0]


@pytest.mark.parametrize("cutoff", [1, 2, 4, 7, 30])
def test_hits_and_success_equal_the_mean_over_all_orders(cutoff):
    generator = np.random.default_rng(cutoff)
    for _ in range(40):
        groups = rankings.random_groups(generator)
        counts = Histogram(rankings.counts_of(groups))
        check_agrees(hits(counts, cutoff), lambda ranking: sum(ranking[:cutoff]), groups)
        check_agrees(success(counts, cutoff), lambda ranking: float(any(ranking[:cutoff])), groups)


@pytest.mark.parametrize("gain", ["linear", "exponential"])
@pytest.mark.parametrize("cutoff", [1, 3, 5, None])
def test_ndcg_equals_the_mean_over_all_orders(gain, cutoff):
    worth = (lambda level: level) if gain == "linear" else (lambda level: 2**level - 1)
    generator = np.random.default_rng(cutoff or 0)
    for _ in range(25):
        groups = rankings.random_groups(generator, levels=4, most_items=7)
        found = ndcg(Histogram(rankings.counts_of(groups, levels=4)), cutoff, gain)
        check_agrees(found, lambda ranking: rankings.ndcg(ranking, cutoff, worth), groups)


def test_gains_and_discounts():
    assert gains_of(4, "linear").tolist() == [0, 1, 2, 3]
    assert gains_of(4, "exponential").tolist() == [0, 1, 3, 7]
    np.testing.assert_allclose(discount_sums(3), [0, 1, 1 + 1 / np.log2(3), 1.5 + 1 / np.log2(3)])


def test_the_first_relevant_item_of_a_tie_has_an_expected_rank():
    counts = Histogram(np.array([
        [[3, 0], [2, 2], [1, 0]],  # 3 items before a tie of 4, two of which are relevant
        [[0, 1], [4, 3], [0, 0]],
        [[5, 0], [0, 0], [3, 0]],
        [[0, 0], [0, 0], [0, 8]],
    ]))  # fmt: skip
    found = first_rank(counts)
    np.testing.assert_allclose(found.expected, [3 + 5 / 3, 1, 9, 1])
    assert (found.best.tolist(), found.worst.tolist()) == ([4, 1, 9, 1], [6, 1, 9, 1])


def test_success_with_one_relevant_item_is_the_share_of_the_tie_within_the_cut():
    counts = Histogram(np.array([[[2, 0], [3, 1]], [[0, 1], [5, 0]], [[6, 0], [0, 0]]]))
    assert success(counts, 3).expected.tolist() == [0.25, 1, 0]
    assert success(counts, 3).best.tolist() == [1, 1, 0]
    assert success(counts, 3).worst.tolist() == [0, 1, 0]
