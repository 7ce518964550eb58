"""A model's parameters as arrays: copied out, put in, and frozen beside the model itself."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from silohash.types import Arrays


def params_of(model: nn.Module) -> Arrays:
    """Returns copies of a model's parameters and buffers: training on does not change them."""
    return {name: to_array(tensor).copy() for name, tensor in model.state_dict().items()}


def fixed_buffers(model: nn.Module) -> set[str]:
    """Returns the names of buffers that no silo changes, as the mean picture of a pretrained network.

    A module names its own in ``fixed_buffers``. The server sends them down with the model; no silo sends them back.
    """
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        for name in getattr(module, "fixed_buffers", ())
    }


def to_array(tensor: Tensor) -> np.ndarray:
    """Returns a tensor's values as an array on the CPU, which shares its memory where it can."""
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array


@torch.no_grad()
def install(model: nn.Module, params: Arrays) -> None:
    """Copies named arrays into a model; names that the arrays lack keep their values.

    Raises:
        KeyError: if the model has no parameter of a name.
    """
    state = model.state_dict()
    for name, array in params.items():
        state[name].copy_(torch.from_numpy(np.require(array, requirements="W")))


def frozen_copy(model: nn.Module, params: Arrays) -> nn.Module:
    """Returns a copy in evaluation mode that takes no gradient, with the given parameters."""
    twin = copy.deepcopy(model)
    install(twin, params)
    return twin.eval().requires_grad_(requires_grad=False)
