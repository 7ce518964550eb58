"""DCHMT: each bit is a choice between two units, so that training needs no sign.

A softmax over the two units of a bit gives the probabilities of its two values. Items that share a label should have the
same probabilities, and others a Euclidean distance of at least c.

=========  ==========================  ==================================================================
paper      code                        meaning
=========  ==========================  ==================================================================
u          `ChoiceLayer`               two units per bit
p          ``(1 + code) / 2``          probability of the first unit of each bit
2p - 1     ``outputs.code``            relaxed code in (-1, 1), (B, K): tanh of half the difference of the units
d          `squared_distances`         distance of the probabilities of both units of all bits
s          `similarity`                1 where two items share a label, or the share of common labels
c          ``sqrt(2 K vartheta)``      smallest distance of dissimilar items
vartheta   ``threshold``               c squared, divided by the largest possible d squared
alpha      ``quantization_weight``     weight of the quantization loss
=========  ==========================  ==================================================================

The similarity loss is `pulls` + `pushes` of d^2 and s ``(B, N)`` for each pair of modalities, and the quantization loss is
`indecision`. The arg max of a bit's units is the sign of the relaxed code, so encoding needs no other rule.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloState, labels_of
from silohash.methods.local.losses import modality_pairs, similarity
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet

CARD = MethodCard(
    key="dchmt",
    title="Differentiable Cross-modal Hashing via Multimodal Transformers",
    authors="Junfeng Tu, Xueliang Liu, Zongxiang Lin, Richang Hong, Meng Wang",
    venue="ACM Multimedia",
    year=2022,
    link="https://github.com/kalenforn/DCHMT",
    summary="Make each bit a choice between two units, and compare items by the probabilities of these choices.",
    supervised=True,
    differs_from_paper=(
        "The towers are those of the run. The authors fine-tune a pretrained CLIP, and their code reports the epoch that is "
        "best on the test queries.",
        "The head is that of the authors' later collection, clip-based-cross-modal-hash: self-attention, a normalization "
        "and a layer with two units per bit for the one vector of CLIP. Attention to a single vector is a linear map, "
        "which the feature layer of the tower replaces. Of the first release, which is linked, the preset authors_code has "
        "the smallest distance of dissimilar items (50 % of their bits), and not its narrower head.",
        "There is no normalization before the hash layer. Theirs uses batch statistics for images, which cannot be "
        "averaged over silos with different classes.",
        "The two units of a bit are linear, so that one unit for their difference suffices. The authors rectify them (the "
        "preset paper), so that bits whose two units are off are undecided and do not learn.",
        "Dissimilar items should differ in at least 30 % of their bits, and not in 75 %, except in the preset paper.",
        "Distances are divided by the code length, so that the losses do not depend on it, except in the preset paper.",
        "Similar and dissimilar pairs have the same total weight, except in the preset paper.",
        "Similarity is graded by the share of common labels, except in the preset paper.",
    ),
)


class DCHMTParams(MethodParams):
    """Parameters of DCHMT."""

    threshold: float = Field(default=0.3, gt=0, le=1)
    """Smallest squared distance of dissimilar items (vartheta in the paper), as a share of the largest possible one,
    greater than 0 and at most 1. At 0.5 at least half of their bits should differ."""
    quantization_weight: float = Field(default=0.001, ge=0)
    """Weight of the quantization loss, which pulls probabilities toward 0 and 1, at least 0."""
    similarity: Literal["any", "graded"] = "graded"
    """Similarity of two items: `any` (1 if they share a label, else 0) or `graded` (the cosine of their label
    vectors)."""
    class_balance: bool = True
    """Give similar and dissimilar pairs of a batch the same total weight, regardless of how many there are of each."""
    rectified: bool = False
    """Compute two rectified units per bit, as the authors do, instead of their difference. The model is then twice as wide
    at the hash layer."""
    per_bit: bool = True
    """Divide squared distances by their largest value 2K, so that the losses do not depend on the code length K."""


class ChoiceLayer(nn.Module):
    """A hash layer with two rectified units per bit, ``(B, H) -> (B, K)``: half the difference of the units of each bit.

    The tanh of the output is the difference of the two probabilities of a softmax over the units.
    """

    def __init__(self, hidden: int, bits: int) -> None:
        super().__init__()
        self.units = nn.Linear(hidden, 2 * bits)

    def forward(self, feature: Tensor) -> Tensor:
        """Return half the differences of the units, ``(B, K)``."""
        first, second = F.relu(self.units(feature)).chunk(2, dim=1)
        return 0.5 * (first - second)


def squared_distances(codes: Tensor, others: Tensor) -> Tensor:
    """Return the squared distances d^2 of the probabilities of all units, ``(B, N)``, from 0 to 2K, of codes ``(B, K)``.

    The probabilities of a bit are (1 + t) / 2 and (1 - t) / 2, so that a bit contributes (t_i - t_j)^2 / 2.
    """
    squares = codes.square().sum(1, keepdim=True) + others.square().sum(1)
    return (0.5 * squares - codes @ others.T).clamp(min=0)


def pulls(squared: Tensor, similar: Tensor) -> Tensor:
    """Return the loss of each pair as far as it is similar, ``(B, N)``: s d^2.

    Source: Tu et al., the similarity loss, first term.
    """
    return similar * squared


def pushes(squared: Tensor, similar: Tensor, largest: float) -> Tensor:
    """Return the loss of each pair as far as it is dissimilar, ``(B, N)``: (1 - s) max(0, c - d)^2 with c the largest d.

    Source: Tu et al., the similarity loss, second term.
    """
    # The slope of the root is infinite at 0.
    distances = squared.clamp(min=1e-12).sqrt()
    return (1.0 - similar) * F.relu(largest - distances).square()


def balanced_mean(pulled: Tensor, pushed: Tensor, similar: Tensor) -> Tensor:
    """Return the mean of `pulls` and `pushes` ``(B, N)``, half of it by similar pairs and half by others, a scalar."""
    near, far = similar.sum().clamp(min=1), (1.0 - similar).sum().clamp(min=1)
    return 0.5 * (pulled.sum() / near + pushed.sum() / far)


def indecision(codes: Tensor) -> Tensor:
    """Return 1 minus the mean square of relaxed codes, a scalar; 0 if every bit is decided.

    Source: Tu et al., the quantization loss.
    """
    return 1.0 - codes.square().mean()


PAPER: Mapping[str, Any] = {"similarity": "any", "class_balance": False, "rectified": True, "per_bit": False}


class DCHMT(LocalMethod[DCHMTParams]):
    """Hashing as a choice, for one or two modalities."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {**PAPER, "threshold": 0.75},
        "authors_code": {**PAPER, "threshold": 0.5},
    }
    traits = Traits(needs_labels=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers that end in a tanh, with two rectified units per bit if the parameters say so."""
        model = HashNet(spec, bits, relaxation="tanh")
        for modality in model.modalities if self.params.rectified else ():
            model.get_submodule(modality).add_module("hash", ChoiceLayer(spec.towers[modality].hidden, bits))
        return model

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the similarity loss, summed over the pairs of modalities, and the quantization loss."""
        held = {m: batch.has(m) for m in outputs.code if batch.has(m).any()}
        if not held:
            return {}
        codes = {m: outputs.code[m][rows] for m, rows in held.items()}
        pairs = [self._pair(outputs, batch, one, other) for one, other in modality_pairs(held)]
        return {
            "similarity": (1.0, torch.stack(pairs).sum()),
            "quantization": (
                self.params.quantization_weight, torch.stack([indecision(values) for values in codes.values()]).mean(),
            ),
        }  # fmt: skip

    def _pair(self, outputs: Outputs, batch: PairBatch, one: Modality, other: Modality) -> Tensor:
        """Return the mean loss of the pairs of an item's modality and another's."""
        rows, columns, labels = batch.has(one), batch.has(other), labels_of(batch)
        # Each pair has a selection of its own: a shared one would add gradients in another order and change figures.
        codes, others = outputs.code[one][rows], outputs.code[other][columns]
        graded = self.params.similarity == "graded"
        similar = similarity(labels[rows], labels[columns], graded=graded)
        largest = 1.0 if self.params.per_bit else 2.0 * codes.shape[1]
        squared = squared_distances(codes, others) * (largest / (2.0 * codes.shape[1]))
        pulled, pushed = pulls(squared, similar), pushes(squared, similar, math.sqrt(largest * self.params.threshold))
        return balanced_mean(pulled, pushed, similar) if self.params.class_balance else (pulled + pushed).mean()
