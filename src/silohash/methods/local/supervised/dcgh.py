"""DCGH: DSPH with pairs that share labels, and items that lie evenly between the proxies of their classes.

The cosine of two codes should be at least that of their label vectors, and the distances of an item from the proxies of its
classes should be equal.

=========  ==========================  ==================================================================
paper      code                        meaning
=========  ==========================  ==================================================================
x, y       ``outputs.code``            relaxed codes of images and texts in (-1, 1), (B, K)
P          ``outputs.extra``           proxies, one learned vector per class, (C, K)
L          `similarity`                cosines of label vectors, (B, N)
alpha      ``pair_weight``             weight of the pairs without a common label (as in DSPH)
beta       ``related_weight``          weight of the pairs with a common label
=========  ==========================  ==================================================================

The class-guided loss is DSPH's with a margin of 0, plus `related_pairs` for each pair of modalities. The variance constraint
is `proxy_variance`, for each modality.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor

from silohash.base.types import MethodCard, Modality, Terms
from silohash.methods.local.losses import cosines, mean_where, modality_pairs, similarity
from silohash.methods.local.supervised.dsph import DSPH, DSPHParams

CARD = MethodCard(
    key="dcgh",
    title="Deep Class-Guided Hashing for Multi-Label Cross-Modal Retrieval",
    authors="Hao Chen, Lei Zhu, Xinghui Zhu",
    venue="Applied Sciences",
    year=2025,
    link="https://arxiv.org/abs/2410.15387",
    summary="DSPH, with codes of items with common labels as close as their labels, and even distances from their proxies.",
    supervised=True,
    sends=("number of items per class",),
    differs_from_paper=(
        "The towers are those of the run. The authors fine-tune a pretrained CLIP with a head of one layer, and their code "
        "reports the epoch that is best on the test queries.",
        "Proxies and towers share the optimizer of the run. The authors train proxies with SGD (learning rate 0.02, "
        "momentum 0.9, weight decay 5e-4) and towers with an Adam for BERT.",
        "The variance is taken over an item's own classes. The authors' code counts the other classes as 0 (the preset "
        "authors_code), which also pulls items with one label toward their proxy.",
        "Silos average the proxy of a class by their number of items of the class. The paper is not federated.",
    ),
)


class DCGHParams(DSPHParams):
    """Parameters of DCGH."""

    margin: float | None = Field(default=0.0, ge=-1, le=1)
    """Cosine above which a code is pushed away from the proxy of another class, or from a code without a common label, from
    -1 to 1. At 1 nothing is pushed away."""
    related_weight: float = Field(default=0.05, ge=0)
    """Weight of the loss on pairs of items with a common label (beta in the paper), at least 0. At 0 it is off."""
    variance_weight: float = Field(default=1.0, ge=0)
    """Weight of the variance of an item's distances from its proxies, at least 0. At 0 it is off."""
    variance_over: Literal["labels", "classes"] = "labels"
    """What the variance is taken over: `labels` (the classes of an item) or `classes` (all classes, where those that the
    item does not have count as 0)."""

    without_effect: ClassVar = {"variance_over": {"variance_weight": (0.0,)}}


def related_pairs(alike: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    """Return the mean of max(0, L - cosine) over pairs of items with a common label, of cosines ``(B, N)``, a scalar.

    Source: Chen et al., the pair loss of similar items.
    """
    wanted = similarity(labels, others, graded=True)
    return mean_where(F.relu(wanted - alike), (wanted > 0).to(alike.dtype))


def proxy_variance(alike: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over items of the variance of 1 - g ``(B, C)`` over an item's own classes, a scalar.

    The variance of items with one label is 0. Items without labels are left out.

    Source: Chen et al., the variance constraint.
    """
    count = labels.sum(1, keepdim=True).clamp(min=1)
    mean = (alike * labels).sum(1, keepdim=True) / count
    variances = ((alike - mean).square() * labels).sum(1) / count.squeeze(1)
    return mean_where(variances, (labels.sum(1) > 0).to(alike.dtype))


def padded_variance(alike: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over items of the variance over all classes of 1 - g, or of 0 for classes that an item does not have.

    The cosines g of codes and proxies and the labels are ``(B, C)``.

    Source: the authors' code, which takes the unbiased variance.
    """
    distances = (1.0 - alike) * labels
    centered = distances - distances.mean(1, keepdim=True)
    return (centered.square().sum(1) / max(labels.shape[1] - 1, 1)).mean()


class DCGH(DSPH):
    """DSPH with pairs that share labels and even distances from proxies, for one or two modalities."""

    Params = DCGHParams
    params: DCGHParams
    presets: ClassVar = {"recommended": {}, "paper": {}, "authors_code": {"variance_over": "classes"}}

    def proxy_terms(self, alike: Mapping[Modality, Tensor], labels: Mapping[Modality, Tensor], margin: float) -> Terms:
        """Return the terms of DSPH and the variance."""
        terms = super().proxy_terms(alike, labels, margin)
        if self.params.variance_weight:
            variance = proxy_variance if self.params.variance_over == "labels" else padded_variance
            total = torch.stack([variance(alike[m], labels[m]) for m in alike]).sum()
            terms["variance"] = (self.params.variance_weight, total)
        return terms

    def pair_terms(self, codes: Mapping[Modality, Tensor], labels: Mapping[Modality, Tensor], margin: float) -> Terms:
        """Return the term of DSPH and that of pairs with a common label."""
        terms = super().pair_terms(codes, labels, margin)
        if self.params.related_weight:
            pairs = [
                related_pairs(cosines(codes[one], codes[other]), labels[one], labels[other])
                for one, other in modality_pairs(codes)
            ]
            terms["related"] = (self.params.related_weight, torch.stack(pairs).sum())
        return terms
