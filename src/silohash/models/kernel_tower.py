"""A tower whose features are the similarities of an input to some anchors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from silohash.models.specs import TowerSpec


class AnchorKernel(nn.Module):
    """The Gaussian kernel exp(-|x - a|^2 / width) of an input with every anchor, ``(B, ...) -> (B, hidden)``.

    Anchors and width are buffers, which a local method sets from a silo's items.

    Args:
        spec: A spec of the kind ``kernel``. Its hidden width is the number of anchors.
    """

    def __init__(self, spec: TowerSpec) -> None:
        super().__init__()
        self.register_buffer("anchors", torch.zeros(spec.hidden, math.prod(spec.shape)))
        self.register_buffer("width", torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the similarities."""
        return gaussian_kernel(inputs.flatten(1), self.get_buffer("anchors"), self.get_buffer("width"))


def gaussian_kernel(vectors: Tensor, anchors: Tensor, width: Tensor) -> Tensor:
    """Return exp(-|x - a|^2 / width) of all vectors with all anchors, ``(n, m)``.

    Args:
        vectors: ``(n, D)``.
        anchors: ``(m, D)``.
        width: ``()``, greater than 0.
    """
    squares = vectors.square().sum(1, keepdim=True) - 2.0 * vectors @ anchors.T + anchors.square().sum(1)
    return torch.exp(-squares.clamp(min=0.0) / width)
