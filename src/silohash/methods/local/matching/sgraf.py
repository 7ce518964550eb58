"""SGRAF: the similarity of a word and its regions is a vector, and a graph or a filter turns these vectors into a score.

Each word is compared with the regions that it attends to, and the whole text with the whole image. SGR lets the vectors of a
pair exchange values, and reads that of the whole. SAF weighs them by their importance.

==========  ==============================  ==============================================================
paper       code                            meaning
==========  ==============================  ==============================================================
s(x, y, W)  `Similarity`                    similarity vector of two vectors
s^g, s^l    `SGRAFNet.similarities`         vectors of the whole, and of each word
N           ``steps``                       number of steps of reasoning
lambda      ``inverse_temperature``         factor in the softmax of the attention
==========  ==============================  ==============================================================

`Reasoning` is the paper's section on similarity graph reasoning, and `Filtration` that on similarity attention filtration.
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard
from silohash.methods.local.matching.attention import affinities, attention, contexts, fragments, mean_over
from silohash.methods.local.matching.base import WHOLE, Matching, MatchingParams, by_texts, masked_softmax, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, RegionEncoder, WordEncoder, xavier_linear
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="sgraf",
    title="Similarity Reasoning and Filtration for Image-Text Matching",
    authors="Haiwen Diao, Ying Zhang, Lin Ma, Huchuan Lu",
    venue="AAAI",
    year=2021,
    link="https://arxiv.org/abs/2101.01368",
    summary="Turn the similarities of words and regions into vectors, and reason on them. Scores pairs.",
    differs_from_paper=(
        "There is no batch normalization, because the batch statistics of silos with different data cannot be averaged.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
        "A run trains SGR or SAF. The published scores of SGRAF are the mean of both.",
        "Dropout is that of the run, on region features and word vectors.",
    ),
)


class SGRAFParams(MatchingParams):
    """Parameters of SGRAF."""

    module: Literal["SGR", "SAF"] = "SGR"
    """How similarity vectors become a score: `SGR` (graph reasoning) or `SAF` (attention filtration)."""
    similarity_width: int = Field(default=256, ge=1)
    """Width of the similarity vectors, at least 1."""
    steps: int = Field(default=3, ge=1)
    """Number of steps of graph reasoning, at least 1."""
    inverse_temperature: float = Field(default=9.0, gt=0)
    """Factor on similarities in the softmax of the attention (lambda), positive."""

    without_effect: ClassVar = {**MatchingParams.without_effect, "steps": {"module": ("SAF",)}}


class Whole(nn.Module):
    """Encode an item as its nodes and a vector of the whole, their weighted mean."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.local = xavier_linear(width, width)
        self.common = xavier_linear(width, width)
        self.weigh = xavier_linear(width, 1)

    def forward(self, inputs: Tensor) -> Nodes:
        """Return the nodes, with the vector of the whole ``(B, D)`` of length 1."""
        nodes: Nodes = self.encoder(inputs)
        mean = mean_over(nodes.values, nodes.mask.unsqueeze(2), 1).unsqueeze(1)
        logits = self.weigh(torch.tanh(self.local(nodes.values)) * torch.tanh(self.common(mean)))
        weights = masked_softmax(logits.squeeze(2), nodes.mask)
        return replace(nodes, extra={WHOLE: F.normalize((weights.unsqueeze(2) * nodes.values).sum(1), dim=1)})


class Similarity(nn.Module):
    """The similarity of two vectors as a vector of length 1."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.project = xavier_linear(width, out)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the similarity vectors ``(..., S)`` of vectors ``(..., D)``."""
        return F.normalize(self.project((one - other).square()), dim=-1)


class Reasoning(nn.Module):
    """Similarity graph reasoning: similarity vectors exchange values in several steps."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.query, self.key, self.out = (
            nn.ModuleList(xavier_linear(width, width) for _ in range(steps)) for _ in range(3)
        )

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return the vector of the whole after the last step, ``(..., S)``, given all vectors ``(..., 1 + W, S)``."""
        for query, key, out in zip(self.query, self.key, self.out, strict=True):
            edges = masked_softmax(query(values) @ key(values).mT, mask.unsqueeze(-2))
            values = torch.relu(out(edges @ values))
        return values[..., 0, :]


class Filtration(nn.Module):
    """Similarity attention filtration: similarity vectors are weighted by their importance."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = xavier_linear(width, 1)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return the weighted sums of the vectors ``(..., 1 + W, S)``, of length 1, ``(..., S)``."""
        weights = F.normalize(torch.sigmoid(self.weigh(values)).squeeze(-1) * mask, p=1, dim=-1)
        return F.normalize((weights.unsqueeze(-1) * values).sum(-2), dim=-1)


class SGRAFNet(MatchingNet):
    """Scores from similarity vectors."""

    def __init__(self, image: nn.Module, text: nn.Module, width: int, params: SGRAFParams) -> None:
        super().__init__(Whole(image, width), Whole(text, width))
        size = params.similarity_width
        self.inverse_temperature = params.inverse_temperature
        self.local = Similarity(width, size)
        self.common = Similarity(width, size)
        self.reduce: nn.Module = Reasoning(size, params.steps) if params.module == "SGR" else Filtration(size)
        self.out = xavier_linear(size, 1)

    def similarities(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the similarity vectors of all texts and images, of the whole and of each word, ``(T, I, 1 + W, S)``."""
        words, regions = fragments(texts.values, texts.mask), fragments(images.values, images.mask)
        affinity = affinities(words, regions)[0]
        weights = attention(affinity, texts.mask, images.mask, "t2i", self.inverse_temperature)
        found = F.normalize(contexts(weights, regions.values, "t2i"), dim=-1)
        local = self.local(texts.values.unsqueeze(2), found).transpose(1, 2)
        common = self.common(texts.extra[WHOLE].unsqueeze(1), images.extra[WHOLE].unsqueeze(0))
        return torch.cat([common.unsqueeze(2), local], 2)

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the scores of images and texts in (0, 1), ``(len(images), len(texts))``."""
        return by_texts(partial(self._score, images), texts)

    def _score(self, images: Nodes, texts: Nodes) -> Tensor:
        mask = F.pad(texts.mask, (1, 0), value=True).unsqueeze(1)
        return torch.sigmoid(self.out(self.reduce(self.similarities(images, texts), mask))).squeeze(-1)


class SGRAF(Matching[SGRAFParams]):
    """Similarity vectors of words and regions."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders and the networks on similarity vectors."""
        image, text = towers_of(spec, CARD.key)
        words = WordEncoder(text, word_width=self.params.word_width)
        return SGRAFNet(RegionEncoder(image), words, image.hidden, self.params)
