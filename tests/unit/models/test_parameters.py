"""Parameters as arrays: copied out and in, fixed buffers named, frozen copies."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest
import torch
from torch import nn

from silohash.models.parameters import (
    Optimizer,
    OptimizerPool,
    buffers_of,
    check_fit,
    fixed_buffers,
    frozen_copy,
    install,
    params_of,
    shared_arrays,
    to_array,
)


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


def test_shared_arrays_follow_the_model() -> None:
    model = Shifted()
    arrays = shared_arrays(model)
    assert set(arrays) == set(model.state_dict())
    with torch.no_grad():
        model.inner.weight.fill_(3.0)
        model.mean.fill_(4.0)
    assert (arrays["inner.weight"] == 3.0).all()
    assert (arrays["mean"] == 4.0).all()


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


KINDS = {
    "adam": lambda parameters: Optimizer(parameters, "adam", 0.1, weight_decay=0.01, momentum=0.9),
    "adamw": lambda parameters: Optimizer(parameters, "adamw", 0.1, weight_decay=0.01),
    "sgd": lambda parameters: Optimizer(parameters, "sgd", 0.1, weight_decay=0.01, momentum=0.9),
    "plain sgd": lambda parameters: Optimizer(parameters, "sgd", 0.1),
}
OF_TORCH = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, weight_decay=0.01, fused=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.01, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.01, momentum=0.9, fused=True),
    "plain sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, fused=True),
}


def trained(
    model: nn.Module, optimizer: Optimizer | torch.optim.Optimizer, seed: int, steps: int = 3, without: str = ""
) -> list[torch.Tensor]:
    """Return the parameters after steps on random gradients. One parameter may be without in the last step."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for name, parameter in model.named_parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if step == steps - 1 and name == without else gradient
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("without", ["", "weight", "bias"])
@pytest.mark.parametrize("kind", KINDS)
def test_optimizers_step_like_those_of_torch(kind: str, without: str) -> None:
    model = nn.Linear(4, 3)
    other = copy.deepcopy(model)
    found = trained(model, KINDS[kind](model.parameters()), 1, without=without)
    expected = trained(other, OF_TORCH[kind](other.parameters()), 1, without=without)
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


def test_a_parameter_without_gradients_keeps_its_value() -> None:
    weight = nn.Parameter(torch.ones(2))
    for kind in KINDS.values():
        kind([weight]).step()
    assert weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_used_optimizer_steps_like_a_new_one(kind: str) -> None:
    torch.manual_seed(0)
    model, pool = nn.Linear(4, 3), OptimizerPool()
    start = copy.deepcopy(model.state_dict())
    names = dict(model.named_parameters())
    for seed in (1, 2, 1):
        model.load_state_dict(start)
        found = trained(model, pool.optimizer(model, names, KINDS[kind], 0.1), seed)
        other = nn.Linear(4, 3)
        other.load_state_dict(start)
        expected = trained(other, KINDS[kind](list(other.parameters())), seed)
        assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


def test_the_state_of_adam_is_used_again_with_the_learning_rate_of_the_round() -> None:
    model, pool = nn.Linear(4, 3), OptimizerPool()
    names = dict(model.named_parameters())
    first = pool.optimizer(model, names, KINDS["adamw"], 0.1)
    trained(model, first, 0)
    memory = [value.data_ptr() for value in first.state[model.weight]]
    assert all(value.any() for value in first.state[model.weight])
    again = pool.optimizer(model, names, KINDS["adamw"], 0.05)
    assert again is first
    assert again.learning_rate == 0.05
    assert [value.data_ptr() for value in again.state[model.weight]] == memory
    assert not any(value.any() for value in again.state[model.weight])


def test_other_parameters_have_another_optimizer() -> None:
    model, pool = nn.Linear(4, 3), OptimizerPool()
    whole = pool.optimizer(model, dict(model.named_parameters()), KINDS["adam"], 0.1)
    bias = pool.optimizer(model, {"bias": model.bias}, KINDS["adam"], 0.1)
    assert bias is not whole
    model.bias = nn.Parameter(torch.zeros(3))
    assert pool.optimizer(model, {"bias": model.bias}, KINDS["adam"], 0.1) is not bias
    other = nn.Linear(4, 3)
    assert pool.optimizer(other, dict(other.named_parameters()), KINDS["adam"], 0.1) is not whole


def test_optimizers_are_forgotten_with_their_model() -> None:
    model, pool = nn.Linear(4, 3), OptimizerPool()
    pool.optimizer(model, dict(model.named_parameters()), KINDS["adam"], 0.1)
    assert len(pool._made) == 1
    del model
    gc.collect()
    assert len(pool._made) == 0
