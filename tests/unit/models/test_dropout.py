"""Tests of dropout."""

import pytest
import torch
from torch import nn

from silohash.models.dropout import Dropout


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.75])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_that_of_pytorch_bit_by_bit(p, dtype):
    values = torch.randn(7, 33, dtype=dtype)
    found = []
    for layer in (nn.Dropout(p), Dropout(p)):
        given = values.clone().requires_grad_()
        torch.manual_seed(5)
        first = layer(given)
        (first * layer(given)).sum().backward()
        found.append((first.detach(), given.grad, torch.rand(())))
    for theirs, ours in zip(*found, strict=True):
        assert torch.equal(theirs, ours)
    assert (found[1][0] == 0).float().mean() == pytest.approx(p, abs=0.15)


def test_passes_its_input_on_when_a_model_is_evaluated():
    values = torch.randn(3, 4)
    assert Dropout(0.5).eval()(values) is values
