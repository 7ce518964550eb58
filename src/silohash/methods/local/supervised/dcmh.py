"""Deep cross-modal hashing: two networks learn codes whose inner products follow the labels.

Each network is compared with the *stored* outputs of the other modality for all of the silo's items, so that a step covers
``B x N`` pairs with only ``B`` forward passes.

=========  =======================  ==================================================
paper      code                     meaning
=========  =======================  ==================================================
F, G       ``buffers["image"]``,    stored outputs of the image and the text network,
           ``buffers["text"]``      ``(N, K)``
B          ``buffers["code"]``      ``sign(F + G)``, ``(N, K)``, target of both networks
S          `similarity`             1 where two items share a label
Theta      ``0.5 * F @ G.T``        half the inner products
gamma      ``quantization_weight``  weight of the quantization loss
eta        ``balance_weight``       weight of the bit-balance loss
=========  =======================  ==================================================

Equation (2), which is equation (1) with one code for both modalities, is `pair_likelihood` + `quantization` + `balance`.
`pair_contrast` is an optional addition that is not in the paper.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn
from typing_extensions import TypeVar

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local import base, losses
from silohash.methods.local.stored_outputs import draw_anchors, joint_codes, partner_outputs, store_batch
from silohash.methods.traits import EpochRules, Traits

CARD = MethodCard(
    key="dcmh",
    title="Deep Cross-Modal Hashing",
    authors="Qing-Yuan Jiang, Wu-Jun Li",
    venue="CVPR",
    year=2017,
    link="https://arxiv.org/abs/1602.02255",
    summary="Fit the inner products of image and text codes to shared labels, using stored outputs of all items.",
    supervised=True,
    keeps=("outputs of both networks for all of its items, within a round",),
    differs_from_paper=(
        "Image and text steps alternate per batch instead of per epoch.",
        "Stored outputs are computed by the networks at the start of every round. In the authors' code they start as noise.",
        "An epoch is a pass over the data, and the optimizers keep their state for a round, except in the preset paper. "
        "There, each batch is drawn from all items, as in the paper, and the optimizers start with a new state in every "
        "epoch. The authors use gradient descent without momentum, which has no state. With Adam and the weights of the "
        "paper, codes stay near zero if the state is kept. The order of the steps and the start of the stored outputs "
        "made no such difference.",
        "Weights start with PyTorch's defaults. The authors draw those of the hash layers and of the text network with a "
        "standard deviation of 0.01, from which codes stay near zero for longer.",
        "Losses are means over pairs and bits, which suits silos of all sizes, except in the preset paper.",
        "Bits are balanced over each batch instead of over all items, except in the preset paper.",
        "Similar and dissimilar pairs have the same total weight, except in the preset paper. A silo of which less than 5 % "
        "or more than 95 % of the pairs are similar has the weights of that limit.",
        "Similarity is graded by the share of common labels, except in the preset paper.",
        "An optional contrastive loss ranks an item's own partner higher, and costs a few points of mAP by labels.",
    ),
)


class StoredPairsParams(base.MethodParams):
    """Parameters that all methods have which compare a batch with stored outputs by shared labels."""

    similarity: Literal["any", "graded"] = "graded"
    """Similarity of two items: `any` (1 if they share a label, else 0) or `graded` (the cosine of their label
    vectors)."""
    class_balance: bool = True
    """Give similar and dissimilar pairs the same total weight, regardless of how many there are of each. A silo of which
    less than 5 % or more than 95 % of the pairs are similar has the weights of that limit."""
    anchors: int = Field(default=1024, ge=1)
    """Number of stored items that each batch is compared with, at least 1. A new random subset is drawn each epoch."""


StoredParams = TypeVar("StoredParams", bound=StoredPairsParams, default=StoredPairsParams)


class DCMHParams(StoredPairsParams):
    """Parameters of DCMH."""

    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the quantization loss, which pulls real-valued outputs toward their signs, at least 0."""
    balance_weight: float = Field(default=0.1, ge=0)
    """Weight of the bit-balance loss, which pulls the mean of each bit toward zero, at least 0."""
    normalization: Literal["mean", "paper"] = "mean"
    """`mean`: losses are means over pairs and bits. `paper`: sums divided by the silo's number of items and the
    batch size."""
    pair_weight: float = Field(default=0.0, ge=0)
    """Weight of a contrastive loss between the two codes of the same item, at least 0. At 0 it is off, as in the
    paper."""
    pair_temperature: float = Field(default=0.2, gt=0)
    """Temperature of the contrastive loss, positive. Lower values emphasize the closest wrong partners."""
    fresh_optimizers: bool = False
    """Reset the state of the optimizers at the start of each epoch instead of each round. The authors' optimizer has no
    state."""
    independent_batches: bool = False
    """Draw each batch from all items, as in the paper, instead of passing over the items once per epoch."""


class StoredPairs(base.LocalMethod[StoredParams]):
    """A base of methods that compare a batch with the stored outputs of other items by shared labels.

    A subclass calls `likelihood` in its terms, and states in `remedy` what the user can do if the codes collapse.
    """

    traits = Traits(needs_labels=True)
    remedy: ClassVar[str] = ""

    def init_state(self, model: nn.Module, data: base.SiloData, state: base.SiloState) -> None:
        """Store the labels, the share of similar pairs, and the outputs of all items."""
        labels = base.labels_of(data)
        share = losses.mean_similarity(labels, graded=self.graded)
        state.buffers = {"labels": labels, "share": share, **self.label_outputs(model, labels)}
        base.store_all(model, data, state)
        self.end_epoch(model, data, state)

    def label_outputs(self, model: nn.Module, labels: Tensor) -> dict[str, Tensor]:
        """Return what a network of labels ``(N, C)`` gives for all items, stored as well, by name; by default nothing."""
        return {}

    @property
    def graded(self) -> bool:
        """Whether similarity is the cosine of the label vectors instead of 0 or 1 (`similarity`)."""
        return self.params.similarity == "graded"

    def likelihood(self, codes: Tensor, stored: Tensor, rows: Tensor, anchors: Tensor, state: base.SiloState) -> Tensor:
        """Return the `pair_likelihood` of a batch's rows and the anchors, ``(B, N)``, weighted if classes are balanced."""
        labels = state.buffers["labels"]
        similar = losses.similarity(labels[rows], labels[anchors], graded=self.graded)
        likelihood = losses.pair_likelihood(codes, stored, similar)
        if not self.params.class_balance:
            return likelihood
        return likelihood * losses.pair_weights(similar, float(state.buffers["share"]))

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: base.SiloState) -> None:
        """Store the outputs of the batch."""
        store_batch(outputs, batch, state)

    def end_epoch(self, model: nn.Module, data: base.SiloData, state: base.SiloState) -> None:
        """Draw the stored items for the next epoch."""
        draw_anchors(data, state, self.params.anchors)

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return a warning if the codes collapse: outputs near zero give every pair a ``likelihood`` of ln 2.

        There is none if similar and dissimilar pairs have the same total weight.
        """
        if self.params.class_balance or abs(terms.get("likelihood", 0.0) - math.log(2)) > 1e-4:
            return []
        return [
            f"The codes have collapsed: the likelihood per pair is ln 2, as if every output were zero. {self.remedy}"
        ]


class DCMH(StoredPairs[DCMHParams], base.TowerMethod[DCMHParams]):
    """Deep cross-modal hashing, for one or two modalities.

    With one modality, the network is compared with its own stored outputs.
    """

    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "quantization_weight": 1.0, "balance_weight": 1.0, "similarity": "any", "class_balance": False,
            "normalization": "paper", "pair_weight": 0.0, "fresh_optimizers": True, "independent_batches": True,
            "anchors": 1_000_000,
        },
    }  # fmt: skip
    remedy = "Lower balance_weight, raise the learning rate, or use the preset recommended."
    relaxation = "identity"

    def __init__(self, params: DCMHParams) -> None:
        self.params = params
        rules = EpochRules(fresh_optimizers=params.fresh_optimizers, independent_batches=params.independent_batches)
        self.traits = replace(self.traits, epochs=rules)

    def tower_terms(
        self, modality: Modality, codes: Tensor, rows: Tensor, labels: Tensor, state: base.SiloState
    ) -> Terms:
        """Return the likelihood, quantization and balance terms of one network. Source: equation (2)."""
        anchors = state.buffers["anchors"]
        stored = partner_outputs(state, modality, anchors)
        likelihood = self.likelihood(codes, stored, rows, anchors, state)
        drift = losses.quantization(codes, state.buffers["code"][rows])
        if self.params.normalization == "mean":
            terms = self._terms(likelihood.mean(), drift.mean(), losses.balance(codes).mean())
            if self.params.pair_weight and len(rows) > 1:
                partners = partner_outputs(state, modality, rows)
                contrast = losses.pair_contrast(codes, partners, self.params.pair_temperature)
                terms["pair"] = (self.params.pair_weight, contrast.mean())
            return terms
        pairs = len(anchors) * len(rows)
        rest = state.buffers[modality].sum(0) - state.buffers[modality][rows].sum(0)
        return self._terms(likelihood.sum() / pairs, drift.sum() / pairs, (rest + codes.sum(0)).square().sum() / pairs)

    def _terms(self, likelihood: Tensor, drift: Tensor, imbalance: Tensor) -> Terms:
        return {
            "likelihood": (1.0, likelihood),
            "quantization": (self.params.quantization_weight, drift),
            "balance": (self.params.balance_weight, imbalance),
        }

    def end_epoch(self, model: nn.Module, data: base.SiloData, state: base.SiloState) -> None:
        """Set ``B = sign(F + G)`` and draw the stored items for the next epoch."""
        state.buffers["code"] = joint_codes(state)
        super().end_epoch(model, data, state)
