"""Deep pairwise-supervised hashing: one network learns codes whose inner products follow the labels.

The outputs of a batch are compared with the *stored* outputs of all of the silo's items, so that a step covers ``B x N``
pairs with only ``B`` forward passes.

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

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from silohash.base.types import MethodCard, Modality, Terms
from silohash.methods.local.base import SiloState, TowerMethod, signs
from silohash.methods.local.losses import quantization
from silohash.methods.local.supervised.dcmh import StoredPairs, StoredPairsParams

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
        "Similar and dissimilar pairs have the same total weight, except in the preset paper. A silo of which less than 5 % "
        "or more than 95 % of the pairs are similar has the weights of that limit.",
        "Similarity can be graded by the share of common labels.",
        "The weight of the quantization loss in the preset paper is that of the authors' code for CIFAR-10.",
    ),
)


class DPSHParams(StoredPairsParams):
    """Parameters of DPSH."""

    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the quantization loss (eta in the paper), which pulls real-valued outputs toward their signs, at
    least 0."""
    similarity: Literal["any", "graded"] = "any"
    """Similarity of two items: `any` (1 if they share a label, else 0) or `graded` (the cosine of their label
    vectors)."""
    normalization: Literal["mean", "paper"] = "mean"
    """`mean`: losses are means over pairs and bits. `paper`: sums divided by the number of stored items and the batch
    size."""


class DPSH(StoredPairs[DPSHParams], TowerMethod[DPSHParams]):
    """Deep pairwise-supervised hashing, for each modality separately."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"quantization_weight": 10.0, "class_balance": False, "normalization": "paper", "anchors": 1_000_000},
    }
    remedy = "Raise the learning rate, or use the preset recommended."
    relaxation = "identity"

    def tower_terms(self, modality: Modality, codes: Tensor, rows: Tensor, labels: Tensor, state: SiloState) -> Terms:
        """Return the likelihood and quantization terms of one network. Source: the objective."""
        anchors = state.buffers["anchors"]
        anchors = anchors[state.buffers[f"has_{modality}"][anchors]]
        stored = state.buffers[modality][anchors]
        likelihood = self.likelihood(codes, stored, rows, anchors, state)
        drift = quantization(codes, signs(codes.detach()))
        in_paper = self.params.normalization == "paper"
        return {
            "likelihood": (1.0, likelihood.sum() / max(likelihood.numel(), 1)),
            "quantization": (
                self.params.quantization_weight,
                drift.sum() / (len(rows) * max(len(anchors), 1)) if in_paper else drift.mean(),
            ),
        }
