"""Choose how the first layers of towers are trained by SGD, and put faster layers in their place for the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn

from silohash.base.types import Modality, PairBatch
from silohash.models.batch_layers import MOST_COLUMNS, BatchLayer, modes_of, saves_passes, used_share
from silohash.models.item_layers import MOST_ITEMS, ItemLayer, SGDRule
from silohash.models.towers import HashNet

FastLayer: TypeAlias = BatchLayer | ItemLayer
"""A layer that takes its own steps of SGD."""


class FastLayers:
    """The layers of a model that take their own steps.

    Args:
        layers: Layers, by modality.
    """

    def __init__(self, layers: Mapping[Modality, FastLayer]) -> None:
        self.layers = layers

    def announce(self, batch: PairBatch) -> None:
        """Let the forward passes on the inputs of a batch be training passes, until the next call."""
        for modality, layer in self.layers.items():
            layer.announce(batch.row, batch.values(modality))

    def step(self) -> None:
        """Take an optimizer step of the weights."""
        for layer in self.layers.values():
            layer.step()


def first_layer(model: HashNet, modality: Modality, inputs: Tensor | None) -> nn.Linear | None:
    """Return the first layer of a tower if it is a linear layer that multiplies the silo's inputs, else None.

    Args:
        model: Network.
        modality: Modality of the tower.
        inputs: ``(n, D)``, inputs of the silo's items, or None if it has none.
    """
    tower = model.tower(modality)
    if inputs is None or inputs.dtype != torch.float32 or tower.scale != 1.0:
        return None
    layer = tower.backbone[0] if isinstance(tower.backbone, nn.Sequential) else None
    trained = isinstance(layer, nn.Linear) and all(parameter.requires_grad for parameter in layer.parameters())
    return layer if isinstance(layer, nn.Linear) and inputs.ndim == 2 and trained else None


@torch.no_grad()
def fast_layer(layer: nn.Linear, inputs: Tensor, rule: SGDRule, batch: int, steps: int = 1) -> FastLayer | None:
    """Return a layer that trains the parameters of a linear layer faster, or None if there is none.

    Args:
        layer: Layer whose parameters are trained.
        inputs: ``(n, D)``, inputs of the silo's items.
        rule: Optimizer of the weights, with the state of a new one.
        batch: Number of items of a batch.
        steps: Number of optimizer steps per batch.
    """
    if not len(inputs):
        return None
    modes = modes_of(rule) if inputs.device.type == "cpu" else []
    if modes and used_share(inputs, batch) <= MOST_COLUMNS:
        return BatchLayer.of(layer, modes, by_columns=True)
    if len(inputs) <= MOST_ITEMS * layer.in_features:
        return ItemLayer.of(layer, inputs, rule)
    return BatchLayer.of(layer, modes, by_columns=False) if modes and steps > 1 and saves_passes(layer, batch) else None


@contextmanager
def fast_first_layers(
    model: HashNet, data: Mapping[Modality, Tensor | None], rule: SGDRule, batch: int, steps: int = 1
) -> Iterator[FastLayers]:
    """Put faster layers in the place of the first layers of towers inside a ``with`` block, where there are any.

    Inside the block, the parameters that these layers train are behind, and their gradients are None, so that optimizers
    leave them alone. Batches must be announced, and `FastLayers.step` must follow each optimizer step.

    Args:
        model: Network, changed in place.
        data: Inputs of the silo's items, by modality.
        rule: Optimizer of all parameters.
        batch: Number of items of a batch.
        steps: Number of optimizer steps per batch.
    """
    before: dict[Modality, nn.Linear] = {}
    layers: dict[Modality, FastLayer] = {}
    for modality in model.modalities:
        layer, inputs = first_layer(model, modality, data[modality]), data[modality]
        faster = None if layer is None or inputs is None else fast_layer(layer, inputs, rule, batch, steps)
        if layer is not None and faster is not None:
            before[modality], layers[modality] = layer, faster
    for modality, faster in layers.items():
        faster.zero_grad()
        _replace(model, modality, faster)
    try:
        yield FastLayers(layers)
    finally:
        for modality, faster in layers.items():
            faster.settle()
            _replace(model, modality, before[modality].train(faster.training))


def _replace(model: HashNet, modality: Modality, layer: nn.Linear) -> None:
    """Put a layer in the place of the first one of a tower's backbone."""
    backbone = model.tower(modality).backbone
    assert isinstance(backbone, nn.Sequential)  # noqa: S101  checked by `first_layer`
    backbone[0] = layer
