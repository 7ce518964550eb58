"""Parameters as arrays: copied out and in, fixed buffers named, frozen copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from silohash.models.parameters import buffers_of, check_fit, fixed_buffers, frozen_copy, install, params_of, to_array


class Shifted(nn.Module):
    fixed_buffers = ("mean",)

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.register_buffer("mean", torch.full((2,), 5.0))
        self.register_buffer("count", torch.zeros(1))


def test_copies_do_not_follow_the_model() -> None:
    model = Shifted()
    params = params_of(model)
    assert set(params) == {"inner.weight", "inner.bias", "mean", "count"}
    before = params["inner.weight"].copy()
    with torch.no_grad():
        model.inner.weight.add_(1.0)
    np.testing.assert_array_equal(params["inner.weight"], before)


def test_an_array_shares_the_memory_of_its_tensor() -> None:
    tensor = torch.zeros(3, requires_grad=True)
    array = to_array(tensor)
    with torch.no_grad():
        tensor[1] = 7.0
    assert array.tolist() == [0.0, 7.0, 0.0]


def test_fixed_buffers_carry_the_path_of_their_module() -> None:
    assert fixed_buffers(Shifted()) == {"mean"}
    assert fixed_buffers(nn.Sequential(nn.Linear(1, 1), nn.Sequential(Shifted()))) == {"1.0.mean"}
    assert fixed_buffers(nn.Linear(1, 1)) == set()


def test_installing_changes_what_is_named_and_nothing_else() -> None:
    model = Shifted()
    weight = model.inner.weight.detach().clone()
    fixed = np.array([1.0, 2.0, 3.0], np.float32)
    fixed.setflags(write=False)
    install(model, {"inner.bias": fixed})
    assert model.inner.bias.tolist() == [1.0, 2.0, 3.0]
    assert torch.equal(model.inner.weight, weight)
    with pytest.raises(KeyError):
        install(model, {"outer.bias": fixed})


def test_a_frozen_copy_stands_apart() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1)).train()
    before = model[1].weight.detach().clone()
    twin = frozen_copy(model, {"1.weight": np.full((1, 1), 9.0, np.float32)})
    assert twin[1].weight.item() == 9.0
    assert torch.equal(model[1].weight, before)
    assert not twin.training
    assert model.training
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_arrays_of_another_network_do_not_fit() -> None:
    model = nn.Linear(3, 2)
    whole = params_of(model)
    check_fit(model, whole)
    check_fit(model, {"bias": whole["bias"]})
    for params, says in (
        ({**whole, "scale": whole["bias"]}, "no parameter scale"),
        (
            {**whole, "bias": np.zeros(3, np.float32)},
            r"bias is float32 of shape \(3,\) instead of float32 of shape \(2,\)",
        ),
        ({**whole, "bias": np.zeros(2)}, "bias is float64"),
    ):
        with pytest.raises(ValueError, match=says):
            check_fit(model, params)


def test_buffers_are_the_arrays_that_are_not_trained() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model[0].requires_grad_(requires_grad=False)
    assert buffers_of(model) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
