"""VSRN: regions reason on each other, and a recurrent network reads them into one vector, which also generates a caption.

Residual graph convolutions relate the regions of a picture, and a GRU reads them in turn. A second GRU learns to generate
the text from the vector of its picture.

==========  ==========================  ==============================================================
paper       code                        meaning
==========  ==========================  ==============================================================
R           `Relation`                  affinities of regions
V*          `Relation`                  regions after a residual graph convolution
m_k         `ReasonedRegions`           state of the GRU after k regions
L_G         `caption_loss`              negative log-likelihood of the words
==========  ==========================  ==============================================================
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from silohash.base.types import MethodCard, Outputs, PairBatch, Terms
from silohash.methods.local.base import SiloState
from silohash.methods.local.matching.base import Matching, MatchingParams, VectorNet, one_node, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, RegionEncoder, WordTable, split_words
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Dropout

CARD = MethodCard(
    key="vsrn",
    title="Visual Semantic Reasoning for Image-Text Matching",
    authors="Kunpeng Li, Yulun Zhang, Kai Li, Yuanyuan Li, Yun Fu",
    venue="ICCV",
    year=2019,
    link="https://arxiv.org/abs/1909.02701",
    summary="One vector per image, from regions that reason on each other, and one per text. Scores pairs.",
    differs_from_paper=(
        "Residuals have a learned factor per dimension that starts at 0, in place of batch normalization, because the batch "
        "statistics of silos with different data cannot be averaged.",
        "The generated text starts from the vector of the picture. In the paper, it also attends to the regions.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
    ),
)


class VSRNParams(MatchingParams):
    """Parameters of VSRN."""

    layers: int = Field(default=4, ge=1)
    """Number of residual graph convolutions, at least 1."""
    caption_weight: float = Field(default=1.0, ge=0)
    """Weight of the loss of the generated text, at least 0. At 0 no text is generated."""


class Relation(nn.Module):
    """A residual graph convolution: each region adds what it receives from all regions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ask, self.answer, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.factor = nn.Parameter(torch.zeros(width))

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return the regions ``(B, R, D)`` after the convolution, zero for padding.

        Source: Li et al., equations (2) and (3).
        """
        there = mask.unsqueeze(2)
        affinity = self.ask(values) @ (self.answer(values) * there).mT
        received = affinity @ (self.value(values) * there) / mask.sum(1).clamp(min=1)[:, None, None]
        found: Tensor = (self.factor * self.out(received) + values) * there
        return found


def last_states(gru: nn.GRU, values: Tensor, mask: Tensor) -> Tensor:
    """Return the state of a GRU after the last vector of each item ``(B, N, D)``, ``(B, hidden)``.

    Padding follows the vectors of an item. An item without vectors is read as one.
    """
    # pack_padded_sequence refuses lengths of 0, and lengths that are not on the CPU.
    lengths = mask.sum(1).clamp(min=1).cpu()
    state: Tensor = gru(pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False))[1][0]
    return state


class ReasonedRegions(nn.Module):
    """Encode a picture as one vector of length 1: the last state of a GRU over regions that reasoned on each other."""

    def __init__(self, spec: TowerSpec, layers: int) -> None:
        super().__init__()
        self.encoder = RegionEncoder(spec, normalize=False)
        self.relations = nn.ModuleList(Relation(spec.hidden) for _ in range(layers))
        self.gru = nn.GRU(spec.hidden, spec.hidden, batch_first=True)

    def forward(self, regions: Tensor) -> Nodes:
        """Return one node per picture."""
        nodes = self.encoder(regions)
        values = nodes.values
        for relation in self.relations:
            values = relation(values, nodes.mask)
        return one_node(last_states(self.gru, F.normalize(values, dim=2), nodes.mask).float(), nodes.mask)


class LastWord(nn.Module):
    """Encode a text as one vector of length 1: the last state of a GRU over its words."""

    def __init__(self, spec: TowerSpec, word_width: int) -> None:
        super().__init__()
        self.dropout = Dropout(spec.dropout)
        self.words = WordTable(spec, word_width)
        self.gru = nn.GRU(self.words.width, spec.hidden, batch_first=True)

    def forward(self, words: Tensor) -> Nodes:
        """Return one node per text."""
        numbers, _ = split_words(words)
        mask = numbers >= 0
        vectors = self.dropout(self.words(numbers.clamp(min=0)))
        return one_node(last_states(self.gru, vectors, mask).float(), mask)


class Captions(nn.Module):
    """Generate a text from the vector of its picture."""

    def __init__(self, words: int, word_width: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, word_width)
        self.gru = nn.GRU(word_width, width, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, pictures: Tensor, numbers: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of each text's words, ``(B,)``, given its picture and the words before."""
        states, _ = self.gru(self.words(numbers[:, :-1].clamp(min=0)), pictures.unsqueeze(0).contiguous())
        return caption_loss(self.out(states).float(), numbers[:, 1:])


def caption_loss(logits: Tensor, numbers: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of each text's words, ``(B,)``; 0 for a text without words.

    Padding is negative in the numbers of words ``(B, W)``.

    Source: Li et al., equation (9), as a mean over words.
    """
    there = numbers >= 0
    losses = F.cross_entropy(logits.mT, numbers.clamp(min=0), reduction="none")
    return (losses * there).sum(1) / there.sum(1).clamp(min=1)


class VSRNNet(VectorNet):
    """Cosines of one vector per item."""

    def __init__(self, image: TowerSpec, text: TowerSpec, params: VSRNParams) -> None:
        super().__init__(ReasonedRegions(image, params.layers), LastWord(text, params.word_width))
        if params.caption_weight:
            self.captions = Captions(int(text.settings["words"]), params.word_width, image.hidden)

    def extras(self, images: Nodes, texts: Nodes, batch: PairBatch) -> Mapping[str, Tensor]:
        """Return the loss of the generated text of each pair, ``(B,)``, if texts are generated."""
        if not hasattr(self, "captions") or batch.text is None:
            return {}
        return {"caption": self.captions(images.values[:, 0], split_words(batch.text)[0])}


class VSRN(Matching[VSRNParams]):
    """Reasoning on regions, and one vector per item."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders and the generator of texts."""
        return VSRNNet(*towers_of(spec, CARD.key), self.params)

    def extra_terms(self, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the loss of the generated texts, summed over the pairs like the hinge loss."""
        if "caption" not in outputs.extra:
            return {}
        return {
            "caption": (self.params.caption_weight, outputs.extra["caption"][batch.has_image & batch.has_text].sum())
        }
