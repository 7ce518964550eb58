"""Networks that score an image against a text with a number, in place of a code for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from silohash.models.nodes import Nodes
from silohash.types import MODALITIES, Modality, Outputs, PairBatch

SCORED_AT_ONCE = 64
"""Number of images, and of texts, that `scores_of` compares at once."""


class MatchingNet(nn.Module, ABC):
    """A network with one encoder per modality and a score of two items. Subclasses define the score.

    The encoders see an item alone, so an item is encoded once, however many others it is compared with.

    Args:
        image: Encoder of regions, ``(B, R, D + 4) -> Nodes``.
        text: Encoder of words, ``(B, W) -> Nodes``.
    """

    modalities: ClassVar[tuple[Modality, ...]] = MODALITIES
    bits: ClassVar[int] = 0

    def __init__(self, image: nn.Module, text: nn.Module) -> None:
        super().__init__()
        self.image = image
        self.text = text

    @abstractmethod
    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the score of each image with each text, ``(len(images), len(texts))``; higher is better."""

    def encoded(self, values: Tensor, modality: Modality) -> Nodes:
        """Return the nodes of the inputs of one modality."""
        nodes: Nodes = self.image(values) if modality == "image" else self.text(values)
        return nodes

    def extras(self, images: Nodes, texts: Nodes, batch: PairBatch) -> Mapping[str, Tensor]:
        """Return further outputs that the training needs; by default none."""
        return {}

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Return the scores of all images of a batch with all of its texts, if the batch has both."""
        if batch.image is None or batch.text is None:
            return Outputs(feature={}, logit={}, code={})
        images, texts = self.encoded(batch.image, "image"), self.encoded(batch.text, "text")
        scores = self.score(images, texts).float()
        extra = self.extras(images, texts, batch) if self.training else {}
        return Outputs(feature={}, logit={}, code={}, pair_score=scores, extra=extra)


@torch.inference_mode()
def nodes_of(net: MatchingNet, values: Tensor, modality: Modality, *, batch: int = 256) -> Nodes:
    """Return the nodes of many inputs of one modality, encoded in evaluation mode.

    Args:
        net: Network.
        values: ``(n, ...)``, inputs of one modality, at least one.
        modality: Their modality.
        batch: Number of items that are encoded at once.
    """
    training = net.training
    net.eval()
    starts = range(0, len(values), batch)
    parts = [net.encoded(values[start : start + batch], modality) for start in starts]
    net.train(training)
    return Nodes.joined(parts)


@torch.inference_mode()
def scores_of(net: MatchingNet, images: Nodes, texts: Nodes) -> Tensor:
    """Return the score of each image with each text in evaluation mode, ``(n, m)`` float32 on the CPU.

    Args:
        net: Network.
        images: Encoded images.
        texts: Encoded texts. They are compared in the order of their length, so that padding costs little.
    """
    training = net.training
    net.eval()
    found = torch.empty(len(images), len(texts))
    order = texts.mask.sum(1).argsort()
    for first in range(0, len(texts), SCORED_AT_ONCE):
        places = order[first : first + SCORED_AT_ONCE]
        block = texts.take(places).trimmed()
        for start in range(0, len(images), SCORED_AT_ONCE):
            rows = slice(start, start + SCORED_AT_ONCE)
            found[rows, places.cpu()] = net.score(images.take(rows), block).float().cpu()
    net.train(training)
    return found
