"""Train the first layers of towers faster on inputs that are mostly zero, such as the words of texts.

The gradient of a weight is 0 if no item of the batch has a value in the weight's column. A step of SGD then maps the weight
w and its momentum v to fixed linear combinations of both,

    w' = (1 - r d) w - r m v,    v' = d w + m v,

with learning rate r, weight decay d and momentum m. Such steps are counted, and are applied all at once when a batch has a
value in the column again. Outputs and weights are those of the usual step up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.models.item_layers import SGDRule

MOST_COLUMNS = 0.25
"""Largest share of used columns at which such a step is clearly faster."""

MOST_COUNTED = 2048
"""Number of items from which the share of used columns can be estimated."""


class Columns(NamedTuple):
    """The columns in which the announced batch has values.

    Attributes:
        places: ``(U,)`` int64, positions of the columns.
        inputs: ``(B, U)``, values of the batch.
        weights: ``(U, H)``, weights of the columns, which can be differentiated.
        momenta: ``(U, H)``, their momentum.
    """

    places: Tensor
    inputs: Tensor
    weights: Tensor
    momenta: Tensor


class ColumnLayer(nn.Linear):
    """A linear layer whose training steps change the columns that a batch uses. In evaluation mode it is a usual one.

    It has the parameters of the layer in whose place it stands. Those of its weights are behind until `settle`.
    """

    rule: SGDRule
    weights: Tensor
    momenta: Tensor
    changed: Tensor
    powers: Tensor
    steps: int
    announced: Tensor | None
    used: Columns | None

    @classmethod
    @torch.no_grad()
    def of(cls, layer: nn.Linear, rule: SGDRule) -> ColumnLayer:
        """Return such a layer in the place of another one.

        Args:
            layer: Layer whose parameters are trained.
            rule: Optimizer of the weights, with the state of a new one.
        """
        made: ColumnLayer = nn.utils.skip_init(cls, layer.in_features, layer.out_features)  # type: ignore[no-untyped-call]
        made.weight, made.bias, made.rule = layer.weight, layer.bias, rule
        made.weights = layer.weight.T.contiguous()
        made.momenta = torch.zeros_like(made.weights)
        made.changed = torch.zeros(layer.in_features, dtype=torch.int64)
        made.powers = torch.eye(2, dtype=torch.float64).unsqueeze(0)
        made.steps, made.announced, made.used = 0, None, None
        return made.train(layer.training)

    def announce(self, rows: Tensor, inputs: Tensor | None) -> None:
        """Let the forward passes on the inputs of a batch be training passes, until the next call.

        Args:
            rows: ``(B,)`` int64, positions of the items.
            inputs: ``(B, D)``, their inputs, or None if there are none.
        """
        self._put_back()
        self.announced = inputs

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs ``(B, H)`` for the inputs ``(B, D)``. Those of the announced batch can be differentiated."""
        if not self.training or self.announced is not inputs:
            return F.linear(inputs, self.current(), self.bias)
        if self.used is None:
            with torch.no_grad():
                places = inputs.any(0).nonzero().squeeze(1)
                weights, momenta = self._caught_up(places)
                self.used = Columns(places, inputs.index_select(1, places), weights, momenta)
            weights.requires_grad_()
        return torch.addmm(self.bias, self.used.inputs, self.used.weights)

    @torch.no_grad()
    def step(self) -> None:
        """Take a step of SGD with the gradients of the announced batch since the last one, if there are any."""
        gradient = None if self.used is None else self.used.weights.grad
        if self.used is None or gradient is None:
            return
        weights, momenta = self.used.weights, self.used.momenta
        momenta.mul_(self.rule.momentum).add_(weights, alpha=self.rule.weight_decay).add_(gradient)
        weights.sub_(momenta, alpha=self.rule.rate)
        weights.grad = None
        self.steps += 1

    @torch.no_grad()
    def current(self) -> Tensor:
        """Return the weights after the steps so far, ``(H, D)``."""
        used, announced = self.used, self.announced
        self._put_back()
        self.weights, self.momenta = self._caught_up(torch.arange(self.in_features))
        self.changed.fill_(self.steps)
        self.used, self.announced = used, announced
        return self.weights.T

    @torch.no_grad()
    def settle(self) -> None:
        """Write the weights after the steps into the parameter."""
        self.weight.copy_(self.current())

    @torch.no_grad()
    def _put_back(self) -> None:
        """Store the columns of the announced batch."""
        if self.used is not None:
            self.weights.index_copy_(0, self.used.places, self.used.weights)
            self.momenta.index_copy_(0, self.used.places, self.used.momenta)
            self.changed[self.used.places] = self.steps
            self.used = None

    def _caught_up(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the momentum of some columns after the steps so far, both ``(U, H)``."""
        weights, momenta = self.weights.index_select(0, places), self.momenta.index_select(0, places)
        factors = self._powers().index_select(0, self.steps - self.changed.index_select(0, places))
        of_weights, of_momenta = factors.to(weights.dtype).unsqueeze(-1).unbind(2)
        return (
            torch.addcmul(weights * of_weights[:, 0], momenta, of_momenta[:, 0]),
            torch.addcmul(weights * of_weights[:, 1], momenta, of_momenta[:, 1]),
        )

    def _powers(self) -> Tensor:
        """Return the powers of the map of a step without gradient, from 0 to at least the number of steps, ``(n, 2, 2)``."""
        rate, momentum, decay = self.rule.rate, self.rule.momentum, self.rule.weight_decay
        one = torch.tensor([[1.0 - rate * decay, -rate * momentum], [decay, momentum]], dtype=torch.float64)
        while len(self.powers) <= self.steps:
            self.powers = torch.cat([self.powers, self.powers @ self.powers[-1] @ one])
        return self.powers


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
