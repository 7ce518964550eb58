"""Copy a model's parameters to arrays and back, make frozen copies of a model, and step its optimizers."""

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from silohash.base.types import Arrays, ReadArrays, Step


@runtime_checkable
class _WithFixedBuffers(Protocol):
    """A module that lists the names of its fixed buffers."""

    fixed_buffers: tuple[str, ...]


def params_of(model: nn.Module) -> Arrays:
    """Return copies of a model's parameters and buffers, which further training does not change."""
    return {name: array.copy() for name, array in shared_arrays(model).items()}


def shared_arrays(model: nn.Module) -> Arrays:
    """Return a model's parameters and buffers as arrays that share its memory where possible, and follow its training."""
    return {name: to_array(tensor) for name, tensor in model.state_dict().items()}


def fixed_buffers(model: nn.Module) -> set[str]:
    """Return the names of the buffers that no silo changes, such as the mean image of a pretrained network.

    A module lists its fixed buffers in the attribute ``fixed_buffers``. The server sends them to the silos with the model,
    and the silos do not send them back.
    """
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, _WithFixedBuffers)
        for name in module.fixed_buffers
    }


def buffers_of(model: nn.Module) -> frozenset[str]:
    """Return the names of a model's buffers: arrays that no optimizer trains, such as the statistics of BatchNorm."""
    return frozenset(model.state_dict()) - frozenset(name for name, _ in model.named_parameters(remove_duplicate=False))


def to_array(tensor: Tensor) -> np.ndarray:
    """Return a tensor's values as an array on the CPU, which shares the tensor's memory where possible."""
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array


@torch.no_grad()
def install(model: nn.Module, params: ReadArrays) -> None:
    """Copy named arrays into a model. Parameters that are not among the arrays keep their values.

    Raises:
        KeyError: If the model does not have a parameter of that name.
    """
    state = model.state_dict()
    for name, array in params.items():
        # torch warns about arrays that may not be written, such as those that are mapped from a file.
        state[name].copy_(torch.from_numpy(np.require(array, requirements="W")))


def check_fit(model: nn.Module, params: Arrays) -> None:
    """Check that named arrays are parameters of a model. The model may have further ones.

    Raises:
        ValueError: If an array is not one of the model's parameters, or has another shape or type.
    """
    state = model.state_dict()
    for name, array in params.items():
        if name not in state:
            raise ValueError(f"they have no parameter {name}")
        expected = to_array(state[name])
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            raise ValueError(
                f"{name} is {array.dtype} of shape {array.shape} instead of {expected.dtype} of shape {expected.shape}"
            )


def frozen_copy(model: nn.Module, params: ReadArrays) -> nn.Module:
    """Return a copy of a model with the given parameters, in evaluation mode and without gradients."""
    twin = copy.deepcopy(model)
    install(twin, params)
    return twin.eval().requires_grad_(requires_grad=False)


def trained_by(model: nn.Module, step: Step) -> dict[str, nn.Parameter]:
    """Return the parameters that a step trains, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad and name.startswith(step.parameters)}


class Optimizer:
    """Adam, AdamW or SGD for some parameters, computed by torch's fused kernels.

    torch's classes of optimizers import its compiler, which takes as long as all of torch (torch 2.13). The functions that
    they call do not.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        kind: Literal["adam", "adamw", "sgd"],
        learning_rate: float,
        *,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
    ) -> None:
        self.parameters, self.kind, self.learning_rate = list(parameters), kind, learning_rate
        self.weight_decay, self.momentum = weight_decay, momentum
        self.state: dict[Tensor, list[Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters that have a gradient."""
        moving: list[Tensor] = [p for p in self.parameters if p.grad is not None]
        grads = [p.grad for p in moving if p.grad is not None]
        (self._step_of_sgd if self.kind == "sgd" else self._step_of_adam)(moving, grads)

    def _step_of_sgd(self, moving: list[Tensor], grads: list[Tensor]) -> None:
        momenta = [self.state[p][0] if p in self.state else None for p in moving] if self.momentum else []
        sgd(
            moving, grads, momenta, fused=True, lr=self.learning_rate, weight_decay=self.weight_decay,
            momentum=self.momentum, dampening=0.0, nesterov=False, maximize=False,
        )  # fmt: skip
        self.state.update((p, [m]) for p, m in zip(moving, momenta, strict=False) if m is not None)

    def _step_of_adam(self, moving: list[Tensor], grads: list[Tensor]) -> None:
        """Take a step of Adam. Its state is the running means of the gradient and of its square, and the number of steps."""
        for p in moving:
            if p not in self.state:
                count = torch.zeros((), dtype=torch.float32, device=p.device)
                self.state[p] = [torch.zeros_like(p), torch.zeros_like(p), count]
        means, squares, counts = ([self.state[p][part] for p in moving] for part in range(3))
        adam(
            moving, grads, means, squares, [], counts, fused=True, lr=self.learning_rate, weight_decay=self.weight_decay,
            decoupled_weight_decay=self.kind == "adamw", amsgrad=False, beta1=0.9, beta2=0.999, eps=1e-8, maximize=False,
        )  # fmt: skip

    def restart(self, learning_rate: float) -> None:
        """Set the state of Adam to zero, in place, and the learning rate."""
        self.learning_rate = learning_rate
        for value in (value for values in self.state.values() for value in values):
            value.zero_()


class OptimizerPool:
    """Optimizers of the models that are trained in this process, each with the state of a new one.

    Allocating that state takes longer than the step of a silo with few items.
    """

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, dict[tuple[str, ...], Optimizer]] = WeakKeyDictionary()

    def optimizer(
        self,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        make: Callable[[list[nn.Parameter]], Optimizer],
        learning_rate: float,
    ) -> Optimizer:
        """Return an optimizer for some named parameters of a model, as if it were new, with this round's learning rate.

        The function that makes it must be the same for all calls, except for the learning rate. A model's optimizers are
        forgotten with it.
        """
        made, key, moving = self._made.setdefault(model, {}), tuple(parameters), list(parameters.values())
        if key not in made or not _continues(made[key], moving):
            made[key] = make(moving)
        else:
            made[key].restart(learning_rate)
        return made[key]


def _continues(optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> bool:
    """Return whether an optimizer has these parameters and can start from zeros, unlike SGD's first momentum."""
    trained = optimizer.parameters
    same = len(trained) == len(parameters) and all(map(operator.is_, trained, parameters))
    return same and optimizer.kind != "sgd"
