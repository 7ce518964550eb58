"""Deep label feature fusion hashing: codes are computed from the features of an item and from a network over its labels.

Each modality has a feature network and a label network, whose outputs a hash branch and a label branch share. In the paper,
queries and database items are hashed with their true labels (``oracle-labels``), from which the relevance of the results is
computed too. By default an auxiliary head predicts the labels from the features instead (``label-free``), and the label
network receives the predictions for a random part of the training items.

============  =================================  ==========================================================
paper         code                               meaning
============  =================================  ==========================================================
U, V          ``buffers["image"]``,              stored outputs of the hash branches, ``(N, K)``
              ``buffers["text"]``
H             ``buffers["code"]``                ``sign(U + V)``, ``(N, K)``
L             ``batch.labels``                   labels, ``(B, C)``
L^x, L^y      ``sigmoid`` of `LABELS`            outputs of the label branches, ``(B, C)``
Phi           ``0.5 * U @ V.T``                  half the inner products
J_s           `pair_likelihood`                  equation (3)
J_l           `label_error`                      equation (4)
J_q           `quantization` and `balance`       equation (5)
gamma         ``label_weight``                   weight of J_l
eta           ``quantization_weight``,           weight of J_q
              ``balance_weight``
============  =================================  ==========================================================

Equation (6) is the sum. Its gradients are equations (7) to (10), and the update of H is equation (12). The predictions,
`AUXILIARY`, and their term are not in the paper.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Side, Step, Terms
from silohash.methods.local.base import SiloState, labels_of
from silohash.methods.local.losses import label_error
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet, Tower, TowerOutputs

CARD = MethodCard(
    key="dlffh",
    title="Deep Label Feature Fusion Hashing for Cross-Modal Retrieval",
    authors="Dongxiao Ren, Weihua Xu, Zhonghua Wang, Qinxiu Sun",
    venue="IEEE Access",
    year=2022,
    link="https://doi.org/10.1109/ACCESS.2022.3208147",
    summary="Fuse the features of an item with a network over its labels, and fit the codes to shared labels as DCMH does.",
    supervised=True,
    keeps=("outputs of both networks for all of its items, within a round",),
    differs_from_paper=(
        "Labels are predicted from the features of an item, for queries and for database items (label-free). In the paper, "
        "and with the preset paper, both are hashed with their true labels (oracle-labels). The relevance of results is "
        "computed from the same labels, so even a query whose picture or text is noise finds the right items. Such figures "
        "do not apply to real searches, and they are marked as oracle figures.",
        "The labels are predicted by an auxiliary head on the features, except in the preset paper. In training, the label "
        "network receives the predictions for half of the items, and the true labels for the others.",
        "The label losses leave out items without a label.",
        "The feature networks are those of the run, and label networks have the width of their features. In the paper, all "
        "features are 4,096 wide. The image network is a pretrained CNN-F, and the text network has a layer of 8,192 units "
        "before its features.",
        "Image and text steps alternate per batch instead of per epoch.",
        "An epoch is a pass over the items, except in the preset paper, where each batch is drawn from all items.",
        "Stored outputs are computed by the networks at the start of every round.",
        "Losses are means over pairs, bits and labels, except in the preset paper.",
        "Bits are balanced over each batch instead of over all items, except in the preset paper.",
        "Similar and dissimilar pairs have the same total weight, except in the preset paper. A silo of which less than 5 % "
        "or more than 95 % of the pairs are similar has the weights of that limit.",
        "Similarity is graded by the share of common labels, except in the preset paper.",
    ),
)

LABELS, AUXILIARY = "labels", "auxiliary"
"""Outputs of the label branch and of the auxiliary head, in `Outputs.extra` under ``MODALITY/NAME``, ``(B, C)`` logits."""

LabelInput: TypeAlias = Literal["label-free", "db-labels", "oracle-labels", "no-label-net"]

SIDES_WITH_LABELS: Mapping[LabelInput, tuple[Side, ...]] = {
    "label-free": (),
    "db-labels": ("database",),
    "oracle-labels": ("query", "database"),
    "no-label-net": (),
}
"""The sides of a search whose items are encoded with their true labels."""


PREDICTING: tuple[LabelInput, ...] = ("label-free", "db-labels")
"""The inputs for which labels are predicted."""


class DLFFHParams(DCMHParams):
    """Parameters of DLFFH."""

    labels: LabelInput = "label-free"
    """Input of the label networks for queries and database items: `label-free` (labels predicted from the features),
    `db-labels` (true labels of database items and predicted labels of queries), `oracle-labels` (true labels of both, as in
    the paper; the figures then do not apply to real searches), or `no-label-net` (no label networks and no fusion; DLFFH-1
    in the paper)."""
    label_weight: float = Field(default=1.0, ge=0)
    """Weight of the squared error of the label branch (gamma in the paper), at least 0. At 0 the label branch is
    left out (DLFFH-2 in the paper)."""
    auxiliary_weight: float = Field(default=1.0, ge=0)
    """Weight of the cross-entropy of the predicted labels, at least 0. At 0 they are not trained."""
    sampling: float = Field(default=0.5, ge=0, le=1)
    """Probability in training that the label network receives the predicted labels of an item instead of the true ones,
    from 0 to 1. At 0 it never learns to use predictions."""

    without_effect: ClassVar = DCMHParams.switched_off(
        "auxiliary_weight", "sampling", labels=("oracle-labels", "no-label-net")
    )


class FusionNet(HashNet):
    """Towers that concatenate the features of an item with the outputs of a network over its labels.

    Besides the backbone and the hash layer, a tower has a label network ``labels``, a label branch ``branch``, and an
    auxiliary head ``auxiliary``, which predicts labels from the features. The hash layer and the label branch take the fused
    features.
    """

    def __init__(self, spec: ModelSpec, bits: int, params: DLFFHParams) -> None:
        super().__init__(spec, bits)
        self.params = params
        for modality in self.modalities:
            tower, width = self.tower(modality), spec.towers[modality].hidden
            fused = width
            if params.labels != "no-label-net":
                fused = 2 * width
                layers = nn.Linear(spec.classes, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
                tower.add_module("labels", nn.Sequential(*layers))
            if params.labels in PREDICTING:
                tower.add_module("auxiliary", nn.Linear(width, spec.classes))
            tower.hash = nn.Linear(fused, bits)
            if params.label_weight:
                tower.add_module("branch", nn.Linear(fused, spec.classes))

    def extras(self, outputs: Outputs) -> dict[str, Tensor]:
        """Return the outputs of the label heads."""
        extra: dict[str, Tensor] = {}
        for modality, fused in outputs.feature.items():
            tower = self.tower(modality)
            if hasattr(tower, "branch"):
                extra[f"{modality}/{LABELS}"] = tower.get_submodule("branch")(fused).float()
            if hasattr(tower, "auxiliary"):
                head = tower.get_submodule("auxiliary")
                # The first half of the fused features is the item's own feature, from which labels are predicted.
                extra[f"{modality}/{AUXILIARY}"] = head(fused[:, : fused.shape[1] // 2]).float()
        return extra

    def run_tower(self, modality: Modality, values: Tensor, batch: PairBatch) -> TowerOutputs:
        """Return the fused features ``(B, 2H)`` and the outputs of the hash branch ``(B, K)``."""
        tower = self.tower(modality)
        feature = tower.features(values)
        if hasattr(tower, "labels"):
            labels = self.label_input(tower, feature, batch.labels)
            feature = torch.cat([feature, tower.get_submodule("labels")(labels)], dim=1)
        return TowerOutputs(feature, tower.hash(feature))

    def label_input(self, tower: Tower, feature: Tensor, labels: Tensor | None) -> Tensor:
        """Return the input of a tower's label network, ``(B, C)``.

        With ``oracle-labels`` it is the true labels. Otherwise it is the labels predicted from the feature ``(B, H)``, which
        the label network sends no gradient, except for two kinds of items with labels: in training a random part of them,
        and in encoding with ``db-labels`` the items of the database.
        """
        if self.params.labels == "oracle-labels":
            assert labels is not None  # noqa: S101  the training has labels, and encoders pass them (`label_sides`)
            return labels
        predicted = torch.sigmoid(tower.get_submodule("auxiliary")(feature).float())
        if labels is None or not (self.training or self.params.labels == "db-labels"):
            return predicted
        known = labels.any(1)
        if self.training:
            known = known & (torch.rand(len(labels), device=labels.device) >= self.params.sampling)
        return torch.where(known.unsqueeze(1), labels, predicted.detach())


class DLFFH(DCMH):
    """Deep label feature fusion hashing, for one or two modalities.

    With one modality, the network is compared with its own stored outputs.
    """

    Params = DLFFHParams
    params: DLFFHParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "labels": "oracle-labels", "label_weight": 1.0, "quantization_weight": 0.1, "balance_weight": 0.1,
            "similarity": "any", "class_balance": False, "normalization": "paper", "pair_weight": 0.0,
            "independent_batches": True, "anchors": 1_000_000,
        },
    }  # fmt: skip

    def __init__(self, params: DLFFHParams) -> None:
        super().__init__(params)
        self.traits = replace(
            self.traits, label_sides=SIDES_WITH_LABELS[params.labels], label_free='local.labels = "label-free"'
        )

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers with label networks."""
        return FusionNet(spec, bits, self.params)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the terms of DCMH, of the label branch and of the predicted labels. Source: equation (6)."""
        terms = super().terms(step, outputs, batch, state)
        if not terms:
            return {}
        (modality,) = step.modalities
        rows = batch.has(modality) & labels_of(batch).any(1)
        labels = labels_of(batch)[rows]
        branch, auxiliary = (outputs.extra.get(f"{modality}/{name}") for name in (LABELS, AUXILIARY))
        if branch is not None:
            count = len(state.buffers["anchors"]) * int(batch.has(modality).sum())
            count = count if self.params.normalization == "paper" else max(labels.numel(), 1)
            terms["labels"] = (self.params.label_weight, label_error(branch[rows], labels).sum() / count)
        if auxiliary is not None and self.params.auxiliary_weight:
            loss = F.binary_cross_entropy_with_logits(auxiliary[rows], labels, reduction="sum")
            terms["auxiliary"] = (self.params.auxiliary_weight, loss / max(labels.numel(), 1))
        return terms
