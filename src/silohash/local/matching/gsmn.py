"""Graph matching: words and regions are matched with each other, and then the neighbors of each with those of the other.

==============  ======================================================  ============================================
paper           code here                                               meaning
==============  ======================================================  ============================================
A               `silohash.local.matching.attention.affinities`          inner products of words and regions
x               `node_cosines`                                          cosines of nodes and contexts, per block
W_e             `silohash.local.matching.structure`                     weights of edges
s               `GraphMatching`                                         score of an image and a text
lambda          ``inverse_temperature``                                 factor in the softmax
r               ``blocks``                                              number of blocks of dimensions
==============  ======================================================  ============================================

Equations (8) to (12) of FedBi-GNNs are `node_cosines`, (13) to (15) are `GraphMatching`.
"""

from __future__ import annotations

from torch import Tensor, nn

from silohash.local.matching.attention import (
    Fragments,
    affinities,
    attended_cosines,
    attention,
    chunked,
    fragments,
)
from silohash.local.matching.structure import ImageStructure, Propagation, TextStructure, own_weights, word_edges


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
    """The two levels of matching, of nodes and of structure.

    Args:
        blocks: Number P of blocks of dimensions.
        kernels: Number K of Gaussian kernels of the image's graph.
        width: Number of values per node and kernel after the convolution.
        inverse_temperature: Factor in the softmax of the attention and of the edges between words (lambda), positive.
        propagation: What a node receives.
    """

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
