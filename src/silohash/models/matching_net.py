"""Networks that score an image against a text with a number.

They also give each item a code, so that a search can find the items that are worth scoring.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from silohash.base.types import MODALITIES, Modality, Outputs, PairBatch
from silohash.models.nodes import Nodes

SCORED_AT_ONCE = 64
"""Number of images, and of texts, that `scores_of` compares at once."""


class CodeTower(nn.Module):
    """Map the nodes of an item to outputs whose signs are its code, ``Nodes -> (B, bits)``.

    The mean and the largest values of the nodes pass through a layer of twice their width. The nodes do not receive
    gradients, so codes do not change how items are scored.
    """

    def __init__(self, width: int, bits: int) -> None:
        super().__init__()
        self.scale = nn.LayerNorm(2 * width)
        self.hidden = nn.Linear(2 * width, 4 * width)
        self.hash = nn.Linear(4 * width, bits)

    def forward(self, nodes: Nodes) -> Tensor:
        """Return the outputs of some items, ``(B, bits)`` float32. An item without nodes has those of zeros."""
        values, there = nodes.values.detach(), nodes.mask.unsqueeze(2)
        mean = (values * there).sum(1) / there.sum(1).clamp(min=1)
        largest = values.masked_fill(~there, torch.finfo(values.dtype).min).amax(1)
        largest = torch.where(nodes.mask.any(1, keepdim=True), largest, 0.0)
        outputs: Tensor = self.hash(torch.relu(self.hidden(self.scale(torch.cat([mean, largest], 1)))))
        return outputs.float()


class MatchingNet(nn.Module, ABC):
    """A network with one encoder per modality and a score of two items. Subclasses define the score.

    The encoders of regions ``(B, R, D + 4)`` and of words ``(B, W)`` see an item alone, so an item is encoded once, however
    many others it is compared with.
    """

    modalities: ClassVar[tuple[Modality, ...]] = MODALITIES

    def __init__(self, image: nn.Module, text: nn.Module) -> None:
        super().__init__()
        self.image = image
        self.text = text

    def add_codes(self, width: int, bits: int) -> None:
        """Add the towers of codes, after all other parts, whose initial weights then do not depend on them."""
        self.codes = nn.ModuleDict({modality: CodeTower(width, bits) for modality in MODALITIES})
        self.bits = bits

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
        """Return the codes of the items of a batch, and the scores of all its images with all its texts if it has both."""
        given = {modality: batch.values(modality) for modality in modalities or MODALITIES}
        nodes = {modality: self.encoded(values, modality) for modality, values in given.items() if values is not None}
        logit: dict[Modality, Tensor] = {modality: self.codes[modality](of) for modality, of in nodes.items()}
        if len(nodes) < len(MODALITIES):
            return Outputs(feature={}, logit=logit, code=logit)
        images, texts = nodes["image"], nodes["text"]
        scores = self.score(images, texts).float()
        extra = self.extras(images, texts, batch) if self.training else {}
        return Outputs(feature={}, logit=logit, code=logit, pair_score=scores, extra=extra)


@torch.inference_mode()
def nodes_of(net: MatchingNet, values: Tensor, modality: Modality, *, batch: int = 256) -> Nodes:
    """Return the nodes of at least one input of one modality, encoded in evaluation mode and in batches."""
    training = net.training
    net.eval()
    starts = range(0, len(values), batch)
    parts = [net.encoded(values[start : start + batch], modality) for start in starts]
    net.train(training)
    return Nodes.joined(parts)


@torch.inference_mode()
def scores_of(net: MatchingNet, images: Nodes, texts: Nodes) -> Tensor:
    """Return the score of each image with each text in evaluation mode, ``(n, m)`` float32 on the CPU.

    Texts are compared in the order of their length, so that padding costs little.
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
