"""Training of first layers by batches: the weights equal those of SGD on a usual layer."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from silohash.models.batch_layers import LEAST_SCALE, MOST_COUNTED, BatchLayer, modes_of, saves_passes, used_share
from silohash.models.item_layers import SGDRule
from tests.unit.methods.federated.helpers import draw

RULE = SGDRule(rate=0.1, momentum=0.8, weight_decay=0.05)
BATCHES = ([0, 3], [1, 4], [5, 5], [2, 0], [1, 3])


def words() -> Tensor:
    """Return inputs of six items with values in one or two of nine columns. The last item has none."""
    inputs, places = torch.zeros(6, 9).double(), torch.tensor([[0, 3], [3, 7], [5, 5], [0, 8], [3, 1]])
    inputs[:5].scatter_(1, places, draw(5, 2, seed=1).abs() + 0.5)
    return inputs


def made(plain: nn.Linear, rule: SGDRule = RULE, *, by_columns: bool = True) -> BatchLayer:
    """Return a layer with copies of the parameters of a usual one."""
    return BatchLayer.of(copy.deepcopy(plain), modes_of(rule), by_columns=by_columns)


def sgd(layer: nn.Linear, rule: SGDRule = RULE) -> torch.optim.SGD:
    """Return torch's optimizer."""
    return torch.optim.SGD(layer.parameters(), lr=rule.rate, momentum=rule.momentum, weight_decay=rule.weight_decay)


@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize(
    "rule",
    [
        RULE,
        replace(RULE, momentum=0.0),
        replace(RULE, weight_decay=0.0),
        replace(RULE, momentum=0.1, rate=0.01),  # the fast mode is rescaled
        replace(RULE, momentum=0.0, weight_decay=10.0),  # a step forgets the weights
        replace(RULE, momentum=0.0, weight_decay=15.0),
    ],
)
def test_weights_are_those_of_sgd(rule: SGDRule, by_columns: bool) -> None:
    plain, inputs = nn.Linear(9, 4).double(), words()
    layer = made(plain, rule, by_columns=by_columns)
    optimizer = sgd(plain, rule)
    for number in range(12):
        rows = torch.tensor(BATCHES[number % 5])
        taken = inputs[rows]
        layer.announce(rows, taken)
        for step in range(2):
            # The second step of a batch has a loss of two passes, and a pass without a gradient does not count.
            layer(taken)
            losses = [(at(taken).sin() + (at(taken) ** 2 if step else 0)).sum() for at in (plain, layer)]
            optimizer.zero_grad()
            for loss in losses:
                loss.backward()
            optimizer.step()
            layer.step()
            assert losses[0].item() == pytest.approx(losses[1].item())
        if number == 7:
            weights, bias = layer.modes.current()
            assert torch.allclose(weights.T, plain.weight, atol=1e-12)
            assert torch.allclose(bias, plain.bias, atol=1e-12)
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    layer.step()
    assert torch.allclose(layer.eval()(inputs), plain(inputs), atol=1e-12)
    layer.settle()
    assert torch.allclose(layer.weight, plain.weight, atol=1e-12)
    assert torch.allclose(layer.bias, plain.bias, atol=1e-12)


@pytest.mark.parametrize("by_columns", [True, False])
def test_scales_do_not_become_too_small(by_columns: bool) -> None:
    inputs = words()
    layer = made(nn.Linear(9, 4).double(), replace(RULE, momentum=0.1, rate=0.01), by_columns=by_columns)
    seen = []
    for _ in range(20):
        layer.announce(torch.arange(2), inputs[:2])
        assert layer.announced is not None
        layer(layer.announced).sum().backward()
        layer.step()
        layer.announce(torch.arange(0), None)
        seen.append(layer.modes.scales[1].item())
    assert seen[0] == pytest.approx(0.1, rel=0.01)
    assert 1.0 in seen
    assert min(seen) >= LEAST_SCALE


@pytest.mark.parametrize("by_columns", [True, False])
def test_a_step_follows_a_look_at_all_weights(by_columns: bool) -> None:
    plain, inputs = nn.Linear(9, 4).double(), words()
    layer, optimizer = made(plain, by_columns=by_columns), sgd(plain)
    taken = inputs[:2]
    layer.announce(torch.arange(2), taken)
    for at in (layer, plain):
        at(taken).sum().backward()
    assert torch.allclose(layer.eval()(inputs), plain(inputs), atol=1e-12)
    layer.train().step()
    optimizer.step()
    assert torch.allclose(layer.modes.current()[0].T, plain.weight, atol=1e-12)


def test_inputs_that_were_not_announced_pass_without_a_step() -> None:
    inputs = words()
    layer = made(nn.Linear(9, 4).double())
    before = layer.modes.current()[0]
    for announced in (inputs[:2], None):
        layer.announce(torch.arange(2), announced)
        assert not layer(inputs[:2].clone()).requires_grad
        layer.step()
    assert torch.equal(layer.modes.current()[0], before)


@pytest.mark.parametrize("rule", [RULE, replace(RULE, momentum=0.0)])
def test_modes_follow_the_steps_of_a_single_weight(rule: SGDRule) -> None:
    weight, momentum, modes = 2.0, 0.0, modes_of(rule)
    parts = [mode.share * weight for mode in modes]
    for gradient in (0.5, -1.0, 0.0, 2.0):
        momentum = rule.momentum * momentum + rule.weight_decay * weight + gradient
        weight -= rule.rate * momentum
        parts = [mode.factor * part + mode.gain * gradient for mode, part in zip(modes, parts, strict=True)]
        assert sum(parts) == pytest.approx(weight)


@pytest.mark.parametrize(("decay", "count"), [(0.01, 2), (0.111, 2), (0.112, 0), (5.0, 0), (40.0, 0)])
def test_a_weight_that_swings_has_no_modes(decay: float, count: int) -> None:
    """The factors are real if the rate times the decay is at most the square of 1 - sqrt(0.8)."""
    assert len(modes_of(replace(RULE, weight_decay=decay))) == count


def test_shared_passes_do_not_pay_for_large_batches() -> None:
    layer = nn.Linear(100, 300)
    assert saves_passes(layer, 34)
    assert not saves_passes(layer, 35)


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
