"""GSMN: words and regions are matched with each other, and then the neighbors of each with those of the other.

A word is compared with the regions that it attends to, block by block of the dimensions, and a region with its words. These
cosines travel along the edges of a graph of words and of a graph of regions, and a small network scores each node.

==============  ======================================================  ============================================
paper           code here                                               meaning
==============  ======================================================  ============================================
A               `silohash.methods.local.matching.attention.affinities`          inner products of words and regions
x               `node_cosines`                                          cosines of nodes and contexts, per block
W_e             `silohash.methods.local.matching.structure`                     weights of edges
s               `GraphMatching`                                         score of an image and a text
lambda          ``inverse_temperature``                                 factor in the softmax
r               ``blocks``                                              number of blocks of dimensions
==============  ======================================================  ============================================

Equations (8) to (12) of FedBi-GNNs are `node_cosines`, (13) to (15) are `GraphMatching`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, UserError
from silohash.methods.local.matching.attention import (
    Fragments,
    affinities,
    attended_cosines,
    attention,
    chunked,
    fragments,
)
from silohash.methods.local.matching.base import Matching, MatchingParams, towers_of
from silohash.methods.local.matching.structure import (
    ImageStructure,
    Propagation,
    TextStructure,
    own_weights,
    word_edges,
)
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
    supervised=False,
    differs_from_paper=(
        "Cosines travel between nodes, as the equations say. In the authors' code, each node receives its own cosines in "
        "place of its neighbors'. Set `propagation` to self for that.",
        "The weights of the edges between regions sum to 1 over the neighbors. In the authors' code they do over the "
        "kernels.",
        "All kernels of the text's graph have the same edges, so they are one linear map.",
        "Similarities below 0 are reduced to a tenth and scaled over the queries before the softmax, as in the code.",
        "The sparse graph takes the grammatical relations of the file `features.text.parses`. Texts without them have the "
        "words at most two places apart as neighbors.",
        "Word vectors are learned, from random or from given vectors. FedBi-GNNs adds fixed GloVe vectors.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "A run trains one graph. The published scores are the mean of a dense and a sparse model.",
    ),
)


class GSMNParams(MatchingParams):
    """Parameters of GSMN."""

    graph: Literal["dense", "sparse"] = "dense"
    """Which words are neighbors: `dense` (all words of a text) or `sparse` (words with a grammatical relation)."""
    propagation: Propagation = "neighbors"
    """What a node receives: `neighbors` (the cosines of its neighbors) or `self` (its own, as in the authors' code)."""
    blocks: int = Field(default=16, ge=1)
    """Number of blocks of dimensions, each with its own cosine, at least 1. It divides `model.hidden`."""
    kernels: int = Field(default=8, ge=1)
    """Number of kernels of the graph convolutions, at least 1."""
    kernel_width: int = Field(default=4, ge=1)
    """Number of values per node and kernel after the convolution, at least 1."""
    inverse_temperature: float = Field(default=10.0, gt=0)
    """Factor on similarities in the softmax of the attention and of the text's graph (lambda), positive."""
    word_width: int = Field(default=300, ge=1)
    """Width of the learned vectors of words, at least 1."""


def node_cosines(texts: Fragments, images: Fragments, inverse_temperature: float) -> tuple[Tensor, Tensor]:
    """Return the cosines of words and of regions with their contexts, ``(T, W, I, P)`` and ``(T, I, R, P)``.

    Args:
        texts: The words of T texts.
        images: The regions of I images.
        inverse_temperature: Factor in the softmax of the attention (lambda), positive.

    Source: FedBi-GNNs, equations (8) to (12).
    """
    affinity = affinities(texts, images)
    whole = affinity.sum(0)
    t2i = attention(whole, texts.mask, images.mask, "t2i", inverse_temperature)
    i2t = attention(whole, texts.mask, images.mask, "i2t", inverse_temperature)
    words = attended_cosines(affinity, t2i, texts, images, "t2i")
    return words, attended_cosines(affinity, i2t, texts, images, "i2t")


class GraphMatching(nn.Module):
    """The two levels of matching, of nodes and of structure."""

    def __init__(
        self, *, blocks: int, kernels: int, width: int, inverse_temperature: float, propagation: Propagation
    ) -> None:
        super().__init__()
        self.blocks = blocks
        self.inverse_temperature = inverse_temperature
        self.propagation = propagation
        self.words = TextStructure(blocks, kernels * width)
        self.regions = ImageStructure(blocks, kernels, width, propagation)

    def forward(
        self,
        images: Tensor,
        image_mask: Tensor,
        boxes: Tensor,
        texts: Tensor,
        text_mask: Tensor,
        neighbors: Tensor | None = None,
    ) -> Tensor:
        """Return the scores of all images and texts, ``(I, T)``.

        Args:
            images: ``(I, R, D)``, regions of length 1.
            image_mask: ``(I, R)`` bool, False for padding.
            boxes: ``(I, R, 4)``, divided by the size of the image.
            texts: ``(T, W, D)``, words of length 1.
            text_mask: ``(T, W)`` bool, False for padding.
            neighbors: ``(T, W, W)`` bool, which words are neighbors; None if all are.

        Source: FedBi-GNNs, equations (8) to (15).
        """
        regions, words = fragments(images, image_mask, self.blocks), fragments(texts, text_mask, self.blocks)
        near_regions = self.regions.edges(boxes, image_mask)
        near_words = word_edges(texts, text_mask, self.inverse_temperature, neighbors)
        if self.propagation == "self":
            near_words = own_weights(near_words)

        def scores(rows: slice, columns: slice) -> Tensor:
            """Return the scores of some texts and images."""
            of_words, of_regions = node_cosines(words.take(rows), regions.take(columns), self.inverse_temperature)
            found: Tensor = self.words(of_words, near_words[rows], text_mask[rows])
            found += self.regions(of_regions, near_regions[columns], image_mask[columns])
            return found

        return chunked(scores, words, regions).T


class GSMNNet(MatchingNet):
    """Scores by graph matching."""

    def __init__(self, image: nn.Module, text: nn.Module, params: GSMNParams) -> None:
        super().__init__(image, text)
        self.sparse = params.graph == "sparse"
        self.matching = GraphMatching(
            blocks=params.blocks,
            kernels=params.kernels,
            width=params.kernel_width,
            inverse_temperature=params.inverse_temperature,
            propagation=params.propagation,
        )

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the scores of images and texts, ``(len(images), len(texts))``."""
        assert images.boxes is not None  # noqa: S101  a region encoder made them
        edges = window_edges(texts.mask) if texts.edges is None else texts.edges
        neighbors = edges if self.sparse else None
        scores: Tensor = self.matching(images.values, images.mask, images.boxes, texts.values, texts.mask, neighbors)
        return scores


class GSMN(Matching):
    """Graph matching of words and regions."""

    Params = GSMNParams
    params: GSMNParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {"easy_epochs": 0},
        "authors_code": {"easy_epochs": 0, "propagation": "self"},
    }

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders and the two graph convolutions.

        Raises:
            UserError: If the blocks do not divide the width of the common space.
        """
        image, text = towers_of(spec, CARD.key, with_heads=self.params.graph == "sparse")
        if image.hidden % self.params.blocks:
            raise UserError(
                f"local.blocks is {self.params.blocks}, which does not divide model.hidden = {image.hidden}. "
                "Choose a divisor."
            )
        return GSMNNet(RegionEncoder(image), WordEncoder(text, word_width=self.params.word_width), self.params)
