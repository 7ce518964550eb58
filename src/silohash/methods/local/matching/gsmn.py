"""GSMN: words and regions are matched with each other, and then the neighbors of each with those of the other.

A word is compared with the regions that it attends to, block by block of the dimensions, and a region with its words. A
graph convolution adds up the cosines of a node's neighbors, and a small network turns the result into a score per node. The
regions of an image form a complete graph, whose edges depend on their places. The words of a text form a complete graph
(dense), or a graph of their grammatical relations (sparse).

==============  ==========================  ==============================================================
paper           code here                   meaning
==============  ==========================  ==============================================================
A               `affinities`                inner products of words and regions
x               `node_cosines`              cosines of nodes and contexts, one per block
W_e             `word_edges`,               weights of the edges, which sum to 1 over a node's neighbors
                `region_edges`
sigma           ``convolution``             function after the graph convolutions
rho, theta      `polar`                     distance and angle between the centers of two regions
s               `GraphMatching`             score of an image and a text
lambda          ``inverse_temperature``     factor in the softmax
k               ``kernels``                 number of Gaussian kernels of the image's graph
r               ``blocks``                  number of blocks of dimensions
==============  ==========================  ==============================================================

Equations (8) to (12) of FedBi-GNNs are `node_cosines`, (13) to (15) are `GraphMatching`. The dimensions are T texts,
W words, I images, R regions, P blocks and K kernels. Masks ``(T, W)`` and ``(I, R)`` are False for padding.
"""

import math
from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from silohash.base.types import MethodCard
from silohash.methods.local.matching import attention
from silohash.methods.local.matching.base import Matching, MatchingParams, check_divisor, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, RegionEncoder, WordEncoder, window_edges
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="gsmn",
    title="Graph Structured Network for Image-Text Matching",
    authors="Chunxiao Liu, Zhendong Mao, Tianzhu Zhang, Hongtao Xie, Bin Wang, Yongdong Zhang",
    venue="CVPR",
    year=2020,
    link="https://arxiv.org/abs/2004.00277",
    summary="Match words with regions, and then their neighbors in two graphs, as in FedBi-GNNs. Scores pairs.",
    differs_from_paper=(
        "Cosines travel between nodes, as the equations say. In the authors' code, each node receives its own cosines in "
        "place of its neighbors'. The preset authors_code does that (`propagation` = self).",
        "The weights of the edges between regions sum to 1 over the neighbors. In the authors' code and the preset "
        "authors_code, they do over the kernels (`edge_sums`). With `propagation` = self and sums over the neighbors, boxes "
        "have no effect, because a region then receives its own cosines once, wherever its neighbors are.",
        "The authors' code divides boxes by the size of the picture each time it reads them, so they shrink to 0 in the "
        "first epochs. Here they are shares of the picture. It does not have a smallest width of kernels.",
        "The graph convolutions are linear, as in the authors' code. The preset paper has the bias and the function of "
        "equation (13) (`convolution`), for which it takes tanh, and 32 values per kernel.",
        "The weights of the edges between words sum to 1. In equation (7) they have length 1.",
        "All kernels of the text's graph have the same edges, so they are one map.",
        "Similarities below 0 are reduced to a tenth and scaled over the queries before the softmax, as in the code.",
        "The sparse graph takes the grammatical relations of the file `features.text.parses`. Texts without them have the "
        "words at most two places apart as neighbors.",
        "Word vectors are learned, from random or from given vectors. FedBi-GNNs adds fixed GloVe vectors.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "A run trains one graph. The published scores are the mean of a dense and a sparse model.",
    ),
)


Propagation: TypeAlias = Literal["neighbors", "self"]
"""What a node receives: the cosines of its neighbors, or its own in their place."""

EdgeSums: TypeAlias = Literal["neighbors", "kernels"]
"""Over what the weights of the edges between regions sum to 1."""

NARROWEST = 0.05
"""Smallest width of a Gaussian kernel. A narrower one has no weight for most neighbors, and stops learning."""

LEAST_SUM = 1e-12
"""Sums of weights are at least this number before weights are divided by them."""


class GSMNParams(MatchingParams):
    """Parameters of GSMN."""

    graph: Literal["dense", "sparse"] = "dense"
    """Which words are neighbors: `dense` (all words of a text) or `sparse` (words with a grammatical relation)."""
    propagation: Propagation = "neighbors"
    """What a node receives: `neighbors` (the cosines of its neighbors) or `self` (its own, as in the authors' code)."""
    edge_sums: EdgeSums = "neighbors"
    """Over what the weights of the edges between regions sum to 1: `neighbors`, or `kernels`, as in the authors' code. With
    `neighbors` and `propagation = "self"`, the boxes of regions have no effect."""
    convolution: Literal["linear", "tanh"] = "linear"
    """Graph convolutions: `linear` (without a bias for regions, as in the authors' code) or `tanh` (with a bias and this
    function of the sum over neighbors, as in equation (13) of the paper)."""
    blocks: int = Field(default=16, ge=1)
    """Number of blocks of dimensions, each with its own cosine, at least 1. It divides `model.hidden`."""
    kernels: int = Field(default=8, ge=1)
    """Number of kernels of the graph convolutions, at least 1."""
    kernel_width: int = Field(default=4, ge=1)
    """Number of values per node and kernel after the convolution, at least 1."""
    inverse_temperature: float = Field(default=10.0, gt=0)
    """Factor on similarities in the softmax of the attention and of the text's graph (lambda), positive."""


def polar(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distances and angles between the centers of an image's regions, both ``(I, R, R)``.

    The boxes ``(I, R, 4)`` are shares of the image. Angles are in [-pi, pi], and 0 for equal centers.

    Source: FedBi-GNNs, equation (2).
    """
    centers = (boxes[..., :2] + boxes[..., 2:]).detach() / 2
    steps = centers.unsqueeze(1) - centers.unsqueeze(2)
    return steps.square().sum(-1).sqrt(), torch.atan2(steps[..., 1], steps[..., 0])


def region_edges(
    distance: Tensor, angle: Tensor, mask: Tensor, kernels: Tensor, sums: EdgeSums = "neighbors"
) -> Tensor:
    """Return the weights of the edges between regions under each Gaussian kernel, ``(I, K, R, R)``.

    They sum to 1 over the neighbors of a region, which include itself, or over the kernels of an edge. The kernels
    ``(4, K)`` are means of the distance and the angle, and their widths.

    Source: Liu et al., "Graph Structured Network for Image-Text Matching", CVPR 2020, section 3.2; sums over the kernels as
        in the authors' code.
    """
    near, turned, near_width, turned_width = kernels[:, None, :, None, None]
    apart = (angle.unsqueeze(1) - turned).abs()
    # Angles of -pi and pi are the same direction.
    apart = torch.minimum(apart, (2 * math.pi - apart).abs())
    squares = ((distance.unsqueeze(1) - near) / near_width).square() + (apart / turned_width).square()
    weights = torch.exp(-0.5 * squares) * mask[:, None, None, :]
    return weights / weights.sum(-1 if sums == "neighbors" else 1, keepdim=True).clamp(min=LEAST_SUM)


def word_edges(words: Tensor, mask: Tensor, inverse_temperature: float, edges: Tensor | None = None) -> Tensor:
    """Return the weights of the edges between words ``(T, W, D)`` of length 1, ``(T, W, W)``, which sum to 1 per word.

    All words of a text are neighbors, unless edges ``(T, W, W)`` say which.

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
    """Matching of structure in the graphs of texts."""

    def __init__(self, params: GSMNParams) -> None:
        super().__init__()
        self.kernels = nn.Linear(params.blocks, params.kernels * params.kernel_width)
        self.activation = nn.Tanh() if params.convolution == "tanh" else nn.Identity()
        self.score = Score(params.kernels * params.kernel_width)

    def forward(self, cosines: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """Return the mean score of each text's words, ``(T, I)``, of their cosines ``(T, W, I, P)`` and edges ``(T, W, W)``.

        Source: FedBi-GNNs, equations (13) and (14).
        """
        moved = (edges @ cosines.flatten(2)).view_as(cosines)
        return attention.mean_over(self.score(self.activation(self.kernels(moved))), mask.unsqueeze(2), 1)


class ImageStructure(nn.Module):
    """Matching of structure in the graphs of images."""

    def __init__(self, params: GSMNParams) -> None:
        super().__init__()
        self.params = params
        kernels, width = params.kernels, params.kernels * params.kernel_width
        self.near = nn.Parameter(torch.rand(kernels))
        self.turned = nn.Parameter(math.pi * (2 * torch.rand(kernels) - 1))
        self.near_width = nn.Parameter(torch.rand(kernels))
        self.turned_width = nn.Parameter(torch.rand(kernels))
        self.kernels = nn.Linear(params.blocks, width, bias=False)
        if params.convolution == "tanh":
            self.bias = nn.Parameter(torch.zeros(width))
        self.score = Score(width)

    def edges(self, boxes: Tensor, mask: Tensor) -> Tensor:
        """Return the weights of the edges between regions ``(I, R, 4)``, ``(I, K, R, R)``."""
        widths = F.softplus(torch.stack([self.near_width, self.turned_width])) + NARROWEST
        kernels = torch.cat([torch.stack([self.near, self.turned]), widths])
        weights = region_edges(*polar(boxes), mask, kernels, self.params.edge_sums)
        return weights if self.params.propagation == "neighbors" else own_weights(weights)

    def forward(self, cosines: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """Return the mean score of each image's regions, ``(T, I)``, given their cosines ``(T, I, R, P)`` and edges.

        The linear map of a kernel comes first, because it makes the values fewer that travel along the edges.

        Source: FedBi-GNNs, equations (13) and (14).
        """
        texts, images, regions, _ = cosines.shape
        kernels = edges.shape[1]
        values = self.kernels(cosines).view(texts, images, regions, kernels, -1).permute(1, 3, 2, 0, 4)
        moved = (edges @ values.flatten(3)).view(images, kernels, regions, texts, -1).permute(3, 0, 2, 1, 4).flatten(3)
        if self.params.convolution == "tanh":
            moved = torch.tanh(moved + self.bias)
        return attention.mean_over(self.score(moved), mask.unsqueeze(0), 2)


def node_cosines(
    texts: attention.Fragments, images: attention.Fragments, inverse_temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the cosines of words and of regions with their contexts, ``(T, W, I, P)`` and ``(T, I, R, P)``.

    Source: FedBi-GNNs, equations (8) to (12).
    """
    factored = attention.products_are_fewer(texts, images)
    affinity = attention.affinities(texts, images, texts.lengths.shape[2] if factored else 1)
    whole = affinity.sum(0)
    t2i = attention.attention(whole, texts.mask, images.mask, "t2i", inverse_temperature)
    i2t = attention.attention(whole, texts.mask, images.mask, "i2t", inverse_temperature)
    if factored:
        words = attention.attended_cosines(affinity, t2i, texts, images, "t2i")
        return words, attention.attended_cosines(affinity, i2t, texts, images, "i2t")
    return attention.context_cosines(t2i, texts, images, "t2i"), attention.context_cosines(i2t, texts, images, "i2t")


class GraphMatching(nn.Module):
    """The two levels of matching, of nodes and of structure."""

    def __init__(self, params: GSMNParams) -> None:
        super().__init__()
        self.params = params
        self.words = TextStructure(params)
        self.regions = ImageStructure(params)

    def forward(self, images: Nodes, texts: Nodes, neighbors: Tensor | None = None) -> Tensor:
        """Return the scores of all images and texts, ``(I, T)``.

        Regions and words have length 1. Without neighbors ``(T, W, W)``, all words are.

        Source: FedBi-GNNs, equations (8) to (15).
        """
        assert images.boxes is not None  # noqa: S101  a region encoder made them
        blocks, temperature = self.params.blocks, self.params.inverse_temperature
        regions, words = (
            attention.fragments(images.values, images.mask, blocks),
            attention.fragments(texts.values, texts.mask, blocks),
        )
        near_regions = self.regions.edges(images.boxes, images.mask)
        near_words = word_edges(texts.values, texts.mask, temperature, neighbors)
        if self.params.propagation == "self":
            near_words = own_weights(near_words)

        def _scores(rows: Tensor, columns: slice) -> Tensor:
            said, shown = words.take(rows), regions.take(columns)
            of_words, of_regions = node_cosines(said, shown, temperature)
            most, places = said.mask.shape[1], shown.mask.shape[1]
            found: Tensor = self.words(of_words, near_words[rows][:, :most, :most], said.mask)
            found += self.regions(of_regions, near_regions[columns, :, :places, :places], shown.mask)
            return found

        return attention.chunked(_scores, words, regions).T


class GSMNNet(MatchingNet):
    """Scores by graph matching."""

    def __init__(self, image: nn.Module, text: nn.Module, params: GSMNParams) -> None:
        super().__init__(image, text)
        self.sparse = params.graph == "sparse"
        self.matching = GraphMatching(params)

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the scores of images and texts, ``(len(images), len(texts))``."""
        edges = window_edges(texts.mask) if texts.edges is None else texts.edges
        scores: Tensor = self.matching(images, texts, edges if self.sparse else None)
        return scores


class GSMN(Matching[GSMNParams]):
    """Graph matching of words and regions."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"easy_epochs": 0, "convolution": "tanh", "kernel_width": 32},
        "authors_code": {"easy_epochs": 0, "propagation": "self", "edge_sums": "kernels"},
    }

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders and the two graph convolutions."""
        image, text = towers_of(spec, CARD.key, with_heads=self.params.graph == "sparse")
        check_divisor("blocks", self.params.blocks, image.hidden)
        return GSMNNet(RegionEncoder(image), WordEncoder(text, word_width=self.params.word_width), self.params)
