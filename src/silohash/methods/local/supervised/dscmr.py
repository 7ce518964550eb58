"""Deep supervised cross-modal retrieval: images and texts share their last layers, which a linear classifier supervises.

Inner products of the representations follow the labels, and the two representations of an item should be equal. They are
real numbers, whose deviations from the mean of the modality have the signs of the code.

=========  =========================  ==================================================================
paper      code                       meaning
=========  =========================  ==================================================================
u, v       ``Outputs.extra``          representations of images and texts, ``(B, K)``, under `COMMON`
P u        ``Outputs.extra``          predicted labels, ``(B, C)``, under `LABELS`
y          ``batch.labels``           labels, ``(B, C)``
Gamma      ``scale * cosines``        half the cosines
S          `similarity`               1 where two items share a label
J1         `distance` to the labels   classification
J2         `pair_likelihood`          similarity within each modality and between the two
J3         `distance` of u and v      equal representations of an item
alpha      ``similarity_weight``      weight of J2
beta       ``pair_weight``            weight of J3
=========  =========================  ==================================================================

The symbols are those of the authors' code, whose objective is J1 + alpha J2 + beta J3.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MODALITIES, MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local import base
from silohash.methods.local.losses import modality_pairs, pair_likelihood, similarity
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet, TowerOutputs

CARD = MethodCard(
    key="dscmr",
    title="Deep Supervised Cross-Modal Retrieval",
    authors="Liangli Zhen, Peng Hu, Xu Wang, Dezhong Peng",
    venue="CVPR",
    year=2019,
    link="https://github.com/penghu-cs/DSCMR",
    summary="Represent images and texts by shared layers over both towers, supervised by a linear classifier; real-valued.",
    supervised=True,
    differs_from_paper=(
        "The method is real-valued. A bit of the code is the sign of a number's deviation from its mean over the training "
        "items of the modality. The means are part of the model, and they are averaged over silos like parameters.",
        "The common representation has as many numbers as the code has bits, instead of 1,024.",
        "The hidden layers have the width of the model's feature layer, instead of 2,048.",
        "Two items are similar if they share a label. The authors' code takes the number of shared labels, which exceeds 1 "
        "for items with several labels.",
        "The likelihood compares deviations from the mean of the batch, and multiplies their cosines by 4, except in the "
        "preset paper.",
        "Training items are shuffled. The authors' code does not shuffle them.",
        "No epoch is chosen on the test items. The authors' code keeps the epoch that is best on them.",
    ),
)

COMMON, LABELS = "common", "labels"
"""Representations ``(B, K)`` and predicted labels ``(B, C)`` in `Outputs.extra`, under ``MODALITY/NAME``."""

SMALLEST = 1e-12
"""Added below square roots, whose gradient at 0 is infinite."""


class DSCMRParams(base.MethodParams):
    """Parameters of DSCMR."""

    similarity_weight: float = Field(default=1.0, ge=0)
    """Weight of the likelihood of shared labels (alpha in the authors' code), at least 0."""
    pair_weight: float = Field(default=0.1, ge=0)
    """Weight of the distance between the two representations of an item (beta in the authors' code), at least 0."""
    scale: float = Field(default=4.0, gt=0)
    """Factor on the cosines in the likelihood, positive. In the paper it is 0.5, which hardly separates similar pairs from
    others."""
    centered: bool = True
    """Compare deviations from the mean representation of the modality in the batch in the likelihood, as the signs of such
    deviations are the codes. If false, representations are compared as they are, as in the paper."""

    without_effect: ClassVar = base.MethodParams.switched_off("scale", "centered", similarity_weight=(0.0,))


def distance(values: Tensor, others: Tensor) -> Tensor:
    """Return the mean Euclidean distance of the rows ``(B, D)``, a scalar; 0 without rows.

    Source: Zhen et al., authors' code, J1 and J3. The paper prints a norm of the whole matrix.
    """
    return ((values - others).square().sum(1) + SMALLEST).sqrt().sum() / max(len(values), 1)


def unit_rows(values: Tensor) -> Tensor:
    """Return the rows ``(B, K)`` scaled to length 1. Rows of zeros remain."""
    return values * (values.square().sum(1, keepdim=True) + SMALLEST).rsqrt()


class CommonNet(HashNet):
    """Towers that share the hash layer and a linear classifier over its outputs.

    The shared layers are ``shared.hash`` and ``shared.classifier``. The buffer ``mean`` of a tower is the mean
    representation of its modality, which is subtracted from the outputs of the hash layer.
    """

    def __init__(self, spec: ModelSpec, bits: int) -> None:
        super().__init__(spec, bits)
        width = base.shared_width(spec, CARD.key)
        for modality in self.modalities:
            tower = self.tower(modality)
            tower.hash = nn.Identity()
            tower.register_buffer("mean", torch.zeros(bits))
        layers = {"hash": nn.Linear(width, bits), "classifier": nn.Linear(bits, spec.classes)}
        self.shared = nn.ModuleDict(layers)

    def run_tower(self, modality: Modality, values: Tensor, batch: PairBatch) -> TowerOutputs:
        """Return the features ``(B, H)`` and the deviations of the representations from their mean ``(B, K)``."""
        tower = self.tower(modality)
        feature = tower.features(values)
        return TowerOutputs(feature, self.shared["hash"](feature).float() - self.mean(modality))

    def mean(self, modality: Modality) -> Tensor:
        """Return the mean representation of a modality, ``(K,)``."""
        return self.tower(modality).get_buffer("mean")

    def extras(self, outputs: Outputs) -> dict[str, Tensor]:
        """Return representations and predicted labels."""
        extra: dict[str, Tensor] = {}
        for modality, deviations in outputs.logit.items():
            common = deviations + self.mean(modality)
            extra[f"{modality}/{COMMON}"] = common
            extra[f"{modality}/{LABELS}"] = self.shared["classifier"](common).float()
        return extra


class DSCMR(base.LocalMethod[DSCMRParams]):
    """Deep supervised cross-modal retrieval, for one or two modalities."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"similarity_weight": 1e-3, "pair_weight": 0.1, "scale": 0.5, "centered": False},
    }
    traits = Traits(needs_labels=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers that share their last layers."""
        return CommonNet(spec, bits)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: base.SiloState) -> Terms:
        """Return the classification, likelihood and pair terms, J1 to J3."""
        labels = base.labels_of(batch)
        held = {m: batch.has(m) for m in outputs.logit if bool(batch.has(m).any())}
        if not held:
            return {}
        known = {m: rows & labels.any(1) for m, rows in held.items()}
        errors = [distance(outputs.extra[f"{m}/{LABELS}"][rows], labels[rows]) for m, rows in known.items()]
        terms: Terms = {
            "class": (1.0, torch.stack(errors).sum()),
            "likelihood": (self.params.similarity_weight, self._likelihood(outputs, labels, held)),
        }
        both = batch.has_image & batch.has_text
        if len(held) > 1 and bool(both.any()):
            image, text = (outputs.extra[f"{modality}/{COMMON}"][both] for modality in MODALITIES)
            terms["pair"] = (self.params.pair_weight, distance(image, text))
        return terms

    def _likelihood(self, outputs: Outputs, labels: Tensor, held: Mapping[Modality, Tensor]) -> Tensor:
        values = {m: outputs.extra[f"{m}/{COMMON}"][rows] for m, rows in held.items()}
        if self.params.centered:
            values = {m: common - common.mean(0) for m, common in values.items()}
        found = []
        for one, other in modality_pairs(held):
            similar = similarity(labels[held[one]], labels[held[other]], graded=False)
            # Each pair scales its own rows: shared ones would add gradients in another order and change figures.
            first, second = unit_rows(values[one]), unit_rows(values[other])
            found.append(pair_likelihood(first, second, similar, scale=self.params.scale).mean())
        return torch.stack(found).sum()

    def end_epoch(self, model: nn.Module, data: base.SiloData, state: base.SiloState) -> None:
        """Set the means to those of the silo's items; a modality that the silo does not have keeps its mean."""
        network = base.unadapted(model)
        assert isinstance(network, CommonNet)  # noqa: S101  built above
        for modality, deviations in base.outputs_of(model, data, part="logit").items():
            # Outputs are deviations from the old mean, so that their mean is the difference of the new one.
            network.mean(modality).add_(deviations.sum(0) / max(data.count(modality), 1))
