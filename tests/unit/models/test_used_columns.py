"""A linear layer that skips unused columns: outputs and gradients equal those of a usual one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from silohash.models.used_columns import UsedColumns, skip_unused_columns


def words(rows: int, used: int, columns: int = 20) -> Tensor:
    """Return inputs in which only the last columns have values."""
    inputs = torch.zeros(rows, columns)
    inputs[:, columns - used :] = torch.randn(rows, used, generator=torch.Generator().manual_seed(1))
    return inputs


def gradients(layer: nn.Module, inputs: Tensor) -> list[Tensor]:
    """Return the outputs, and the gradients of a loss of them."""
    layer.zero_grad()
    outputs = layer(inputs)
    outputs.square().sum().backward()
    return [outputs.detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]


@pytest.mark.parametrize("used", [0, 1, 10, 11, 20])
def test_outputs_and_gradients_are_those_of_a_linear_layer(used: int) -> None:
    plain = nn.Linear(20, 6)
    skipping = UsedColumns.of(copy.deepcopy(plain))
    inputs = words(5, used)
    for found, expected in zip(gradients(skipping, inputs), gradients(plain, inputs), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("used", "training", "width"), [(10, True, 10), (11, True, 20), (3, True, 3), (3, False, 20)])
def test_only_used_columns_are_multiplied_if_at_most_half_are_used(
    used: int, training: bool, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []
    linear = torch.nn.functional.linear

    def counted(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        widths.append(weight.shape[1])
        return linear(inputs, weight, bias)

    monkeypatch.setattr("torch.nn.functional.linear", counted)
    UsedColumns.of(nn.Linear(20, 6)).train(training)(words(5, used))
    assert widths == [width]


def test_a_backbone_keeps_its_parameters() -> None:
    layer = nn.Linear(20, 6)
    backbone = nn.Sequential(layer, nn.ReLU())
    skip_unused_columns(backbone)
    assert isinstance(backbone[0], UsedColumns)
    assert backbone[0].weight is layer.weight
    assert backbone[0].bias is layer.bias
    assert (backbone[0].in_features, backbone[0].out_features) == (20, 6)
    assert list(backbone.state_dict()) == ["0.weight", "0.bias"]


def test_other_backbones_stay_as_they_are() -> None:
    for backbone in (nn.Flatten(), nn.Sequential(nn.Conv2d(1, 2, 3))):
        before = list(backbone.modules())
        skip_unused_columns(backbone)
        assert list(backbone.modules()) == before
