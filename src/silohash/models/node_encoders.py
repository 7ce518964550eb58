"""The encoders of matching methods: regions of pictures, and words of texts, as nodes of one space.

Source: Lee et al., "Stacked Cross Attention for Image-Text Matching", ECCV 2018, section 3.2 and 3.3.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from silohash.features.nodes.regions import BOX
from silohash.models.nodes import Nodes, edges_of_heads, split_regions, split_words
from silohash.models.specs import TowerSpec

INITIAL_WORD = 0.1
"""Largest absolute value in the initial vector of a word."""


class RegionEncoder(nn.Module):
    """Map each region to a vector of length 1, ``(B, R, D + 4) -> Nodes`` of width ``hidden``.

    Args:
        spec: The tower of images. Its dropout applies to the features.
        normalize: Whether the vectors have length 1.
    """

    def __init__(self, spec: TowerSpec, *, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize
        self.dropout = nn.Dropout(spec.dropout)
        self.project = xavier_linear(spec.shape[1] - BOX, spec.hidden)

    def forward(self, regions: Tensor) -> Nodes:
        """Return the nodes of some pictures."""
        features, boxes, mask = split_regions(regions)
        return Nodes(_nodes(self.project(self.dropout(features)), mask, normalize=self.normalize), mask, boxes)


class WordEncoder(nn.Module):
    """Map each word in its context to a vector of length 1, ``(B, W)`` or ``(B, 2, W)`` integers to `Nodes`.

    A GRU reads the vectors of the words in both directions, and the mean of its two states is the vector of the word.

    Args:
        spec: The tower of texts. Its dropout applies to the vectors of words.
        word_width: Width of the learned vectors of words.
        normalize: Whether the vectors have length 1.
    """

    def __init__(self, spec: TowerSpec, *, word_width: int = 300, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize
        self.dropout = nn.Dropout(spec.dropout)
        self.words = nn.Embedding(int(spec.settings["words"]), word_width)
        nn.init.uniform_(self.words.weight, -INITIAL_WORD, INITIAL_WORD)
        self.gru = nn.GRU(word_width, spec.hidden, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor) -> Nodes:
        """Return the nodes of some texts. Places after the longest of them are left out."""
        numbers, heads = split_words(words)
        mask = numbers >= 0
        states = self.states(numbers, mask)
        edges = None if heads is None else edges_of_heads(heads, mask)
        return Nodes(_nodes(states, mask, normalize=self.normalize), mask, edges=edges)

    def states(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """Return the mean state of the two directions at each word, ``(B, W, hidden)``; zero for padding.

        Args:
            numbers: ``(B, W)`` int64, numbers of words; padding is negative.
            mask: ``(B, W)`` bool, which words are not padding.
        """
        vectors = self.dropout(self.words(numbers.clamp(min=0)))
        # The GRU refuses texts of length 0, so a text without words is read as one word, and masked below.
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=numbers.shape[1])
        ahead, back = states.chunk(2, dim=2)
        mean: Tensor = (ahead + back) / 2
        return mean


def word_tables(model: nn.Module) -> list[nn.Embedding]:
    """Return the layers of a model's encoder of texts that hold the vectors of words."""
    named = model.get_submodule("text").named_modules()
    return [layer for name, layer in named if isinstance(layer, nn.Embedding) and name.split(".")[-1] == "words"]


def xavier_linear(width: int, out: int) -> nn.Linear:
    """Return a linear layer with Xavier's initial weights and without an initial bias.

    For small inputs, torch's own initial bias is larger than what depends on the input. If the result is scaled to length 1,
    all items then begin as nearly the same vector.
    """
    layer = nn.Linear(width, out)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _nodes(values: Tensor, mask: Tensor, *, normalize: bool) -> Tensor:
    """Return vectors as float32, scaled to length 1 if wished, and zero for padding."""
    values = values.float()
    values = F.normalize(values, dim=2) if normalize else values
    return torch.where(mask.unsqueeze(2), values, 0.0)
