"""Deep triplet hashing. The supervised loss of FedHAP (Meilin Yang et al., 2022), after Lai et al., CVPR 2015.

Relaxed codes of items that share a label should be nearer than those of items that share none, by a margin.

==========  ==========================  =============================================
paper       code                        meaning
==========  ==========================  =============================================
L_tl^loc    `triplet_loss`            all triplets of a batch
a           ``margin``                  by how much the similar item must be nearer
d           `apart`                     distance between relaxed codes
==========  ==========================  =============================================

Equations (2) and (3) of FedHAP are `triplet_loss`.

Differs from the paper: which triplets are taken is not stated there; here all of a batch, averaged over those that violate
the margin. With two modalities the loss is averaged over the pairs of modalities that anchor and others come from. The
margin is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.local.base import MethodParams, SiloData, SiloState, signs
from silohash.models.towers import HashNet, ModelSpec
from silohash.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms

CARD = MethodCard(
    key="triplet",
    title="Simultaneous Feature Learning and Hash Coding with Deep Neural Networks",
    authors="Hanjiang Lai, Yan Pan, Ye Liu, Shuicheng Yan",
    venue="CVPR",
    year=2015,
    link="https://arxiv.org/abs/1504.03410",
    summary="Items that share a label lie nearer than those that share none, by a margin; FedHAP's local loss.",
    supervised=True,
    differs_from_paper=(
        "the network is the run's own, with cosine distances, as FedHAP has it",
        "all triplets of a batch, averaged over those that violate the margin",
    ),
)


class TripletParams(MethodParams):
    """Parameters of the triplet loss."""

    margin: float = Field(default=0.5, gt=0)
    """a: by how much the similar item must be nearer."""
    distance: Literal["cosine", "euclidean"] = "cosine"
    """Between relaxed codes."""
    quantization_weight: float = Field(default=0.05, ge=0)
    """Pulls relaxed codes to their signs."""


def pairwise_distances(codes: Tensor, others: Tensor, kind: Literal["cosine", "euclidean"]) -> Tensor:
    """Returns distances between rows, ``(B, K), (N, K) -> (B, N)``.

    ``euclidean`` is divided by the largest that two codes of K bits can have, so that one margin serves all lengths.
    """
    if kind == "cosine":
        return 1.0 - F.normalize(codes, dim=1) @ F.normalize(others, dim=1).T
    distances: Tensor = torch.cdist(codes, others) / math.sqrt(4.0 * codes.shape[1])
    return distances


def triplet_loss(distances: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Returns the mean over violated triplets, a scalar; 0 where there are none.

    Args:
        distances: ``(B, N)`` of anchors to others.
        positive: ``(B, N)`` bool, which others should be near.
        negative: ``(B, N)`` bool, which should be far.
        margin: by how much the positive must be nearer.

    Source: FedHAP, equations (2) and (3).
    """
    gaps = F.relu(distances.unsqueeze(2) - distances.unsqueeze(1) + margin)
    gaps = gaps * (positive.unsqueeze(2) & negative.unsqueeze(1))
    return gaps.sum() / (gaps > 0).sum().clamp(min=1)


class Triplet:
    """Triplets of a batch, over one or two modalities."""

    Params: ClassVar[type[MethodParams]] = TripletParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {}}
    needs_labels: ClassVar[bool] = True

    def __init__(self, params: TripletParams) -> None:
        self.params = params

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Builds towers that end in a tanh."""
        return HashNet(spec, bits, relaxation="tanh")

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Returns one step for all towers."""
        assert isinstance(model, HashNet)  # noqa: S101  built above
        return [
            Step(name="joint", parameters=tuple(f"{m}." for m in model.modalities), modalities=tuple(model.modalities))
        ]

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Keeps nothing: a batch is all that the loss sees."""

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Returns the triplets, averaged over pairs of modalities, and the quantisation.

        Source: FedHAP, equations (2) and (3).
        """
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
        assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
        ours, theirs = batch.has(anchor), batch.has(other)
        distances = pairwise_distances(outputs.code[anchor][ours], outputs.code[other][theirs], self.params.distance)
        similar = batch.labels[ours] @ batch.labels[theirs].T > 0
        positive = similar
        if anchor == other:
            positive = similar & ~torch.eye(len(similar), dtype=torch.bool, device=similar.device)
        return triplet_loss(distances, positive, ~similar, self.params.margin)

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Keeps nothing."""

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Keeps nothing."""

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Tells of a collapse: all codes alike leave every triplet at the margin."""
        if abs(terms.get("triplet", 0.0) - self.params.margin) > 1e-4:
            return []
        return ["The codes have collapsed: every triplet lies at the margin. Lower the learning rate or the margin."]
