"""FedProc: Prototypical Contrastive Federated Learning on Non-IID Data. Xutong Mu et al., FGCS 2023.

Federated averaging in which every item must pick its own class among the common class means, strongly at first and less
from round to round.

==========  ==========================================  ===========================================
paper       code                                        meaning
==========  ==========================================  ===========================================
alpha       ``round / total_rounds``                    share of training that is over (`contrast_share`)
L_GPC       `global_contrast`                           the contrast with the global prototypes
c_j         ``extras["prototypes/..."]``                common prototype of class j
==========  ==========================================  ===========================================

Differs from the paper: the hashing loss is never weighted down, only the contrast; outputs are of unit length (preset
``reference``: both as in the paper, and a prototype a modality); classes that nobody has shown yet are left out of the
contrast, and items of such classes alone out of its mean, which the paper takes over the whole batch; the representation is
the relaxed code, and both modalities share one prototype a class; an item with several labels picks any of them. Class means
leave a silo under the rules of release (preset ``reference``: every class).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.federated.prototypes import (
    PrototypeParams,
    empty_prototypes,
    prototype_sums,
    received_prototypes,
    representation,
    rows_with_prototypes,
    updated_prototypes,
)
from silohash.federated.statistics import class_shares
from silohash.local.base import MethodParams
from silohash.types import MethodCard, Outputs, PairBatch, Terms

CARD = MethodCard(
    key="fedproc",
    title="FedProc: Prototypical Contrastive Federated Learning on Non-IID Data",
    authors="Xutong Mu, Yulong Shen, Ke Cheng, Xueli Geng, Jiaxuan Fu, Tao Zhang, Zhiwei Zhang",
    venue="Future Generation Computer Systems",
    year=2023,
    link="https://arxiv.org/abs/2109.12273",
    summary="Every item picks its class among the common class means, strongly at first and less from round to round.",
    supervised=True,
    sends=("parameters", "number of items", "sums and counts a class of outputs"),
    differs_from_paper=(
        "the hashing loss keeps its weight",
        "outputs are of unit length, classes without a prototype are left out",
        "both modalities share a prototype a class",
    ),
)


class FedProcParams(PrototypeParams):
    """Parameters of FedProc."""

    contrast_weight: float = Field(default=1.0, ge=0)
    """Weight of the contrast in the first round: 0 is federated averaging."""
    temperature: float = Field(default=1.0, gt=0)
    """By which cosines are divided; the paper has none."""
    fading: Literal["contrast", "both"] = "contrast"
    """`contrast`: the contrast fades from round to round; `both`: as it fades the local loss grows, as in the paper."""
    unit_outputs: bool = True
    """Whether outputs are brought to unit length; the paper does so to prototypes only."""


def contrast_share(over: float, fading: Literal["contrast", "both"]) -> float:
    """Returns how much the contrast weighs, where the local loss weighs 1.

    The paper weighs the contrast by ``1 - alpha`` and the local loss by alpha: so does ``both``, divided by alpha, which is
    nothing to Adam; for plain gradient steps the learning rate has to be multiplied by it. In the first round, where alpha
    is 0, the paper has the local loss alone.

    Args:
        over: alpha, the share of training that is over.
        fading: which losses change.

    Source: FedProc, the total loss.
    """
    if fading == "contrast":
        return 1.0 - over
    return (1.0 - over) / over if over else 0.0


def global_contrast(
    values: Tensor, labels: Tensor, prototypes: Tensor, mask: Tensor, temperature: float, *, unit: bool = True
) -> Tensor:
    """Returns the cross-entropy of picking an item's labels among the prototypes by cosine, ``(B,)``.

    Args:
        values: ``(B, K)``.
        labels: ``(B, C)`` multi-hot; each row has a masked class.
        prototypes: ``(C, K)``.
        mask: ``(C,)`` bool, which prototypes there are.
        temperature: by which cosines are divided.
        unit: whether values count by their direction only; without, by inner products with the prototypes' directions.

    Source: FedProc, the global prototypical contrastive loss.
    """
    directions = F.normalize(values, dim=1) if unit else values
    cosines = directions @ F.normalize(prototypes[mask], dim=1).T
    return -(class_shares(labels, mask)[:, mask] * F.log_softmax(cosines / temperature, dim=1)).sum(1)


class FedProc(FederatedMethod):
    """Federated averaging with a contrast against common prototypes."""

    Params: ClassVar[type[MethodParams]] = FedProcParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {
            "fuse": False, "fading": "both", "unit_outputs": False, "min_count": 1, "max_labels": 1000,
        },
    }  # fmt: skip
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {"silo_update": {}, "aggregate": {}}
    needs_labels: ClassVar[bool] = True

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Starts without prototypes."""
        state = super().init_server(model, info)
        return replace(state, extras=empty_prototypes(model, info.classes, info.bits, self.params))

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns the contrast, summed over the step's modalities and faded out over the rounds."""
        over = context.round / context.total_rounds
        weight = self.params.contrast_weight * contrast_share(over, self.params.fading)
        parts = []
        for modality in outputs.logit if weight else ():
            prototypes, mask = received_prototypes(context, modality)
            rows = rows_with_prototypes(batch, modality, mask)
            if rows.any():
                assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
                values = representation(outputs, modality)[rows]
                contrast = global_contrast(
                    values, batch.labels[rows], prototypes, mask, self.params.temperature, unit=self.params.unit_outputs
                )
                parts.append(contrast.mean())
        return {"contrast": (weight, torch.stack(parts).sum())} if parts else {}

    def silo_update(self, context: SiloContext) -> Message:
        """Sends class sums beside the parameters."""
        sums = prototype_sums(context, self.params) if self.params.contrast_weight else {}
        return replace(super().silo_update(context), sums=sums)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Averages the parameters and makes the common prototypes."""
        return updated_prototypes(super().aggregate(server, updates), updates)
