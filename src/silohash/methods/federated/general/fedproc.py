"""Federated averaging with a contrast between every item and the common class prototypes.

The contrast dominates in the early rounds and fades out toward the last.

==========  ==========================================  ===========================================
paper       code                                        meaning
==========  ==========================================  ===========================================
alpha       ``round / total_rounds``                    completed share of training
L_GPC       `global_contrast`                           contrast with the common prototypes
c_j         ``extras["prototypes/..."]``                common prototype of class j
==========  ==========================================  ===========================================

The weights of the total loss are `contrast_share`.
"""

from typing import ClassVar, Literal

import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor

from silohash.base.types import MethodCard, Outputs, PairBatch, Terms
from silohash.methods.federated.base import FederatedMethod, SiloContext, summed_terms
from silohash.methods.federated.prototypes import PrototypeMethod, PrototypeParams, prototype_rows
from silohash.methods.federated.statistics import class_shares
from silohash.methods.message import Message
from silohash.methods.traits import Traits

CARD = MethodCard(
    key="fedproc",
    title="FedProc: Prototypical Contrastive Federated Learning on Non-IID Data",
    authors="Xutong Mu, Yulong Shen, Ke Cheng, Xueli Geng, Jiaxuan Fu, Tao Zhang, Zhiwei Zhang",
    venue="Future Generation Computer Systems",
    year=2023,
    link="https://arxiv.org/abs/2109.12273",
    summary="Contrast every item with the shared class prototypes, with a weight that decreases over the rounds.",
    supervised=True,
    sends=("parameters", "number of items", "sums and counts of outputs per class"),
    differs_from_paper=(
        "The hashing loss keeps its weight in all rounds, except in the preset paper.",
        "In the preset paper, both losses are divided by the completed share of training, which changes the steps of SGD"
        " and those of Adam with weight decay, but not those of AdamW.",
        "Outputs are normalized to unit length, except in the preset paper.",
        "Both modalities share one prototype per class, except in the preset paper.",
        "Classes without a prototype are left out of the contrast, as are items that have only such classes.",
        "Outputs are relaxed codes, and an item with several labels may match any of them.",
        "Only classes with enough items are released, except in the preset paper.",
    ),
)


class FedProcParams(PrototypeParams):
    """Parameters of FedProc."""

    without_effect: ClassVar = PrototypeParams.switched_off(
        "temperature", "fading", "unit_outputs", "fuse", "prototype_weighting", contrast_weight=(0,)
    )

    contrast_weight: float = Field(default=1.0, ge=0)
    """Weight of the contrast in the first round, at least 0. At 0 the method is FedAvg."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the contrast, positive. The paper uses none, which equals 1."""
    fading: Literal["contrast", "both"] = "contrast"
    """`contrast`: only the contrast fades out. `both`: the local loss fades in at the same time, as in the paper."""
    unit_outputs: bool = True
    """Normalize outputs to unit length. If false, only the prototypes are normalized, as in the paper."""


def contrast_share(over: float, fading: Literal["contrast", "both"]) -> float:
    """Return the weight of the contrast relative to a local loss of weight 1.

    The paper weights the contrast by ``1 - alpha`` and the local loss by alpha, the completed share of training (``over``,
    in [0, 1)). ``both`` divides these weights by alpha. In the first round, where alpha is 0, it leaves the local loss
    alone. The steps of AdamW, and of Adam without weight decay, do not depend on a common factor of all losses. Those of
    Adam with weight decay do, because the decay is added to the gradient. Those of SGD are longer by 1 / alpha.

    Source: FedProc, total loss.
    """
    if fading == "contrast":
        return 1.0 - over
    return (1.0 - over) / over if over else 0.0


def global_contrast(
    values: Tensor, labels: Tensor, prototypes: Tensor, mask: Tensor, temperature: float, *, unit: bool = True
) -> Tensor:
    """Return the cross-entropy of identifying an item's labels among the prototypes by cosine, ``(B,)``.

    The first four arguments are those of `PrototypeRows`. The temperature divides the cosines. Without ``unit``, values are
    not normalized, so their inner products with the prototypes' directions are used.

    Source: FedProc, global prototypical contrastive loss.
    """
    directions = F.normalize(values, dim=1) if unit else values
    cosines = directions @ F.normalize(prototypes[mask], dim=1).T
    return -(class_shares(labels, mask)[:, mask] * F.log_softmax(cosines / temperature, dim=1)).sum(1)


class FedProc(PrototypeMethod):
    """Federated averaging with a contrast against common prototypes."""

    Params = FedProcParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "fuse": False, "fading": "both", "unit_outputs": False, "min_count": 1, "max_labels": 1000,
        },
    }  # fmt: skip
    traits = Traits(needs_labels=True, private_units=("record",), adds={"update": {}, "aggregate": {}})

    term_weights = ("contrast_weight",)

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the contrast, summed over the step's modalities and faded out over the rounds."""
        over = context.round / context.total_rounds
        weight = self.params.contrast_weight * contrast_share(over, self.params.fading)
        parts = [
            global_contrast(
                rows.values, rows.labels, rows.prototypes, rows.mask,
                self.params.temperature, unit=self.params.unit_outputs,
            ).mean()
            for rows in (prototype_rows(context, batch, outputs) if weight else ())
        ]  # fmt: skip
        return summed_terms({"contrast": weight}, {"contrast": parts})

    def update(self, context: SiloContext) -> Message:
        """Send class sums beside the parameters if the contrast uses them."""
        return super().update(context) if self.params.contrast_weight else FederatedMethod.update(self, context)
