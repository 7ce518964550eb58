"""Matching of structure: the cosines of words and regions travel along the edges of the two graphs.

After the nodes of a text and an image are matched (`silohash.methods.local.matching.attention`), each node has P cosines,
one per block of dimensions. A graph convolution adds up the cosines of its neighbors, and a small network turns the result
into a score per node. The regions of an image form a complete graph, whose edges depend on their places. The words of a
text form a complete graph (dense), or a graph of their grammatical relations (sparse).

==============  ======================  ==================================================================
paper           code here               meaning
==============  ======================  ==================================================================
x_i             ``cosines``             cosines of a node, one per block
W_e             `word_edges`,           weights of the edges, which sum to 1 over a node's neighbors
                `region_edges`
rho, theta      `polar`                 distance and angle between the centers of two regions
k               ``kernels``             number of Gaussian kernels of the image's graph
==============  ======================  ==================================================================

The dimensions are T texts, W words, I images, R regions, P blocks and K kernels.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from silohash.methods.local.matching.attention import mean_over

Propagation: TypeAlias = Literal["neighbors", "self"]
"""What a node receives: the cosines of its neighbors, or its own in their place."""

NARROWEST = 0.05
"""Smallest width of a Gaussian kernel. A narrower one has no weight for most neighbors, and stops learning."""

LEAST_SUM = 1e-12
"""Sums of weights are at least this number before weights are divided by them."""


def polar(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distances and angles between the centers of an image's regions, both ``(I, R, R)``.

    The angles are in [-pi, pi], and 0 for equal centers.

    Args:
        boxes: ``(I, R, 4)``, left, top, right and bottom, divided by the width and height of the image.

    Source: FedBi-GNNs, equation (2).
    """
    centers = (boxes[..., :2] + boxes[..., 2:]).detach() / 2
    steps = centers.unsqueeze(1) - centers.unsqueeze(2)
    return steps.square().sum(-1).sqrt(), torch.atan2(steps[..., 1], steps[..., 0])


def region_edges(distance: Tensor, angle: Tensor, mask: Tensor, kernels: Tensor) -> Tensor:
    """Return the weights of the edges between regions under each Gaussian kernel, ``(I, K, R, R)``.

    They sum to 1 over the neighbors of a region, which include itself.

    Args:
        distance: ``(I, R, R)``.
        angle: ``(I, R, R)`` in radians.
        mask: ``(I, R)`` bool, False for padding.
        kernels: ``(4, K)``, means of the distance and the angle, and their widths.

    Source: Liu et al., "Graph Structured Network for Image-Text Matching", CVPR 2020, section 3.2, with weights that sum to
        1 over the neighbors.
    """
    near, turned, near_width, turned_width = kernels[:, None, :, None, None]
    apart = (angle.unsqueeze(1) - turned).abs()
    apart = torch.minimum(apart, (2 * math.pi - apart).abs())
    squares = ((distance.unsqueeze(1) - near) / near_width).square() + (apart / turned_width).square()
    weights = torch.exp(-0.5 * squares) * mask[:, None, None, :]
    return weights / weights.sum(-1, keepdim=True).clamp(min=LEAST_SUM)


def word_edges(words: Tensor, mask: Tensor, inverse_temperature: float, edges: Tensor | None = None) -> Tensor:
    """Return the weights of the edges between words, ``(T, W, W)``. They sum to 1 over the neighbors of a word.

    Args:
        words: ``(T, W, D)``, of length 1.
        mask: ``(T, W)`` bool, False for padding.
        inverse_temperature: Factor in the softmax (lambda), positive.
        edges: ``(T, W, W)`` bool, which words are neighbors; None if all are.

    Source: FedBi-GNNs, equations (5) to (7), with weights that sum to 1.
    """
    neighbors = mask.unsqueeze(1) if edges is None else edges & mask.unsqueeze(1)
    logits = inverse_temperature * words @ words.mT
    return logits.masked_fill(~neighbors, torch.finfo(logits.dtype).min).softmax(-1) * neighbors


def own_weights(weights: Tensor) -> Tensor:
    """Return edges that lead from each node to itself with the sum of its weights, of the same shape ``(..., N, N)``."""
    return torch.diag_embed(weights.sum(-1))


class Score(nn.Module):
    """A network that scores a node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = weight_norm(nn.Linear(width, width))
        self.out = weight_norm(nn.Linear(width, 1))

    def forward(self, values: Tensor) -> Tensor:
        """Return the scores ``(...)`` of nodes, given their values ``(..., width)``."""
        score: Tensor = self.out(torch.tanh(self.hidden(values))).squeeze(-1)
        return score


class TextStructure(nn.Module):
    """Matching of structure in the graphs of texts.

    All kernels of the published layer have the same edges, so they are one linear map.
    """

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.kernels = nn.Linear(blocks, width)
        self.score = Score(width)

    def forward(self, cosines: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """Return the mean score of each text's words, ``(T, I)``.

        Args:
            cosines: ``(T, W, I, P)``.
            edges: ``(T, W, W)`` (`word_edges`).
            mask: ``(T, W)`` bool.

        Source: FedBi-GNNs, equations (13) and (14).
        """
        moved = (edges @ cosines.flatten(2)).view_as(cosines)
        return mean_over(self.score(self.kernels(moved)), mask.unsqueeze(2), 1)


class ImageStructure(nn.Module):
    """Matching of structure in the graphs of images."""

    def __init__(self, blocks: int, kernels: int, width: int, propagation: Propagation) -> None:
        super().__init__()
        self.propagation = propagation
        self.near = nn.Parameter(torch.rand(kernels))
        self.turned = nn.Parameter(math.pi * (2 * torch.rand(kernels) - 1))
        self.near_width = nn.Parameter(torch.rand(kernels))
        self.turned_width = nn.Parameter(torch.rand(kernels))
        self.kernels = nn.Linear(blocks, kernels * width, bias=False)
        self.score = Score(kernels * width)

    def edges(self, boxes: Tensor, mask: Tensor) -> Tensor:
        """Return the weights of the edges between regions, ``(I, K, R, R)``.

        Args:
            boxes: ``(I, R, 4)``, divided by the size of the image.
            mask: ``(I, R)`` bool.
        """
        widths = F.softplus(torch.stack([self.near_width, self.turned_width])) + NARROWEST
        weights = region_edges(*polar(boxes), mask, torch.cat([torch.stack([self.near, self.turned]), widths]))
        return weights if self.propagation == "neighbors" else own_weights(weights)

    def forward(self, cosines: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """Return the mean score of each image's regions, ``(T, I)``.

        The linear map of a kernel comes first, because it makes the values fewer that travel along the edges.

        Args:
            cosines: ``(T, I, R, P)``.
            edges: ``(I, K, R, R)`` (`edges`).
            mask: ``(I, R)`` bool.

        Source: FedBi-GNNs, equations (13) and (14).
        """
        texts, images, regions, _ = cosines.shape
        kernels = edges.shape[1]
        values = self.kernels(cosines).view(texts, images, regions, kernels, -1).permute(1, 3, 2, 0, 4)
        moved = (edges @ values.flatten(3)).view(images, kernels, regions, texts, -1).permute(3, 0, 2, 1, 4)
        return mean_over(self.score(moved.flatten(3)), mask.unsqueeze(0), 2)
