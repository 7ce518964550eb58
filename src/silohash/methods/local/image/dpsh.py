"""Deep pairwise-supervised hashing: one network learns codes whose inner products follow the labels.

Pairs of items that share a label should agree in most bits, other pairs should not. The outputs of a batch are compared
with the *stored* outputs of all of the silo's items, so that a step covers ``B x N`` pairs with only ``B`` forward passes.

=========  =======================  ==================================================
paper      code                     meaning
=========  =======================  ==================================================
u          ``outputs.code``         outputs of the network, ``(B, K)``
U          ``buffers["image"]``     stored outputs of all items, ``(N, K)``
b          `signs`                  ``sign(u)``, the hash code
S          `similarity`             1 where two items share a label
Theta      ``0.5 * u @ U.T``        half the inner products
eta        ``quantization_weight``  weight of the quantization loss
=========  =======================  ==================================================

The paper's objective is `pair_likelihood` + eta * `quantization`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from silohash.base.types import MethodCard, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import (
    LocalMethod,
    MethodParams,
    SiloData,
    SiloState,
    draw_anchors,
    signs,
    store_all,
    store_batch,
    tower_steps,
)
from silohash.methods.local.losses import quantization
from silohash.methods.local.stored_pairs import collapse_warnings, labels_and_share, stored_likelihood
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet

CARD = MethodCard(
    key="dpsh",
    title="Feature Learning Based Deep Supervised Hashing with Pairwise Labels",
    authors="Wu-Jun Li, Sheng Wang, Wang-Cheng Kang",
    venue="IJCAI",
    year=2016,
    link="https://arxiv.org/abs/1511.03855",
    summary="Fit the inner products of image codes to shared labels, using stored outputs of all items.",
    supervised=True,
    keeps=("outputs of the network for all of its items, within a round",),
    differs_from_paper=(
        "The network is that of the run.",
        "Texts, which the paper does not have, train a tower of their own with the same loss. Codes of images and texts "
        "are not compared in training, so a search across modalities does not work.",
        "Stored outputs are computed by the network at the start of every round. In the authors' code they start at zero.",
        "Losses are means over pairs and bits, which suits silos of all sizes, except in the preset paper.",
        "Similar and dissimilar pairs have the same total weight, except in the preset paper.",
        "Similarity can be graded by the share of common labels.",
        "The weight of the quantization loss in the preset paper is that of the authors' code for CIFAR-10.",
    ),
)


class DPSHParams(MethodParams):
    """Parameters of DPSH."""

    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the quantization loss (eta in the paper), which pulls real-valued outputs toward their signs, at
    least 0."""
    similarity: Literal["any", "graded"] = "any"
    """Similarity of two items: `any` (1 if they share a label, else 0) or `graded` (the cosine of their label
    vectors)."""
    class_balance: bool = True
    """Give similar and dissimilar pairs the same total weight, regardless of how many there are of each."""
    normalization: Literal["mean", "paper"] = "mean"
    """`mean`: losses are means over pairs and bits. `paper`: sums divided by the number of stored items and the batch
    size."""
    anchors: int = Field(default=1024, ge=1)
    """Number of stored items that each batch is compared with, at least 1. A new random subset is drawn each epoch."""


class DPSH(LocalMethod):
    """Deep pairwise-supervised hashing, for each modality separately."""

    Params = DPSHParams
    params: DPSHParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "quantization_weight": 10.0,
            "class_balance": False,
            "normalization": "paper",
            "anchors": 1_000_000,
        },
    }
    traits = Traits(needs_labels=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers without an activation after the hash layer."""
        return HashNet(spec, bits)

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Return one step per tower."""
        return tower_steps(model)

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the outputs of all items, the labels, and the share of similar pairs."""
        state.buffers = labels_and_share(data, graded=self.params.similarity == "graded")
        store_all(model, data, state)
        self.end_epoch(model, data, state)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the likelihood and quantization terms of one network. Source: the objective."""
        (modality,) = step.modalities
        present = batch.rows_with(modality)
        codes, rows = outputs.code[modality][present], batch.row[present]
        if not len(rows):
            return {}
        anchors = state.buffers["anchors"]
        anchors = anchors[state.buffers[f"has_{modality}"][anchors]]
        stored = state.buffers[modality][anchors]
        graded, balanced = self.params.similarity == "graded", self.params.class_balance
        likelihood = stored_likelihood(codes, stored, rows, anchors, state, graded=graded, balanced=balanced)
        drift = quantization(codes, signs(codes.detach()))
        in_paper = self.params.normalization == "paper"
        return {
            "likelihood": (1.0, likelihood.sum() / max(likelihood.numel(), 1)),
            "quantization": (
                self.params.quantization_weight,
                drift.sum() / (len(rows) * max(len(anchors), 1)) if in_paper else drift.mean(),
            ),
        }

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Store the outputs of the batch."""
        (modality,) = step.modalities
        store_batch(modality, outputs, batch, state)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Draw the stored items for the next epoch."""
        draw_anchors(data, state, self.params.anchors)

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return a warning if the codes collapse, unless classes are balanced."""
        remedy = "Raise the learning rate, or use the preset recommended."
        return collapse_warnings(terms, balanced=self.params.class_balance, remedy=remedy)
