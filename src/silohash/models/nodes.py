"""Items as sets of nodes, such as the regions of pictures and the words of texts, which matching methods compare.

The encoders map both to nodes of one space.

Source: Lee et al., "Stacked Cross Attention for Image-Text Matching", ECCV 2018, section 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from silohash.features.nodes.regions import BOX
from silohash.features.nodes.word_ids import UNPARSED
from silohash.models.specs import TowerSpec
from silohash.models.towers import Dropout

INITIAL_WORD = 0.1
"""Largest absolute value in the initial vector of a word."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of some items of one modality. Items with fewer nodes than others are padded.

    Attributes:
        values: ``(B, n, d)`` float32, zero for padding.
        mask: ``(B, n)`` bool, which nodes are not padding.
        boxes: ``(B, n, 4)`` float32, left, top, right and bottom of regions as shares of the picture; None for words.
        edges: ``(B, n, n)`` bool, which nodes are neighbors, each its own; None if that is unknown.
        extra: Further tensors that a model passes to its scores, with one entry per item.
    """

    values: Tensor
    mask: Tensor
    boxes: Tensor | None = None
    edges: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Tensor | slice) -> Nodes:
        """Return some of the items, at positions ``(n,)`` int64 or in a slice."""
        boxes, edges = (None if values is None else values[rows] for values in (self.boxes, self.edges))
        extra = {name: values[rows] for name, values in self.extra.items()}
        return Nodes(self.values[rows], self.mask[rows], boxes, edges, extra)

    def resized(self, count: int) -> Nodes:
        """Return the same items with a number of nodes, after which there is only padding. ``extra`` is left as it is."""
        more = count - self.mask.shape[1]
        if not more:
            return self
        # Padding by a negative number of nodes leaves out the last ones.
        return replace(
            self,
            values=F.pad(self.values, (0, 0, 0, more)),
            mask=F.pad(self.mask, (0, more)),
            boxes=None if self.boxes is None else F.pad(self.boxes, (0, 0, 0, more)),
            edges=None if self.edges is None else F.pad(self.edges, (0, more, 0, more)),
        )

    def trimmed(self) -> Nodes:
        """Return the same items without the last nodes that are padding in all of them."""
        used = self.mask.any(0).nonzero()
        return self.resized(int(used[-1]) + 1 if len(used) else 1)

    @staticmethod
    def joined(parts: Sequence[Nodes]) -> Nodes:
        """Return the items of all parts, which have the same tensors. Parts with fewer nodes are padded."""
        most = max(part.mask.shape[1] for part in parts)
        filled = [part.resized(most) for part in parts]
        boxes = [part.boxes for part in filled if part.boxes is not None]
        edges = [part.edges for part in filled if part.edges is not None]
        return Nodes(
            values=torch.cat([part.values for part in filled]),
            mask=torch.cat([part.mask for part in filled]),
            boxes=torch.cat(boxes) if boxes else None,
            edges=torch.cat(edges) if edges else None,
            extra={name: torch.cat([part.extra[name] for part in parts]) for name in parts[0].extra},
        )


def split_regions(regions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features ``(B, R, D)`` and boxes ``(B, R, 4)`` of regions ``(B, R, D + 4)``, float32, and their mask.

    A region with x2 <= x1 is padding.
    """
    values, boxes = regions[..., :-BOX].float(), regions[..., -BOX:].float()
    return values, boxes, boxes[..., 2] > boxes[..., 0]


def split_words(words: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the numbers of words, ``(B, L)`` int64, and the positions of their heads, ``(B, L)``, if there are any.

    Words are ``(B, W)``, or ``(B, 2, W)`` with the heads in the second row; their padding is -1. Places after the longest
    text are left out, apart from the first two.
    """
    numbers, heads = (words, None) if words.ndim == 2 else (words[:, 0], words[:, 1])
    used = (numbers >= 0).any(0).nonzero()
    longest = max(2, int(used[-1]) + 1) if len(used) else 2
    return numbers[:, :longest].long(), None if heads is None else heads[:, :longest]


def edges_of_heads(heads: Tensor, mask: Tensor) -> Tensor:
    """Return the edges between words and their heads in both directions, and of each word to itself, ``(B, W, W)`` bool.

    A head is the position of a word, or -1 for none ``(B, W)``. It is -2 everywhere for a text without a parse, whose edges
    are those of `window_edges`.
    """
    width = mask.shape[1]
    unparsed = (heads == UNPARSED).any(1)
    edges = F.one_hot(heads.long().clamp(-1, width - 1) + 1, width + 1)[..., 1:].bool()
    own = torch.eye(width, dtype=torch.bool, device=mask.device)
    found = (edges | edges.transpose(1, 2) | own) & mask.unsqueeze(1) & mask.unsqueeze(2)
    return torch.where(unparsed[:, None, None], window_edges(mask), found)


def window_edges(mask: Tensor, reach: int = 2) -> Tensor:
    """Return the edges between words at most ``reach`` places apart, ``(B, W, W)`` bool."""
    place = torch.arange(mask.shape[1], device=mask.device)
    near = (place.unsqueeze(0) - place.unsqueeze(1)).abs() <= reach
    return near & mask.unsqueeze(1) & mask.unsqueeze(2)


class RegionEncoder(nn.Module):
    """Map each region to a vector, ``(B, R, D + 4) -> Nodes`` of width ``hidden``, of length 1 unless not normalized.

    The dropout of the spec applies to the features.
    """

    def __init__(self, spec: TowerSpec, *, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize
        self.dropout = Dropout(spec.dropout)
        self.project = xavier_linear(spec.shape[1] - BOX, spec.hidden)

    def forward(self, regions: Tensor) -> Nodes:
        """Return the nodes of some pictures."""
        features, boxes, mask = split_regions(regions)
        return Nodes(_nodes(self.project(self.dropout(features)), mask, normalize=self.normalize), mask, boxes)


class WordTable(nn.Embedding):
    """The vectors of words by their numbers, learned ones, fixed ones of a file, or both side by side.

    Fixed vectors are buffers that silos do not send back. They are stored with the model, which then does not need the file.
    """

    def __init__(self, spec: TowerSpec, width: int) -> None:
        words, use = int(spec.settings["words"]), spec.settings.get("vectors", "start")
        super().__init__(words, width)
        self.fixed_buffers: tuple[str, ...] = () if use == "start" else ("given",)
        self.learned = use != "fixed"
        self.width = 2 * width if use == "beside" else width
        if use == "beside":
            self.register_buffer("given", torch.zeros(words, width))
        elif use == "fixed":
            self.register_buffer("given", INITIAL_WORD * (2 * torch.rand(words, width) - 1))
            del self.weight

    @property
    def filled(self) -> Tensor:
        """What the vectors of a file are written to, ``(words, width)``."""
        return self.get_buffer("given") if self.fixed_buffers else self.weight

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the vectors of words ``(...)`` int64, ``(..., width)``, fixed ones before learned ones."""
        if not self.fixed_buffers:
            return super().forward(numbers)
        given = F.embedding(numbers, self.filled)
        return torch.cat([given, super().forward(numbers)], -1) if self.learned else given


class WordEncoder(nn.Module):
    """Map each word in its context to a vector of length 1, ``(B, W)`` or ``(B, 2, W)`` integers to `Nodes`.

    A GRU reads the vectors of the words in both directions, and the mean of its two states is the vector of the
    word, which has any length if not normalized. The dropout of the spec applies to the vectors of words.
    """

    def __init__(self, spec: TowerSpec, *, word_width: int = 300, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize
        self.dropout = Dropout(spec.dropout)
        self.words = WordTable(spec, word_width)
        if self.words.learned:
            nn.init.uniform_(self.words.weight, -INITIAL_WORD, INITIAL_WORD)
        self.gru = nn.GRU(self.words.width, spec.hidden, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor) -> Nodes:
        """Return the nodes of some texts. Places after the longest of them are left out."""
        numbers, heads = split_words(words)
        mask = numbers >= 0
        states = self.states(numbers, mask)
        edges = None if heads is None else edges_of_heads(heads, mask)
        return Nodes(_nodes(states, mask, normalize=self.normalize), mask, edges=edges)

    def states(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """Return the mean state of the two directions at each word ``(B, W)``, ``(B, W, hidden)``; zero for padding."""
        vectors = self.dropout(self.words(numbers.clamp(min=0)))
        # The GRU refuses texts of length 0, so a text without words is read as one word, and masked below.
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=numbers.shape[1])
        ahead, back = states.chunk(2, dim=2)
        mean: Tensor = (ahead + back) / 2
        return mean


def word_tables(model: nn.Module) -> list[WordTable]:
    """Return the layers of a model's encoder of texts that hold the vectors of words."""
    return [layer for layer in model.get_submodule("text").modules() if isinstance(layer, WordTable)]


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
