"""Training of first layers by items: the weights equal those of SGD on a usual layer."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from silohash.models.item_layers import ItemLayer, SGDRule
from tests.unit.methods.federated.helpers import draw

RULE = SGDRule(rate=0.1, momentum=0.8, weight_decay=0.05)


def sgd(parameters: list[nn.Parameter], rule: SGDRule) -> torch.optim.SGD:
    """Return torch's optimizer."""
    return torch.optim.SGD(parameters, lr=rule.rate, momentum=rule.momentum, weight_decay=rule.weight_decay)


@pytest.mark.parametrize("rule", [RULE, replace(RULE, momentum=0.0), replace(RULE, weight_decay=0.0)])
def test_weights_are_those_of_sgd(rule: SGDRule) -> None:
    plain, inputs = nn.Linear(9, 4).double(), draw(5, 9, seed=1)
    layer = ItemLayer.of(copy.deepcopy(plain), inputs, rule)
    wanted, found = sgd(list(plain.parameters()), rule), sgd(list(layer.parameters()), rule)
    for number in range(6):
        rows = torch.tensor([[0, 3], [1, 4], [2, 0]][number % 3])
        taken = inputs[rows]
        layer.announce(rows, taken)
        # One step has a loss of two passes, and a pass without a gradient does not count.
        layer(taken)
        losses = [(at(taken).sin() + (at(taken) ** 2 if number == 4 else 0)).sum() for at in (plain, layer)]
        for loss, optimizer in zip(losses, (wanted, found), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        layer.step()
        assert losses[0].item() == pytest.approx(losses[1].item())
    assert layer.weight.grad is None
    layer.step()
    assert torch.allclose(layer.current(), plain.weight, atol=1e-12)
    assert torch.allclose(layer.bias, plain.bias, atol=1e-12)
    assert torch.allclose(layer.eval()(inputs), plain(inputs), atol=1e-12)
    layer.settle()
    assert torch.allclose(layer.weight, plain.weight, atol=1e-12)


def test_inputs_that_were_not_announced_pass_without_a_step() -> None:
    inputs = draw(5, 9)
    layer = ItemLayer.of(nn.Linear(9, 4).double(), inputs, RULE)
    layer.announce(torch.tensor([0, 1]), inputs[:2])
    layer(inputs[:2].clone()).sum().backward()
    before = layer.current()
    layer.step()
    assert torch.equal(layer.current(), before)
