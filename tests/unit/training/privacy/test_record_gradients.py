"""Clipped sums of gradients equal those of a loop over the records, and no record counts for more than the limit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from silohash.base.types import UserError
from silohash.training.privacy.record_gradients import RecordGradients


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4, bias=False)).double()


def losses_of(outputs: Tensor) -> Tensor:
    return (outputs - 0.5).square().sum(1)


def one_by_one(model: nn.Module, inputs: Tensor, limit: float) -> list[Tensor]:
    """The same sum as `Passes.clipped_sum`, with a backward pass per record."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    for record in inputs:
        gradients = torch.autograd.grad(losses_of(model(record[None])).sum(), list(model.parameters()))
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        for place, gradient in enumerate(gradients):
            total[place] += gradient * min(1.0, limit / max(norm, 1e-12))
    return total


def clipped_sum(model: nn.Module, inputs: Tensor, limit: float) -> list[Tensor]:
    with RecordGradients(model).watched() as passes:
        outputs = model(inputs)
    found = passes.clipped_sum(losses_of(outputs).sum(), limit)
    return [found[parameter] for parameter in model.parameters()]


@pytest.mark.parametrize("limit", [0.01, 1.0, 3.0, 1e6])
def test_the_sum_equals_that_of_a_loop(limit: float) -> None:
    model, inputs = network(), torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for found, expected in zip(clipped_sum(model, inputs, limit), one_by_one(model, inputs, limit), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_record_changes_the_sum_by_the_limit_at_most() -> None:
    model, inputs = network(), torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inputs[3] *= 1e4
    with_it, without = (clipped_sum(model, rows, 0.2) for rows in (inputs, inputs[torch.arange(12) != 3]))
    change = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(with_it, without, strict=True)))
    assert change == pytest.approx(0.2, rel=1e-9)


def test_a_record_whose_gradient_is_not_finite_counts_as_zero() -> None:
    model, inputs = network(), torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    broken = inputs.clone()
    broken[2, 0] = math.nan
    for found, expected in zip(
        clipped_sum(model, broken, 1.0), clipped_sum(model, inputs[torch.arange(5) != 2], 1.0), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_layers_that_do_not_take_part_have_no_gradient() -> None:
    model = network()
    with RecordGradients(model).watched() as passes:
        model(torch.zeros(2, 6, dtype=torch.float64))
    assert passes.clipped_sum(torch.zeros((), requires_grad=True) * 1.0, 1.0) == {}


def test_other_layers_are_refused() -> None:
    with pytest.raises(UserError, match=r"0\.weight belongs to another one\. .* such as csq"):
        RecordGradients(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(2, 2)))
    frozen = nn.Sequential(nn.Conv2d(1, 2, 3).requires_grad_(requires_grad=False), nn.Linear(2, 2))
    RecordGradients(frozen)


def test_a_layer_that_is_used_twice_is_refused() -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(UserError, match="uses each linear layer once per item"), RecordGradients(layer).watched():
        layer(layer(torch.ones(2, 3)))
