"""The pool of optimizers: a used one steps like a new one, and is forgotten with its model."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import nn

from silohash.models.optimizers import OptimizerPool

KINDS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, weight_decay=0.01, fused=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.01, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True),
}


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, steps: int = 3) -> list[torch.Tensor]:
    """Return the parameters after steps on random gradients."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


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
    memory = first.state[model.weight]["exp_avg"].data_ptr()
    again = pool.optimizer(model, names, KINDS["adamw"], 0.05)
    assert again is first
    assert again.param_groups[0]["lr"] == 0.05
    assert again.state[model.weight]["exp_avg"].data_ptr() == memory
    assert not again.state[model.weight]["exp_avg"].any()


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
