"""Clipped gradients per record: the sum over a batch of each record's gradient, after its norm was limited.

The gradient of a linear layer for one record is the outer product of the layer's input and of the gradient at its output.
Its norm is the product of their norms, and a weighted sum of such gradients is one matrix product. So no record's gradient
is ever computed as a whole.

Source: Goodfellow, "Efficient Per-Example Gradient Computations", 2015; Bu et al., "Differentially Private Optimization on
Large Model at Small Cost", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from silohash.base.types import UserError


@dataclass
class Passes:
    """The inputs ``(B, D)`` and outputs ``(B, O)`` of linear layers during one forward pass of a batch.

    Attributes:
        layers: The layers, one entry per use.
        inputs: The input of each use, without gradients.
        outputs: The output of each use, which belongs to the graph of the loss.
    """

    layers: list[nn.Linear] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def clipped_sum(self, loss: Tensor, limit: float) -> dict[Tensor, Tensor]:
        """Return the sum over the records of their gradients, each scaled to a norm of at most ``limit``.

        Args:
            loss: Scalar, the sum over the records of losses, each of which depends on the outputs for one record only.
            limit: Limit on the norm of a record's gradient with respect to all parameters together.

        Returns:
            The clipped sum per parameter of the layers that the loss depends on.
        """
        deltas = torch.autograd.grad(loss, self.outputs, allow_unused=True)
        used = [(layer, given, delta) for layer, given, delta in zip(self.layers, self.inputs, deltas, strict=True)
                if delta is not None]  # fmt: skip
        squares = sum(
            (given.square().sum(1) + (layer.bias is not None)) * delta.square().sum(1) for layer, given, delta in used
        )
        if not isinstance(squares, Tensor):
            return {}
        norms = squares.sqrt()
        factors = torch.where(norms > limit, limit / norms, torch.ones_like(norms))
        factors = torch.where(norms.isfinite(), factors, torch.zeros_like(norms))
        found: dict[Tensor, Tensor] = {}
        for layer, given, delta in used:
            scaled = torch.where(factors.unsqueeze(1) > 0, delta * factors.unsqueeze(1), torch.zeros_like(delta))
            found[layer.weight] = scaled.T @ torch.nan_to_num(given)
            if layer.bias is not None:
                found[layer.bias] = scaled.sum(0)
        return found


class RecordGradients:
    """Watch the forward passes of a network whose trained parameters all belong to linear layers.

    Args:
        model: The network.

    Raises:
        UserError: If other layers have trained parameters, because their gradients per record are not computed here.
    """

    def __init__(self, model: nn.Module) -> None:
        self.layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        covered = {id(p) for layer in self.layers for p in layer.parameters()}
        others = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in covered]
        if others:
            raise UserError(
                f'exchange.privacy.unit = "record" trains linear layers only, and {others[0]} belongs to another one. Take '
                "feature vectors of a published network in place of pictures or word pieces, and a local method without "
                'parameters of its own such as csq, or set the unit to "silo".'
            )

    @contextmanager
    def watched(self) -> Iterator[Passes]:
        """Record the inputs and outputs of the layers within a ``with`` block, which runs the model once on a batch.

        Raises:
            UserError: At the end of the block, if a layer was used more than once, or with an input that does not have
                two axes.
        """
        passes = Passes()

        def keep(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            """Keep one use of a layer."""
            assert isinstance(layer, nn.Linear)  # noqa: S101  hooked below
            if output.requires_grad:
                passes.layers.append(layer)
                passes.inputs.append(inputs[0].detach())
                passes.outputs.append(output)

        handles = [layer.register_forward_hook(keep) for layer in self.layers]
        try:
            yield passes
        finally:
            for handle in handles:
                handle.remove()
        if len(set(map(id, passes.layers))) != len(passes.layers) or any(given.ndim != 2 for given in passes.inputs):
            raise UserError(
                'exchange.privacy.unit = "record" needs a network that uses each linear layer once per item. Choose another '
                'local method, such as csq, or set the unit to "silo".'
            )
