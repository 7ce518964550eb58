"""Train the first layers of towers faster on a silo with few items.

The gradient of a linear layer's weights on a batch is a sum over its items: the gradient of an item's output times its
input. SGD with momentum and weight decay therefore changes the weights by a sum over the silo's items,

    W = a W_0 + A^T X,    V = c W_0 + C^T X,    X W^T = a X W_0^T + X X^T A.

The matrix ``X X^T`` is computed once, and a step changes ``A`` and ``C`` only. This is faster if the silo has fewer items
than the layer has inputs. Outputs and weights are those of the usual step up to rounding.

=======  ===========================================  ================================================
symbol   code here                                    meaning
=======  ===========================================  ================================================
X        ``inputs``                                   inputs of the silo's items, ``(n, D)``
W_0      ``weight``                                   weights at the start of the phase, ``(H, D)``
W        `ItemLayer.current`                          weights, ``(H, D)``
V                                                     their momentum, ``(H, D)``
a, A     ``scale``, ``by_item``                       factors of W_0 and of X in W; A is ``(n, H)``
c, C     ``momentum_scale``, ``momentum_by_item``     factors of W_0 and of X in V; C is ``(n, H)``
=======  ===========================================  ================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.models.towers import HashNet
from silohash.types import Modality, PairBatch

MOST_ITEMS = 0.5
"""Largest number of items per input of the layer at which such a step is clearly faster."""


@dataclass(frozen=True)
class SGDRule:
    """The settings of plain SGD.

    Attributes:
        rate: Learning rate.
        momentum: Momentum, from 0 to below 1.
        weight_decay: Factor of the weights in the gradient.
    """

    rate: float
    momentum: float
    weight_decay: float


class ItemLayer(nn.Linear):
    """A linear layer whose training steps are sums over a silo's items. In evaluation mode it is a usual one.

    It has the parameters of the layer in whose place it stands. Those of its weights are behind until `settle`.
    """

    rule: SGDRule
    inputs: Tensor
    products: Tensor
    start: Tensor
    by_item: Tensor
    momentum_by_item: Tensor
    scale: float
    momentum_scale: float
    batch: tuple[Tensor, Tensor] | None
    passed: list[tuple[Tensor, Tensor]]

    @classmethod
    @torch.no_grad()
    def of(cls, layer: nn.Linear, inputs: Tensor, rule: SGDRule) -> ItemLayer:
        """Return such a layer in the place of another one.

        Args:
            layer: Layer whose parameters are trained.
            inputs: ``(n, D)``, inputs of the silo's items.
            rule: Optimizer of the weights, with the state of a new one.
        """
        made: ItemLayer = nn.utils.skip_init(cls, layer.in_features, layer.out_features)  # type: ignore[no-untyped-call]
        made.weight, made.bias = layer.weight, layer.bias
        made.rule, made.inputs, made.products = rule, inputs, inputs @ inputs.T
        made.start = inputs @ layer.weight.T
        made.by_item, made.momentum_by_item = torch.zeros_like(made.start), torch.zeros_like(made.start)
        made.scale, made.momentum_scale = 1.0, 0.0
        made.batch, made.passed = None, []
        return made.train(layer.training)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs ``(B, H)`` for the inputs ``(B, D)``. Those of the announced batch can be differentiated."""
        if not self.training or self.batch is None or self.batch[1] is not inputs:
            return F.linear(inputs, self.current(), self.bias)
        rows, _ = self.batch
        with torch.no_grad():
            outputs = self.start.index_select(0, rows)
            outputs.addmm_(self.products.index_select(0, rows), self.by_item, beta=self.scale)
        self.passed.append((rows, outputs.requires_grad_()))
        return outputs + self.bias

    @torch.no_grad()
    def step(self) -> None:
        """Take a step of SGD with the gradients of the outputs since the last one, if there are any."""
        passed, self.passed = self.passed, []
        gradients = [(rows, outputs.grad) for rows, outputs in passed if outputs.grad is not None]
        if not gradients:
            return
        rule = self.rule
        self.momentum_by_item.mul_(rule.momentum).add_(self.by_item, alpha=rule.weight_decay)
        for rows, gradient in gradients:
            self.momentum_by_item.index_add_(0, rows, gradient)
        self.momentum_scale = rule.momentum * self.momentum_scale + rule.weight_decay * self.scale
        self.by_item.sub_(self.momentum_by_item, alpha=rule.rate)
        self.scale -= rule.rate * self.momentum_scale

    @torch.no_grad()
    def current(self) -> Tensor:
        """Return the weights after the steps so far, ``(H, D)``."""
        return torch.addmm(self.weight, self.by_item.T, self.inputs, beta=self.scale)

    @torch.no_grad()
    def settle(self) -> None:
        """Write the weights after the steps into the parameter."""
        self.weight.copy_(self.current())


class ItemLayers:
    """The layers of a model that train by items.

    Args:
        layers: Layers, by modality.
    """

    def __init__(self, layers: Mapping[Modality, ItemLayer]) -> None:
        self.layers = layers

    def announce(self, batch: PairBatch) -> None:
        """Let the forward passes on the inputs of a batch be training passes, until the next call."""
        for modality, layer in self.layers.items():
            values = batch.values(modality)
            layer.batch = None if values is None else (batch.row, values)

    def step(self) -> None:
        """Take an optimizer step of the weights."""
        for layer in self.layers.values():
            layer.step()


def first_layer(model: HashNet, modality: Modality, inputs: Tensor | None) -> nn.Linear | None:
    """Return the first layer of a tower if it is a linear layer with far more inputs than the silo has items, else None.

    Args:
        model: Network.
        modality: Modality of the tower.
        inputs: ``(n, D)``, inputs of the silo's items, or None if it has none.
    """
    tower = model.tower(modality)
    if inputs is None or inputs.dtype != torch.float32 or tower.scale != 1.0:
        return None
    layer = tower.backbone[0] if isinstance(tower.backbone, nn.Sequential) else None
    if not isinstance(layer, nn.Linear) or inputs.ndim != 2 or not layer.weight.requires_grad:
        return None
    return layer if 0 < len(inputs) <= MOST_ITEMS * layer.in_features else None


@contextmanager
def trained_by_items(model: HashNet, data: Mapping[Modality, Tensor | None], rule: SGDRule) -> Iterator[ItemLayers]:
    """Train the first layers of towers by items inside a ``with`` block, where that is faster.

    Inside the block, the weights of these layers are behind, and their gradients are None, so that optimizers leave them
    alone. Batches must be announced, and `ItemLayers.step` must follow each optimizer step.

    Args:
        model: Network, changed in place.
        data: Inputs of the silo's items, by modality.
        rule: Optimizer of all parameters.
    """
    found = {modality: first_layer(model, modality, data[modality]) for modality in model.modalities}
    before = {modality: layer for modality, layer in found.items() if layer is not None}
    layers = {
        modality: ItemLayer.of(layer, inputs, rule)
        for modality, layer in before.items()
        if (inputs := data[modality]) is not None
    }
    for modality, layer in layers.items():
        layer.weight.grad = None
        _replace(model, modality, layer)
    try:
        yield ItemLayers(layers)
    finally:
        for modality, layer in layers.items():
            layer.settle()
            _replace(model, modality, before[modality].train(layer.training))


def _replace(model: HashNet, modality: Modality, layer: nn.Linear) -> None:
    """Put a layer in the place of the first one of a tower's backbone."""
    backbone = model.tower(modality).backbone
    assert isinstance(backbone, nn.Sequential)  # noqa: S101  checked by `first_layer`
    backbone[0] = layer
