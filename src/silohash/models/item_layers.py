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

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

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

    def announce(self, rows: Tensor, inputs: Tensor | None) -> None:
        """Let the forward passes on the inputs of a batch be training passes, until the next call.

        Args:
            rows: ``(B,)`` int64, positions of the items.
            inputs: ``(B, D)``, their inputs, or None if there are none.
        """
        self.batch = None if inputs is None else (rows, inputs)

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
