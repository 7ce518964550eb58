"""SHAN: words and regions attend to each other, then whole items to words and regions, and then whole items are compared.

A gate mixes a word with the regions that it attends to, the mean of the mixed words is the context of the text, and this
context attends to the regions (and the other way round).

==============  ==========================  ==============================================================
paper           code                        meaning
==============  ==========================  ==============================================================
alpha, beta     ``t2i``, ``i2t``            weights of regions and of words
v*, t*          ``contexts``                regions of a word, words of a region, as weighted means
v^c, t^c        `Gate`                      mixed regions and words
v_c, t_c        `Pool`                      contexts of the image and of the text
lambda          ``inverse_temperature``     factor in the softmax of the attention
==============  ==========================  ==============================================================
"""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard
from silohash.methods.local.matching.attention import contexts, mean_over
from silohash.methods.local.matching.base import Matching, MatchingParams, by_texts, masked_softmax, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, RegionEncoder, WordEncoder
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="shan",
    title="Step-Wise Hierarchical Alignment Network for Image-Text Matching",
    authors="Zhong Ji, Kexin Chen, Haoran Wang",
    venue="IJCAI",
    year=2021,
    link="https://arxiv.org/abs/2106.06509",
    summary="Align words with regions, then contexts with words and regions, and then contexts. Scores pairs.",
    differs_from_paper=(
        "Cosines of words and of regions are averaged, so that the length of a text does not count.",
        "The three steps have the same weight. The paper does not state its weights.",
        "Mixed words and regions are pooled with the softmax of a two-layer network, because the paper states no form.",
        "Word vectors are learned. The paper adds GloVe vectors.",
        "Words and regions have length 1 before they attend.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
    ),
)


class SHANParams(MatchingParams):
    """Parameters of SHAN."""

    attends: Literal["t2i", "i2t", "full"] = "full"
    """Which cosines count in the first step: those of words (`t2i`), those of regions (`i2t`), or both (`full`)."""
    inverse_temperature: float = Field(default=9.0, gt=0)
    """Factor on similarities in the softmax of the attention (lambda), positive."""


class Gate(nn.Module):
    """Mix each vector with its context, dimension by dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_vector = nn.Linear(width, width)
        self.of_context = nn.Linear(width, width, bias=False)

    def forward(self, vectors: Tensor, found: Tensor) -> Tensor:
        """Return the mixed vectors, which broadcast to their contexts ``(..., D)``."""
        share = torch.sigmoid(self.of_vector(vectors) + self.of_context(found))
        return share * vectors + (1 - share) * found


class Pool(nn.Module):
    """The weighted mean of vectors, with weights that depend on each vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.weigh = nn.Linear(width, 1)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the means of the vectors ``(..., N, D)`` that are not padding, ``(..., D)``."""
        weights = masked_softmax(self.weigh(torch.tanh(self.hidden(vectors))).squeeze(-1), mask)
        return (weights.unsqueeze(-1) * vectors).sum(-2)


def attended(context: Tensor, vectors: Tensor, mask: Tensor, inverse_temperature: float) -> Tensor:
    """Return the weighted mean of items' vectors ``(T or 1, I or 1, N, D)``, to which a context attends, ``(T, I, D)``."""
    cosines = (vectors * F.normalize(context, dim=-1).unsqueeze(2)).sum(-1)
    return (masked_softmax(inverse_temperature * cosines, mask).unsqueeze(-1) * vectors).sum(2)


class SHANNet(MatchingNet):
    """Scores of three steps of alignment."""

    def __init__(self, image: nn.Module, text: nn.Module, width: int, params: SHANParams) -> None:
        super().__init__(image, text)
        self.params = params
        self.map_regions = nn.Linear(width, width, bias=False)
        self.map_words = nn.Linear(width, width, bias=False)
        self.mix_regions, self.mix_words = Gate(width), Gate(width)
        self.pool_regions, self.pool_words = Pool(width), Pool(width)

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the scores of images and texts, ``(len(images), len(texts))``."""
        return by_texts(partial(self._score, images), texts)

    def _score(self, images: Nodes, texts: Nodes) -> Tensor:
        factor = self.params.inverse_temperature
        regions, words = images.values.unsqueeze(0), texts.values.unsqueeze(1)
        said = texts.mask.unsqueeze(1)
        affinity = torch.einsum("twd,ird->twir", self.map_words(texts.values), self.map_regions(images.values))
        over_regions = masked_softmax(factor * affinity, images.mask)
        over_words = masked_softmax(factor * affinity.permute(0, 2, 3, 1), said.unsqueeze(2)).permute(0, 3, 1, 2)
        of_words = contexts(over_regions, images.values, "t2i").transpose(1, 2)
        of_regions = contexts(over_words, texts.values, "i2t")

        image = self.pool_regions(self.mix_regions(regions, of_regions), images.mask.unsqueeze(0))
        text = self.pool_words(self.mix_words(words, of_words), said)
        near_image = attended(image, words, said, factor)
        near_text = attended(text, regions, images.mask.unsqueeze(0), factor)

        step = F.cosine_similarity(image, near_image, dim=-1) + F.cosine_similarity(text, near_text, dim=-1)
        step = step + F.cosine_similarity(image + near_image, text + near_text, dim=-1)
        if self.params.attends != "i2t":
            step = step + mean_over(F.cosine_similarity(words, of_words, dim=-1), said, 2)
        if self.params.attends != "t2i":
            step = step + mean_over(F.cosine_similarity(regions, of_regions, dim=-1), images.mask.unsqueeze(0), 2)
        return step


class SHAN(Matching[SHANParams]):
    """Step-wise alignment of words, regions and contexts."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders and the networks of the three steps."""
        image, text = towers_of(spec, CARD.key)
        words = WordEncoder(text, word_width=self.params.word_width)
        return SHANNet(RegionEncoder(image), words, image.hidden, self.params)
