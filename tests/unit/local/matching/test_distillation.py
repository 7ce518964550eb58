"""The loss of codes against loops, where it is smallest, and what it moves."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name

from silohash.local.matching.distillation import SHARPNESS, distilled, relaxed
from silohash.local.matching.vsepp import VSEParams, VSEpp
from silohash.models.towers import batch_of
from silohash.testing.matching import node_data, node_spec


def standardized(matrix: list[list[float]]) -> list[list[float]]:
    flat = [value for row in matrix for value in row]
    mean = sum(flat) / len(flat)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in flat) / (len(flat) - 1))
    return [[SHARPNESS * (value - mean) / deviation for value in row] for row in matrix]


def entropy(found: list[list[float]], wanted: list[list[float]]) -> float:
    total = 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        weights = [math.exp(value) for value in theirs]
        log_sum = math.log(sum(math.exp(value) for value in ours))
        total += sum(w / sum(weights) * (log_sum - value) for w, value in zip(weights, ours, strict=True))
    return total / len(found)


def test_the_loss_is_the_cross_entropy_of_both_directions() -> None:
    scores, images, texts = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 5), (5, 8), (5, 8)))
    cosines = [[float(F.cosine_similarity(i.tanh(), t.tanh(), dim=0)) for t in texts] for i in images]
    found, wanted = standardized(cosines), standardized(scores.tolist())
    columns = [list(map(list, zip(*matrix, strict=True))) for matrix in (found, wanted)]
    expected = entropy(found, wanted) + entropy(*columns)
    assert float(distilled(scores, images, texts)) == pytest.approx(expected, rel=1e-9)


def test_the_loss_is_smallest_where_codes_have_the_order_of_the_scores() -> None:
    images, texts = torch.randn(6, 16), torch.randn(6, 16)
    scores = 3 * relaxed(images) @ relaxed(texts).T + 1
    images.requires_grad_()
    loss = distilled(scores, images, texts)
    loss.backward()
    assert images.grad is not None
    assert images.grad.abs().max() < 1e-5
    assert loss < distilled(scores.flip(0), images, texts)


def test_equal_scores_give_a_finite_loss() -> None:
    images = torch.zeros(3, 4, requires_grad=True)
    distilled(torch.ones(3, 3), images, torch.zeros(3, 4)).backward()
    assert images.grad is not None
    assert images.grad.isfinite().all()


def test_codes_do_not_move_the_network_that_scores() -> None:
    net = VSEpp(VSEParams(word_width=7)).build(node_spec(), 16)
    data = node_data(6)
    outputs = net(batch_of(data.image, "image", {}))
    outputs.logit["image"].square().sum().backward()
    moved = {name for name, parameter in net.named_parameters() if parameter.grad is not None}
    assert moved
    assert all(name.startswith("codes.image.") for name in moved)
