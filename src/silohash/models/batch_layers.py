"""Train the first layers of towers with SGD by reading and writing their weights once per batch.

SGD with learning rate r, momentum m and weight decay d changes a weight w and its momentum v by gradients g,

    v' = m v + d w + g,    w' = w - r v'.

The weight is the sum of two modes. In each step, a mode shrinks by a factor and adds a multiple of the gradient,

    w = u_1 + u_2,    u_i' = f_i u_i + c_i g,

where f_1 > f_2 solve f^2 - (1 - r d + m) f + m = 0, c_1 = -r f_1 / (f_1 - f_2) and c_2 = r f_2 / (f_1 - f_2). The
gradient of the weights is G^T X, with the inputs X of the batch and the gradient G of the outputs. After s steps on a batch,

    U_i(s) = f_i^s U_i + A_i^T X,    X U_i(s)^T = f_i^s X U_i^T + X X^T A_i,

where A_i starts at 0 and follows A_i' = f_i A_i + c_i G. All steps on a batch thus need one product with the modes and one
update of them. A mode is stored as a matrix times a number, which takes the factors f_i^s. Columns in which no item of the
batch has a value are neither read nor written then. The bias is the weight of a further input that is always 1. Outputs and
weights are those of the usual steps up to rounding.

=======  ============================================  ========================================================
symbol   code here                                     meaning
=======  ============================================  ========================================================
f, c     ``factors``, ``gains``                        factor of a mode per step, and multiple of the gradient
U        ``weights`` times ``scales``, ``bias``        modes of the weights and of the bias
X        `Batch.inputs`                                inputs of the batch
A        `Batch.by_item`                               factors of X in the modes
X X^T    `Batch.products`                              products of the inputs of two items, with that of the bias
=======  ============================================  ========================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.models.item_layers import SGDRule
from silohash.models.used_columns import used_columns

LEAST_GAP = 1e-3
"""Smallest difference of the two factors at which the modes represent the weights accurately."""

LEAST_SCALE = 1e-12
"""Smallest scale of a mode. Before it would be smaller, the modes are multiplied by their scales, in one pass over them."""

MOST_COLUMNS = 0.25
"""Largest share of used columns at which it clearly pays to read and write only these."""

MOST_COUNTED = 512
"""Number of items from which the share of used columns can be estimated."""

MOST_PRODUCTS = 16
"""Largest number of multiplications per weight for products of two items at which shared passes are clearly faster."""


class Mode(NamedTuple):
    """A part of a weight that SGD trains.

    Attributes:
        share: Share of the initial weight. The shares of the modes sum to 1.
        factor: Factor per step.
        gain: Multiple of the gradient that a step adds.
    """

    share: float
    factor: float
    gain: float


def modes_of(rule: SGDRule) -> list[Mode]:
    """Return the modes of a weight: two, or one without momentum. There are none if they cannot represent the weight.

    Args:
        rule: Optimizer of the weight, with the state of a new one.

    Example:
        >>> modes_of(SGDRule(rate=0.1, momentum=0.0, weight_decay=0.5))
        [Mode(share=1.0, factor=0.95, gain=-0.1)]
        >>> modes_of(SGDRule(rate=0.1, momentum=0.5, weight_decay=0.0))
        [Mode(share=1.0, factor=1.0, gain=-0.2), Mode(share=0.0, factor=0.5, gain=0.1)]
    """
    kept = 1.0 - rule.rate * rule.weight_decay
    if rule.momentum == 0.0:
        return [Mode(1.0, kept, -rule.rate)]
    trace = kept + rule.momentum
    square = trace * trace - 4.0 * rule.momentum
    if trace <= 0.0 or square < LEAST_GAP**2:
        return []
    gap = math.sqrt(square)
    first, second = (trace + gap) / 2.0, (trace - gap) / 2.0
    return [
        Mode((kept - second) / gap, first, -rule.rate * first / gap),
        Mode((first - kept) / gap, second, rule.rate * second / gap),
    ]


@dataclass
class Batch:
    """The announced batch, and what its steps have changed so far. There are k modes.

    Attributes:
        places: ``(U,)`` int64, positions of the columns in which the batch has values; None for all columns.
        inputs: ``(B, U)``, values of the batch.
        outputs: ``(B, k, H)``, outputs of the modes before the steps.
        products: ``(B, B)``, products of the inputs of two items.
        by_item: ``(B, k, H)``, factors of the inputs in the modes, or None before the first step.
        steps: Number of steps.
    """

    places: Tensor | None
    inputs: Tensor
    outputs: Tensor
    products: Tensor
    by_item: Tensor | None = None
    steps: int = 0


class Modes:
    """The modes of a linear layer's weights and bias.

    Those of the weights are ``weights``, ``(D, k, H)``, times ``scales``, ``(k, 1)``. Those of the bias are ``bias``,
    ``(k, H)``.

    Args:
        layer: Layer that has the initial weights and a bias.
        modes: Modes of a weight, at least one.
        by_columns: Whether only the columns in which a batch has values are read and written.
    """

    @torch.no_grad()
    def __init__(self, layer: nn.Linear, modes: list[Mode], *, by_columns: bool) -> None:
        shares, factors, gains = torch.tensor(modes, dtype=torch.float64).T.unsqueeze(-1).unbind()
        shares, self.gains = shares.to(layer.weight), gains.to(layer.weight)
        self.factors = factors
        self.scales = torch.ones_like(factors)
        weights = (shares.unsqueeze(-1) * layer.weight).permute(2, 0, 1)
        self.weights = weights.contiguous() if by_columns else weights
        self.bias = shares * layer.bias
        self.by_columns = by_columns
        self.batch: Batch | None = None

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the current batch after its steps so far, ``(B, H)``.

        Args:
            inputs: ``(B, D)``, its inputs.
        """
        batch = self._opened(inputs)
        if batch.by_item is None:
            return batch.outputs.sum(1)
        factors = (self.factors**batch.steps).to(inputs.dtype)
        return (batch.outputs * factors).sum(1).addmm_(batch.products, batch.by_item.sum(1))

    def step(self, inputs: Tensor, gradient: Tensor) -> None:
        """Take a step of SGD.

        Args:
            inputs: ``(B, D)``, inputs of the current batch.
            gradient: ``(B, H)``, gradient of its outputs.
        """
        batch = self._opened(inputs)
        added = self.gains * gradient.unsqueeze(1)
        batch.by_item = added if batch.by_item is None else added.addcmul_(batch.by_item, self.factors.to(added.dtype))
        batch.steps += 1

    def current(self) -> tuple[Tensor, Tensor]:
        """Return the weights after the steps so far, ``(D, H)``, and the bias, ``(H,)``."""
        self.put_back()
        self._rescale()
        return self.weights.sum(1), self.bias.sum(0)

    def put_back(self) -> None:
        """End the current batch: change the modes by its steps."""
        batch, self.batch = self.batch, None
        if batch is None or batch.by_item is None:
            return
        factors = self.factors**batch.steps
        self.bias.mul_(factors).add_(batch.by_item.sum(0))
        self.scales *= factors
        if bool((self.scales < LEAST_SCALE).any()):
            self._rescale()
        by_item = batch.by_item.mul_((1.0 / self.scales).to(batch.inputs.dtype)).flatten(1)
        if batch.places is None:
            self.weights.flatten(1).addmm_(batch.inputs.T, by_item)
        else:
            self.weights.flatten(1).index_add_(0, batch.places, batch.inputs.T @ by_item)

    def _opened(self, inputs: Tensor) -> Batch:
        """Return the current batch, with the outputs of the modes."""
        if self.batch is None:
            places, weights = None, self.weights.flatten(1)
            if self.by_columns:
                places = used_columns(inputs)
                inputs, weights = inputs.index_select(1, places), weights.index_select(0, places)
            outputs = (inputs @ weights).view(len(inputs), *self.bias.shape)
            outputs = torch.addcmul(self.bias, outputs, self.scales.to(outputs.dtype))
            products = torch.addmm(inputs.new_ones(1), inputs, inputs.T)
            self.batch = Batch(places, inputs, outputs, products)
        return self.batch

    def _rescale(self) -> None:
        """Multiply the modes of the weights by their scales, which become 1."""
        self.weights.mul_(self.scales.to(self.weights.dtype))
        self.scales.fill_(1.0)


class BatchLayer(nn.Linear):
    """A linear layer that reads and writes its weights once per batch. In evaluation mode it is a usual one.

    It has the parameters of the layer in whose place it stands. They are behind until `settle`.
    """

    modes: Modes
    announced: Tensor | None
    passed: list[Tensor]

    @classmethod
    def of(cls, layer: nn.Linear, modes: list[Mode], *, by_columns: bool) -> BatchLayer:
        """Return such a layer in the place of another one.

        Args:
            layer: Layer whose parameters are trained. It has a bias.
            modes: Modes of its weights, at least one.
            by_columns: Whether only the columns in which a batch has values are read and written.
        """
        made: BatchLayer = nn.utils.skip_init(cls, layer.in_features, layer.out_features)  # type: ignore[no-untyped-call]
        made.weight, made.bias = layer.weight, layer.bias
        made.modes, made.announced, made.passed = Modes(layer, modes, by_columns=by_columns), None, []
        return made.train(layer.training)

    def announce(self, rows: Tensor, inputs: Tensor | None) -> None:
        """Let the forward passes on the inputs of a batch be training passes, until the next call.

        Args:
            rows: ``(B,)`` int64, positions of the items.
            inputs: ``(B, D)``, their inputs, or None if there are none.
        """
        self.modes.put_back()
        self.announced = inputs
        self.passed.clear()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs ``(B, H)`` for the inputs ``(B, D)``. Those of the announced batch can be differentiated."""
        if not self.training or self.announced is not inputs:
            weights, bias = self.modes.current()
            return F.linear(inputs, weights.T, bias)
        outputs = self.modes.outputs(inputs).requires_grad_()
        self.passed.append(outputs)
        return outputs

    def step(self) -> None:
        """Take a step of SGD with the gradients of the outputs since the last one, if there are any."""
        gradients = [outputs.grad for outputs in self.passed if outputs.grad is not None]
        self.passed.clear()
        if gradients and self.announced is not None:
            gradient = gradients[0] if len(gradients) == 1 else torch.stack(gradients).sum(0)
            self.modes.step(self.announced, gradient)

    @torch.no_grad()
    def settle(self) -> None:
        """Write the weights and the bias after the steps into the parameters."""
        weights, bias = self.modes.current()
        self.weight.copy_(weights.T)
        self.bias.copy_(bias)


def saves_passes(layer: nn.Linear, batch: int) -> bool:
    """Return whether a layer is clearly faster if two steps on a batch share the passes over its weights.

    It takes more time for the products of the inputs of two items, which grows with the square of the batch size.

    Args:
        layer: Layer that is trained.
        batch: Number of items of a batch.
    """
    inputs, outputs = layer.in_features, layer.out_features
    return batch * batch * (inputs + outputs) <= MOST_PRODUCTS * inputs * outputs


def used_share(inputs: Tensor, batch: int) -> float:
    """Return the share of columns in which a batch of random items is expected to have a value.

    It is estimated from evenly spaced items if there are more than `MOST_COUNTED`.

    Args:
        inputs: ``(n, D)``, inputs of the silo's items, at least one.
        batch: Number of items of a batch.
    """
    counted = inputs[:: max(1, len(inputs) // MOST_COUNTED)]
    present = counted.count_nonzero(0).double() / len(counted)
    return float((1.0 - (1.0 - present) ** batch).mean())
