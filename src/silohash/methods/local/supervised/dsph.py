"""DSPH: the code of an item should point to the learned proxies of its classes, and away from those of other classes.

An item is compared with C proxies instead of with all other items, and the two modalities are compared with the same proxies
instead of with each other. Proxies alone do not tell apart items with several labels that have none in common, so these are
pushed apart in pairs.

=========  ==========================  ==================================================================
paper      code                        meaning
=========  ==========================  ==================================================================
x, y       ``outputs.code``            relaxed codes of images and texts in (-1, 1), (B, K)
P          ``outputs.extra``           proxies, one learned vector per class, (C, K) (`ProxyNet`)
g          `cosines`                   cosines of codes and proxies, (B, C)
zeta       ``margin``                  cosine from which on a code is pushed away (`separation_margin`)
alpha      ``pair_weight``             weight of the pairs without a common label
=========  ==========================  ==================================================================

The proxy loss is `attraction` + `repulsion`, for each modality. The pair loss is `unrelated_pairs`, for each pair of
modalities.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloState
from silohash.methods.local.proxies import PROXIES, ProxyNet, separation_margin
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="dsph",
    title="Deep Semantic-Aware Proxy Hashing for Multi-Label Cross-Modal Retrieval",
    authors="Yadong Huo, Qibing Qin, Jiangyan Dai, Lei Wang, Wenfeng Zhang, Lei Huang, Chengduan Wang",
    venue="IEEE Transactions on Circuits and Systems for Video Technology",
    year=2024,
    link="https://ieeexplore.ieee.org/document/10149001",
    summary="Pull codes toward the learned proxies of their classes, and push items without a common label apart.",
    supervised=True,
    sends=("number of items per class",),
    differs_from_paper=(
        "The towers are those of the run. The authors fine-tune a pretrained CLIP with a head of one layer, and their code "
        "reports the epoch that is best on the test queries.",
        "Proxies and towers share the optimizer of the run. The authors train proxies with SGD (learning rate 0.02, "
        "momentum 0.9, weight decay 5e-4) and towers with an Adam for BERT.",
        "The margin follows from Griesmer's bound on linear codes. The authors read it from a table of linear codes, "
        "which gives the same values for all lengths and data sets of the paper.",
        "Silos average the proxy of a class by their number of items of the class. The paper is not federated.",
    ),
)


class DSPHParams(MethodParams):
    """Parameters of DSPH."""

    margin: float | None = Field(default=None, ge=-1, le=1)
    """Cosine (zeta in the paper) above which a code is pushed away from a proxy or another code, from -1 to 1. At 1 nothing
    is pushed away. By default it is that of codes at the largest distance that as many codes as classes can have."""
    pair_weight: float = Field(default=0.8, ge=0)
    """Weight of the loss on pairs of items without a common label (alpha in the paper), at least 0. Only items with several
    labels count. At 0 codes are only compared with proxies."""


def cosines(codes: Tensor, others: Tensor) -> Tensor:
    """Return the cosines of all rows, ``(B, N)``; 0 for rows of zeros.

    Args:
        codes: ``(B, K)``.
        others: ``(N, K)``.
    """
    return F.normalize(codes, dim=1) @ F.normalize(others, dim=1).T


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where the mask of the same shape is 1, a scalar; 0 if it is 0 everywhere."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def attraction(alike: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of 1 - g over the items and their own classes, a scalar.

    Args:
        alike: ``(B, C)``, cosines g of codes and proxies.
        labels: ``(B, C)`` multi-hot.

    Source: Huo et al., the first part of the proxy loss.
    """
    return masked_mean(1.0 - alike, labels)


def repulsion(alike: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, g - zeta) over the items and the classes that they do not have, a scalar.

    Args:
        alike: ``(B, C)``, cosines g of codes and proxies.
        labels: ``(B, C)`` multi-hot.
        margin: ``zeta``.

    Source: Huo et al., the second part of the proxy loss.
    """
    return masked_mean(F.relu(alike - margin), 1.0 - labels)


def unrelated_pairs(alike: Tensor, labels: Tensor, others: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, cosine - zeta) over pairs of items with several labels but none in common, a scalar.

    Args:
        alike: ``(B, N)``, cosines of codes.
        labels: ``(B, C)`` multi-hot, of the rows.
        others: ``(N, C)`` multi-hot, of the columns.
        margin: ``zeta``.

    Source: Huo et al., the pair loss.
    """
    several = (labels.sum(1) > 1).unsqueeze(1) & (others.sum(1) > 1)
    return masked_mean(F.relu(alike - margin), (several & (labels @ others.T == 0)).to(alike.dtype))


class DSPH(LocalMethod):
    """Proxies of classes, for one or two modalities."""

    Params = DSPHParams
    params: DSPHParams
    traits = Traits(needs_labels=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers that end in a tanh, and the proxies."""
        return ProxyNet(spec, bits)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the attraction and repulsion of the proxies, and the loss on pairs without a common label."""
        assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
        held = {m: batch.has(m) for m in outputs.code if batch.has(m).any()}
        if not held:
            return {}
        codes = {m: outputs.code[m][rows] for m, rows in held.items()}
        labels = {m: batch.labels[rows] for m, rows in held.items()}
        proxies = outputs.extra[PROXIES]
        margin = self.margin(proxies)
        alike = {m: cosines(values, proxies) for m, values in codes.items()}
        return self.proxy_terms(alike, labels, margin) | self.pair_terms(codes, labels, margin)

    def margin(self, proxies: Tensor) -> float:
        """Return zeta for proxies ``(C, K)``."""
        return separation_margin(*proxies.shape) if self.params.margin is None else self.params.margin

    def proxy_terms(self, alike: Mapping[Modality, Tensor], labels: Mapping[Modality, Tensor], margin: float) -> Terms:
        """Return the terms on codes and proxies, summed over the modalities.

        Args:
            alike: ``(B, C)``, cosines of codes and proxies, per modality.
            labels: ``(B, C)`` multi-hot, per modality.
            margin: ``zeta``.
        """
        return {
            "attraction": (1.0, torch.stack([attraction(alike[m], labels[m]) for m in alike]).sum()),
            "repulsion": (1.0, torch.stack([repulsion(alike[m], labels[m], margin) for m in alike]).sum()),
        }

    def pair_terms(self, codes: Mapping[Modality, Tensor], labels: Mapping[Modality, Tensor], margin: float) -> Terms:
        """Return the terms on pairs of codes, summed over the pairs of modalities.

        Args:
            codes: ``(B, K)`` relaxed codes per modality.
            labels: ``(B, C)`` multi-hot, per modality.
            margin: ``zeta``.
        """
        if not self.params.pair_weight:
            return {}
        pairs = [
            unrelated_pairs(cosines(codes[one], codes[other]), labels[one], labels[other], margin)
            for one, other in modality_pairs(codes)
        ]
        return {"unrelated": (self.params.pair_weight, torch.stack(pairs).sum())}


def modality_pairs(codes: Mapping[Modality, Tensor]) -> list[tuple[Modality, Modality]]:
    """Return the pairs of modalities to compare: each with itself, and the two with each other."""
    names = list(codes)
    return [(one, other) for number, one in enumerate(names) for other in names[number:]]
