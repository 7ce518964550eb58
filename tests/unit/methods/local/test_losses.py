"""Loss terms that methods share, against explicit loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from silohash.methods.local.base import signs
from silohash.methods.local.losses import (
    balance,
    different_items,
    label_error,
    mean_similarity,
    mean_where,
    pair_contrast,
    pair_likelihood,
    pair_weights,
    quantization,
    similarity,
    straight_through,
)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def labels(count: int, seed: int = 0) -> torch.Tensor:
    """Return multi-hot labels of five classes; the first row has none."""
    drawn = torch.from_numpy((np.random.default_rng(seed).random((count, 5)) < 0.3).astype(np.float64))
    drawn[0] = 0.0
    return drawn


def test_similarity_equals_loops() -> None:
    rows, others = labels(7), labels(9, seed=1)
    binary, graded = similarity(rows, others, graded=False), similarity(rows, others, graded=True)
    for i in range(7):
        for j in range(9):
            shared = sum(float(rows[i, c] * others[j, c]) for c in range(5))
            lengths = math.sqrt(float(rows[i].sum()) * float(others[j].sum()))
            assert binary[i, j] == float(shared > 0)
            assert float(graded[i, j]) == pytest.approx(shared / lengths if lengths else 0.0, abs=1e-12)


def test_pair_likelihood_equals_loops_and_is_stable() -> None:
    codes, others, similar = drawn(6, 8), drawn(9, 8, seed=1), torch.rand(6, 9, dtype=torch.float64)
    found = pair_likelihood(codes, others, similar)
    for i in range(6):
        for j in range(9):
            theta = 0.5 * sum(float(codes[i, k] * others[j, k]) for k in range(8))
            assert float(found[i, j]) == pytest.approx(
                math.log1p(math.exp(theta)) - float(similar[i, j]) * theta, abs=1e-10
            )
    huge = pair_likelihood(1e3 * torch.ones(1, 8), torch.ones(1, 8), torch.ones(1, 1))
    assert torch.isfinite(huge).all()
    assert torch.allclose(pair_likelihood(0 * codes, others, similar), torch.tensor(math.log(2), dtype=torch.float64))


def test_straight_through_is_the_sign_with_the_gradient_of_the_identity() -> None:
    values = torch.tensor([[-2.0, -0.1, 0.0, 0.4, 30.0]], dtype=torch.float64, requires_grad=True)
    codes, incoming = straight_through(values), drawn(1, 5)
    codes.backward(incoming)
    assert codes.tolist() == [[-1, -1, 1, 1, 1]]
    assert torch.equal(values.grad, incoming)


def test_pair_weights_give_each_kind_of_pair_half_of_the_loss() -> None:
    similar = similarity(labels(20), labels(30, seed=1), graded=False)
    weights = pair_weights(similar, float(similar.mean()))
    assert float((weights * similar).sum()) == pytest.approx(0.5 * similar.numel())
    assert float((weights * (1 - similar)).sum()) == pytest.approx(0.5 * similar.numel())
    for i in range(20):
        for j in range(30):
            share = float(similar.mean())
            assert float(weights[i, j]) == pytest.approx(0.5 / share if similar[i, j] else 0.5 / (1 - share))


@pytest.mark.parametrize("graded", [False, True])
def test_mean_similarity_equals_loops_and_stays_away_from_the_ends(graded: bool) -> None:
    drawn = labels(12)
    sums = [float(similarity(drawn[i : i + 1], drawn[j : j + 1], graded=graded)) for i in range(12) for j in range(12)]
    assert float(mean_similarity(drawn, graded=graded)) == pytest.approx(sum(sums) / 144)
    alike, unlike = torch.ones(4, 1), torch.eye(100)
    assert 0 < float(mean_similarity(unlike, graded=graded)) < float(mean_similarity(alike, graded=graded)) < 1


def test_quantization_and_balance_equal_loops() -> None:
    codes = drawn(6, 8)
    targets = signs(drawn(6, 8, seed=1))
    drift, means = quantization(codes, targets), balance(codes)
    for k in range(8):
        assert float(means[k]) == pytest.approx((sum(float(codes[i, k]) for i in range(6)) / 6) ** 2)
        for i in range(6):
            assert float(drift[i, k]) == pytest.approx((float(targets[i, k]) - float(codes[i, k])) ** 2)


def test_pair_contrast_equals_loops() -> None:
    codes, partners = drawn(5, 8, seed=1), drawn(5, 8, seed=2)
    found = pair_contrast(codes, partners, 0.3)
    for i in range(5):
        near = [
            math.exp(float(codes[i] @ partners[j] / (codes[i].norm() * partners[j].norm())) / 0.3) for j in range(5)
        ]
        assert float(found[i]) == pytest.approx(-math.log(near[i] / sum(near)), abs=1e-12)


def test_the_mean_similarity_is_that_of_evenly_spaced_items() -> None:
    known = labels(12, seed=2)
    assert float(mean_similarity(known, graded=True, most=4)) == float(mean_similarity(known[::3], graded=True))
    assert float(mean_similarity(torch.eye(100), graded=False)) == pytest.approx(0.05)
    assert float(mean_similarity(torch.ones(3, 1), graded=False)) == pytest.approx(0.95)


def test_the_scale_of_inner_products_is_that_of_the_likelihood() -> None:
    codes, others, similar = drawn(4, 8), drawn(5, 8, seed=1), torch.ones(4, 5, dtype=torch.float64)
    scaled = pair_likelihood(codes, others, similar, scale=0.2)
    torch.testing.assert_close(scaled, pair_likelihood(0.4 * codes, others, similar))


def test_a_mean_over_some_values_is_0_without_any() -> None:
    values = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    assert float(mean_where(values, torch.tensor([[True, False], [True, True]]))) == pytest.approx(13 / 3)
    assert float(mean_where(values, torch.zeros(2, 2, dtype=torch.bool))) == 0.0


def test_different_items_are_all_pairs_off_the_diagonal() -> None:
    assert different_items(torch.zeros(3, 8)).tolist() == [
        [False, True, True],
        [True, False, True],
        [True, True, False],
    ]


def test_label_error_is_the_squared_difference() -> None:
    logits, wanted = drawn(3, 4), (drawn(3, 4, seed=1) > 0).double()
    for i in range(3):
        for j in range(4):
            expected = (1 / (1 + np.exp(-float(logits[i, j]))) - float(wanted[i, j])) ** 2
            assert float(label_error(logits, wanted)[i, j]) == pytest.approx(expected)


def test_label_error_is_squared() -> None:
    found = label_error(torch.tensor([[0.0, 40.0]]), torch.tensor([[1.0, 1.0]]))
    assert found.tolist() == [pytest.approx([0.25, 0.0])]
