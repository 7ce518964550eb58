"""Prototype learning without shared parameters: silos exchange only the mean output of each class.

Every silo trains its own model, which is pulled toward the common prototypes of its items' classes.

===========  ==========================================  ======================================
paper        code                                        meaning
===========  ==========================================  ======================================
lambda       ``prototype_weight``                        weight of the terms
C^(j)        ``extras["prototypes/..."]``                common prototype of class j
C_i^(j)      `silohash.methods.federated.prototypes`     a silo's mean of class j
===========  ==========================================  ======================================

The term is `prototype_distance`. Equation (6), divided once, is `merged_prototypes`.
"""

from dataclasses import replace
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from silohash.base.types import MethodCard, Outputs, PairBatch, Terms
from silohash.methods.federated.base import SiloContext, summed_terms
from silohash.methods.federated.general.local import Local
from silohash.methods.federated.prototypes import PrototypeMethod, PrototypeParams, prototype_rows
from silohash.methods.federated.statistics import class_shares

CARD = MethodCard(
    key="fedproto",
    title="FedProto: Federated Prototype Learning across Heterogeneous Clients",
    authors="Yue Tan, Guodong Long, Lu Liu, Tianyi Zhou, Qinghua Lu, Jing Jiang, Chengqi Zhang",
    venue="AAAI",
    year=2022,
    link="https://arxiv.org/abs/2105.00243",
    summary="Share only class prototypes, and pull the outputs of each silo's own model toward them.",
    supervised=True,
    sends=("sums and counts of outputs per class",),
    keeps=("its model",),
    differs_from_paper=(
        "Prototypes are means over the items of all silos. Equation (6) divides twice, which shrinks them.",
        "Items are compared with prototypes, as in the authors' code. The paper compares prototypes with each other.",
        "Both modalities share one prototype per class, except in the presets paper and authors_code.",
        "Items with several labels are pulled toward the mean of their prototypes.",
        "Items without any prototype are left out of the mean. The authors' code counts them as zero.",
        "Prototypes are computed after training, in evaluation mode, from relaxed codes.",
        "Only classes with enough items are released, except in the presets paper and authors_code.",
        "The authors' code averages the silos' means equally.",
    ),
)


class FedProtoParams(PrototypeParams):
    """Parameters of FedProto."""

    without_effect: ClassVar = PrototypeParams.switched_off("fuse", "prototype_weighting", prototype_weight=(0,))

    prototype_weight: float = Field(default=1.0, ge=0)
    """Weight of the distance to the prototypes (lambda in the paper), at least 0. At 0 every silo trains alone."""


def prototype_distance(values: Tensor, labels: Tensor, prototypes: Tensor, mask: Tensor) -> Tensor:
    """Return the mean squared distance, over dimensions, to the mean prototype of the items' labels, ``(B,)``.

    The arguments are those of `PrototypeRows`.

    Source: FedProto, authors' code, with the mean over an item's labels.
    """
    return (values - class_shares(labels, mask) @ prototypes).square().mean(1)


class FedProto(PrototypeMethod, Local):
    """Separate training toward common prototypes."""

    Params = FedProtoParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {"fuse": False, "min_count": 1, "max_labels": 1000},
        "authors_code": {"fuse": False, "prototype_weighting": "uniform", "min_count": 1, "max_labels": 1000},
    }
    traits = replace(Local.traits, needs_labels=True, trains_scores=False, closed_form="none", adds={"update": {}})
    term_weights = ("prototype_weight",)

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the distance to the prototypes, summed over the step's modalities."""
        weight = self.params.prototype_weight
        parts = [
            prototype_distance(rows.values, rows.labels, rows.prototypes, rows.mask).mean()
            for rows in (prototype_rows(context, batch, outputs) if weight else ())
        ]
        return summed_terms({"prototype": weight}, {"prototype": parts})
