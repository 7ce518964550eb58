"""Optimizers that are used again, because allocating their state takes longer than the step of a silo with few items."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import nn


class OptimizerPool:
    """Optimizers of the models that are trained in this process, each with the state of a new one."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, dict[tuple[str, ...], torch.optim.Optimizer]] = WeakKeyDictionary()

    def optimizer(
        self,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        learning_rate: float,
    ) -> torch.optim.Optimizer:
        """Return an optimizer for some parameters of a model, as if it were new.

        Args:
            model: Model that has the parameters. Its optimizers are forgotten with it.
            parameters: Parameters to train, by name.
            make: Function that makes the optimizer. It must be the same for all calls, except for the learning rate.
            learning_rate: Learning rate of this round.
        """
        made, key, moving = self._made.setdefault(model, {}), tuple(parameters), list(parameters.values())
        if key not in made or not _continues(made[key], moving):
            made[key] = make(moving)
        else:
            _reset(made[key], learning_rate)
        return made[key]


def _continues(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> bool:
    """Return whether an optimizer is that of the parameters and can start again from zeros.

    SGD cannot: its first momentum is the gradient.
    """
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    same = len(trained) == len(parameters) and all(map(operator.is_, trained, parameters))
    return same and not isinstance(optimizer, torch.optim.SGD)


def _reset(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the state of an Adam optimizer to zero, in place, and its learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()
