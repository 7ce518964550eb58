"""Triplet hashing: codes of items that share a label are closer, by a margin, than those of items that share none.

This is the supervised local loss of FedHAP, without its prototypes.

==========  ==========================  =============================================
paper       code                        meaning
==========  ==========================  =============================================
L_tl^loc    `triplet_loss`              loss over all triplets of a batch
a           ``margin``                  margin
d           `pairwise_distances`        distance between relaxed codes
==========  ==========================  =============================================

Equation (2) of FedHAP is `triplet_loss`. The quantization loss is its equation (7).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloState, labels_of, signs
from silohash.methods.local.losses import cosines, different_items
from silohash.methods.traits import Traits

CARD = MethodCard(
    key="triplet",
    title="Simultaneous Feature Learning and Hash Coding with Deep Neural Networks",
    authors="Hanjiang Lai, Yan Pan, Ye Liu, Shuicheng Yan",
    venue="CVPR",
    year=2015,
    link="https://arxiv.org/abs/1504.03410",
    summary="Place items that share a label closer together than other items, by a margin. FedHAP's local loss.",
    supervised=True,
    differs_from_paper=(
        "The network is that of the run, and distances are cosine distances, as in FedHAP.",
        "The loss is the mean over all triplets of a batch that violate the margin. FedHAP states no selection.",
        "Codes are relaxed by a tanh, and the quantization loss is a mean over items and bits. In FedHAP it is a sum.",
        "With two modalities, the loss is averaged over pairs of modalities.",
        "FedHAP does not state the margin. The default of 0.5 is our choice.",
    ),
)


class TripletParams(MethodParams):
    """Parameters of the triplet loss."""

    margin: float = Field(default=0.5, gt=0)
    """Margin of the triplets, positive: how much closer a similar item must be than a dissimilar one."""
    distance: Literal["cosine", "euclidean"] = "cosine"
    """Distance between relaxed codes: `cosine` or `euclidean`."""
    quantization_weight: float = Field(default=0.05, ge=0)
    """Weight of the quantization loss, which pulls relaxed codes toward their signs, at least 0. At 0 it is off."""


def pairwise_distances(codes: Tensor, others: Tensor, kind: Literal["cosine", "euclidean"]) -> Tensor:
    """Return the distances between all rows of codes ``(B, K)`` and ``(N, K)``, ``(B, N)``.

    ``euclidean`` is divided by the largest possible distance of two codes of K bits, so that one margin fits all code
    lengths.
    """
    if kind == "cosine":
        return 1.0 - cosines(codes, others)
    distances: Tensor = torch.cdist(codes, others) / math.sqrt(4.0 * codes.shape[1])
    return distances


def triplet_loss(distances: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Return the mean over the triplets that violate the margin, a scalar; 0 if there are none.

    The distances ``(B, N)`` are those of anchors and others, of which ``positive`` ones should be closer than ``negative``
    ones.

    Source: FedHAP, equation (2), and equation (3) with prototypes as the others.
    """
    gaps = F.relu(distances.unsqueeze(2) - distances.unsqueeze(1) + margin)
    gaps = gaps * (positive.unsqueeze(2) & negative.unsqueeze(1))
    return gaps.sum() / (gaps > 0).sum().clamp(min=1)


class Triplet(LocalMethod[TripletParams]):
    """All triplets of a batch, for one or two modalities."""

    traits = Traits(needs_labels=True)

    def __init__(self, params: TripletParams) -> None:
        self.params = params
        self.traits = replace(self.traits, quantizes=params.quantization_weight > 0)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the triplet loss, averaged over pairs of modalities, and the quantization loss. Source: (2) and (7)."""
        held = {m: batch.has(m) for m in outputs.code if batch.has(m).any()}
        if not held:
            return {}
        pairs = [self._pair(outputs, batch, anchor, other) for anchor in held for other in held]
        drift = torch.stack(
            [(outputs.code[m][rows] - signs(outputs.code[m][rows])).square().mean() for m, rows in held.items()]
        )
        return {
            "triplet": (1.0, torch.stack(pairs).mean()),
            "quantization": (self.params.quantization_weight, drift.mean()),
        }

    def _pair(self, outputs: Outputs, batch: PairBatch, anchor: Modality, other: Modality) -> Tensor:
        labels = labels_of(batch)
        ours, theirs = batch.has(anchor), batch.has(other)
        # Each pair has a selection of its own: a shared one would add gradients in another order and change figures.
        distances = pairwise_distances(outputs.code[anchor][ours], outputs.code[other][theirs], self.params.distance)
        similar = labels[ours] @ labels[theirs].T > 0
        positive = similar & different_items(similar) if anchor == other else similar
        return triplet_loss(distances, positive, ~similar, self.params.margin)

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return a warning if the codes collapse: identical codes put every triplet at the margin."""
        if abs(terms.get("triplet", 0.0) - self.params.margin) > 1e-4:
            return []
        return ["The codes have collapsed: every triplet lies at the margin. Lower the learning rate or the margin."]
