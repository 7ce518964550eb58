"""FedProto: Federated Prototype Learning across Heterogeneous Clients. Yue Tan et al., AAAI 2022.

No parameters travel. Silos exchange the mean output of each class, and every silo's own model is pulled towards the common
means of its items' classes.

===========  ==========================================  ======================================
paper        code                                        meaning
===========  ==========================================  ======================================
lambda       ``prototype_weight``                        weight of the pull
C^(j)        ``extras["prototypes/..."]``                common prototype of class j
C_i^(j)      `silohash.federated.prototypes`             a silo's mean of class j
===========  ==========================================  ======================================

The regulariser of equation (5) is `prototype_distance`.

Differs from the paper: equation (6) divides twice and shrinks prototypes with the number of silos; here the server divides
the sum of all class sums by the sum of all counts (preset ``reference``: the even mean of the silos' means and a prototype a
modality, as the authors' code). As in that code, items are compared with their class's prototype (the paper compares
prototypes). The representation is the relaxed code; an item with several labels is pulled to the mean of their prototypes;
the two modalities share one prototype a class, in which they meet. Items none of whose labels has a prototype are left out
of the mean; the code counts them as zero. Prototypes are computed after training, in evaluation mode, and leave a silo under
the rules of release (preset ``reference``: every class).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.exchange.message import Message
from silohash.federated.base import FederationInfo, ServerState, SiloContext
from silohash.federated.methods.local import Local
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
    key="fedproto",
    title="FedProto: Federated Prototype Learning across Heterogeneous Clients",
    authors="Yue Tan, Guodong Long, Lu Liu, Tianyi Zhou, Qinghua Lu, Jing Jiang, Chengqi Zhang",
    venue="AAAI",
    year=2022,
    link="https://arxiv.org/abs/2105.00243",
    summary="Only class means travel; every silo's own model is pulled towards the common ones.",
    supervised=True,
    sends=("sums and counts a class of outputs",),
    keeps=("the whole model",),
    differs_from_paper=(
        "prototypes are means over all silos' items; the paper's equation (6) shrinks them",
        "both modalities share a prototype a class",
        "items with several labels are pulled to the mean of their prototypes",
    ),
)


class FedProtoParams(PrototypeParams):
    """Parameters of FedProto."""

    prototype_weight: float = Field(default=1.0, ge=0)
    """lambda: 0 leaves each silo alone."""


def prototype_distance(values: Tensor, labels: Tensor, prototypes: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean squared distance a dimension to the prototypes of the items' labels, ``(B,)``.

    Args:
        values: ``(B, K)``.
        labels: ``(B, C)`` multi-hot; each row has a masked class.
        prototypes: ``(C, K)``.
        mask: ``(C,)`` bool, which prototypes there are.

    Source: FedProto, equation (5), with the mean over an item's labels.
    """
    return (values - class_shares(labels, mask) @ prototypes).square().mean(1)


class FedProto(Local):
    """Local training towards common prototypes."""

    Params: ClassVar[type[MethodParams]] = FedProtoParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {"fuse": False, "min_count": 1, "max_labels": 1000},
        "authors_code": {"fuse": False, "prototype_weighting": "uniform", "min_count": 1, "max_labels": 1000},
    }
    needs_labels: ClassVar[bool] = True

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Starts without prototypes."""
        state = super().init_server(model, info)
        return replace(state, extras=empty_prototypes(model, info.classes, info.bits, self.params))

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Sends the prototypes alone."""
        return replace(super().broadcast(server, silo, round=round), extras=server.extras)

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns the distance to the prototypes, summed over the step's modalities. Source: equation (5)."""
        parts = []
        for modality in outputs.logit if self.params.prototype_weight else ():
            prototypes, mask = received_prototypes(context, modality)
            rows = rows_with_prototypes(batch, modality, mask)
            if rows.any():
                assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
                values = representation(outputs, modality)[rows]
                parts.append(prototype_distance(values, batch.labels[rows], prototypes, mask).mean())
        return {"prototype": (self.params.prototype_weight, torch.stack(parts).sum())} if parts else {}

    def silo_update(self, context: SiloContext) -> Message:
        """Keeps the model and sends class sums."""
        return replace(super().silo_update(context), sums=prototype_sums(context, self.params))

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Makes the common prototypes. Source: equation (6), divided once."""
        return updated_prototypes(server, updates)
