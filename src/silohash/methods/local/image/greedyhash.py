"""Greedy hashing: a linear classifier reads the binary codes, and gradients pass through the sign unchanged.

A penalty keeps the outputs near -1 and 1, so that treating the sign as the identity in the backward pass is close.

=========  =======================  ==================================================================
paper      code                     meaning
=========  =======================  ==================================================================
H          ``outputs.code``         outputs of the network, ``(B, K)``
B          `straight_through`       ``sign(H)`` in the forward pass, the identity in the backward pass
W          ``outputs.extra``        weights of the classifier, ``(C, K)``, one parameter per class
y          `class_targets`          target distribution over the classes, ``(B, C)``
alpha      ``quantization_weight``  weight of the penalty
p          3                        exponent of the penalty
=========  =======================  ==================================================================

The paper's objective is `target_entropy` of softmax(B W^T) + alpha * `cubic_gap`.
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloState, labels_of
from silohash.methods.local.label_networks import CLASS_VECTORS, ClassVectorNet
from silohash.methods.local.losses import straight_through, target_entropy
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="greedyhash",
    title="Greedy Hash: Towards Fast Optimization for Accurate Hash Coding in CNN",
    authors="Shupeng Su, Chao Zhang, Kai Han, Yonghong Tian",
    venue="NeurIPS",
    year=2018,
    link="https://papers.nips.cc/paper/2018/hash/13f3cf8c531952d72e5847c4183e6910-Abstract.html",
    summary="Classify binary codes by a linear layer, with gradients that pass through the sign unchanged.",
    supervised=True,
    sends=("number of items per class",),
    differs_from_paper=(
        "The network is that of the run.",
        "Texts, which the paper does not have, train a tower of their own with the same classifier.",
        "An item with several labels has all of them as targets, with equal shares. In the paper's data, each item has one "
        "label.",
        "Silos average the classifier's weights of a class by their number of items of it. Silos without the class do not "
        "change them.",
        "The weight of the penalty is that of the authors' code for CIFAR-10. For ImageNet it is 1 there.",
    ),
)


class GreedyHashParams(MethodParams):
    """Parameters of GreedyHash."""

    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the penalty that keeps outputs near -1 and 1 (alpha in the paper), at least 0."""
    targets: Literal["all", "first"] = "all"
    """Targets of an item with several labels: `all` with equal shares, or the `first` of them alone."""


def class_targets(labels: Tensor, kind: Literal["all", "first"]) -> Tensor:
    """Return the target distributions over classes, ``(B, C)``; zero for items without labels.

    They are ``all`` labels with equal shares, or the ``first`` one.
    """
    if kind == "first":
        return labels * (labels.cumsum(1) == 1)
    return labels / labels.sum(1, keepdim=True).clamp(min=1)


def cubic_gap(values: Tensor) -> Tensor:
    """Return the cubed distances of the outputs' absolute values from 1, ``(B, K)``.

    Source: Su et al., the penalty with p = 3.
    """
    return (values.abs() - 1.0).abs().pow(3)


class GreedyHash(LocalMethod[GreedyHashParams]):
    """Greedy hashing, for one or two modalities with one classifier."""

    traits = Traits(needs_labels=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers without an activation after the hash layer, and the classifier, with one parameter per class."""
        net, limit = ClassVectorNet(spec, bits), 1.0 / math.sqrt(bits)
        net.add_vectors(torch.empty(spec.classes, bits).uniform_(-limit, limit))
        return net

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the classification and quantization terms, averaged over the modalities."""
        held = {m: batch.rows_with(m) for m in outputs.code if batch.has(m).any()}
        if not held:
            return {}
        classifier, targets = outputs.extra[CLASS_VECTORS], class_targets(labels_of(batch), self.params.targets)
        losses = [
            target_entropy(straight_through(outputs.code[m][rows]) @ classifier.T, targets[rows])
            for m, rows in held.items()
        ]
        # The codes are selected once per loss: a shared selection adds gradients in another order, which changes figures.
        gaps = [cubic_gap(outputs.code[m][rows]).mean() for m, rows in held.items()]
        return {
            "classification": (1.0, torch.stack(losses).mean()),
            "quantization": (self.params.quantization_weight, torch.stack(gaps).mean()),
        }
