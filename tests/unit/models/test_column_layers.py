"""Training of first layers by columns: the weights equal those of SGD on a usual layer."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from silohash.models.column_layers import MOST_COUNTED, ColumnLayer, used_share
from silohash.models.item_layers import SGDRule
from tests.unit.federated.helpers import draw

RULE = SGDRule(rate=0.1, momentum=0.8, weight_decay=0.05)
BATCHES = ([0, 3], [1, 4], [5, 5], [2, 0], [1, 3])


def words() -> Tensor:
    """Return inputs of six items with values in one or two of nine columns. The last item has none."""
    inputs, places = torch.zeros(6, 9).double(), torch.tensor([[0, 3], [3, 7], [5, 5], [0, 8], [3, 1]])
    inputs[:5].scatter_(1, places, draw(5, 2, seed=1).abs() + 0.5)
    return inputs


@pytest.mark.parametrize("rule", [RULE, replace(RULE, momentum=0.0), replace(RULE, weight_decay=0.0)])
def test_weights_are_those_of_sgd(rule: SGDRule) -> None:
    plain, inputs = nn.Linear(9, 4).double(), words()
    layer = ColumnLayer.of(copy.deepcopy(plain), rule)
    wanted, found = (
        torch.optim.SGD(at.parameters(), lr=rule.rate, momentum=rule.momentum, weight_decay=rule.weight_decay)
        for at in (plain, layer)
    )
    for number in range(12):
        rows = torch.tensor(BATCHES[number % 5])
        taken = inputs[rows]
        layer.announce(rows, taken)
        for step in range(2):
            # The second step of a batch has a loss of two passes, and a pass without a gradient does not count.
            layer(taken)
            losses = [(at(taken).sin() + (at(taken) ** 2 if step else 0)).sum() for at in (plain, layer)]
            for loss, optimizer in zip(losses, (wanted, found), strict=True):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            layer.step()
            assert losses[0].item() == pytest.approx(losses[1].item())
        if number == 7:
            assert torch.allclose(layer.current(), plain.weight, atol=1e-12)
    assert layer.weight.grad is None
    layer.step()
    assert torch.allclose(layer.bias, plain.bias, atol=1e-12)
    assert torch.allclose(layer.eval()(inputs), plain(inputs), atol=1e-12)
    layer.settle()
    assert torch.allclose(layer.weight, plain.weight, atol=1e-12)


def test_a_step_follows_a_look_at_all_weights() -> None:
    plain, inputs = nn.Linear(9, 4).double(), words()
    layer = ColumnLayer.of(copy.deepcopy(plain), RULE)
    optimizer = torch.optim.SGD([plain.weight], lr=RULE.rate, momentum=RULE.momentum, weight_decay=RULE.weight_decay)
    taken = inputs[:2]
    layer.announce(torch.arange(2), taken)
    for at in (layer, plain):
        at(taken).sum().backward()
    assert torch.allclose(layer.eval()(inputs), plain(inputs), atol=1e-12)
    layer.train().step()
    optimizer.step()
    assert torch.allclose(layer.current(), plain.weight, atol=1e-12)


def test_inputs_that_were_not_announced_pass_without_a_step() -> None:
    inputs = words()
    layer = ColumnLayer.of(nn.Linear(9, 4).double(), RULE)
    before = layer.current().clone()
    for announced in (inputs[:2], None):
        layer.announce(torch.arange(2), announced)
        layer(inputs[:2].clone()).sum().backward()
        layer.step()
    assert torch.equal(layer.current(), before)


def test_used_columns_are_those_that_a_batch_is_expected_to_have() -> None:
    inputs = words()
    present = [sum(bool(row[column]) for row in inputs) / 6 for column in range(9)]
    assert used_share(inputs, 1) == pytest.approx(sum(present) / 9)
    assert used_share(inputs, 4) == pytest.approx(sum(1 - (1 - p) ** 4 for p in present) / 9)
    assert used_share(torch.zeros(3, 9), 32) == 0
    assert used_share(torch.ones(3, 9), 1) == 1


def test_the_used_columns_of_many_items_are_estimated() -> None:
    inputs = torch.zeros(3 * MOST_COUNTED, 2)
    inputs[::4, 0] = 1.0
    inputs[::3, 1] = 1.0
    assert used_share(inputs[: MOST_COUNTED - 1], 1) == pytest.approx((1 / 4 + 1 / 3) / 2, abs=1e-3)
    assert used_share(inputs, 1) == pytest.approx((1 / 4 + 1) / 2, abs=1e-3), "of every third item"
