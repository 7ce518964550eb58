"""Deep Cauchy hashing: a heavy-tailed distribution concentrates similar items within a small Hamming radius.

The probability that two items are similar falls with the distance of their codes as in a Cauchy distribution. Its gradient
is large where similar items are near the border of the ball, where that of a sigmoid of the inner product is flat.

=========  =======================  ============================================================
paper      code                     meaning
=========  =======================  ============================================================
h          ``outputs.code``         relaxed codes in (-1, 1), ``(B, K)``
d          `distances`              distance of relaxed codes in bits, K / 2 (1 - cosine)
s          `similarity`             1 where two items share a label
w          `weights`                number of pairs over the number of pairs of the same kind
gamma      ``radius * K``           scale of the Cauchy distribution, in bits
lambda     ``quantization_weight``  weight of the quantization loss
=========  =======================  ============================================================

The objective is `cauchy_loss`, weighted by `weights`, + lambda * `cauchy_quantization`.
"""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Terms
from silohash.methods.local.base import MethodParams, SiloData, SiloState, TowerMethod, labels_of
from silohash.methods.local.losses import cosines, mean_of_pairs, mean_similarity, pair_weights, similarity

CARD = MethodCard(
    key="dch",
    title="Deep Cauchy Hashing for Hamming Space Retrieval",
    authors="Yue Cao, Mingsheng Long, Bin Liu, Jianmin Wang",
    venue="CVPR",
    year=2018,
    link="https://openaccess.thecvf.com/content_cvpr_2018/html/Cao_Deep_Cauchy_Hashing_CVPR_2018_paper.html",
    summary="Concentrate items that share a label within a small Hamming radius, by a Cauchy loss on pairs of a batch.",
    supervised=True,
    differs_from_paper=(
        "The network is that of the run.",
        "Texts, which the paper does not have, train a tower of their own with the same loss. Codes of images and texts "
        "are not compared in training, so a search across modalities does not work.",
        "The scale gamma is proportional to the code length. The authors' code has 20 bits for all lengths. The presets "
        "paper and authors_code have 0.4 of the code length, which is about 20 of 48 bits.",
        "A hundredth of the half code length is added to distances, so that the loss of dissimilar items with equal codes "
        "is finite.",
        "Pairs are weighted by the share of similar pairs among the silo's items, from 5 to 95 %, not among those of the "
        "batch.",
    ),
)

SMALLEST_COSINE_GAP = 0.01
"""Added to 1 - cosine."""

SMALLEST_SQUARE = 0.001
"""Added to squared Euclidean distances, as in the authors' code."""

Distance = Literal["cosine", "euclidean"]
Weighting = Literal["both", "similar"]
Quantization = Literal["cauchy", "squared"]


class DCHParams(MethodParams):
    """Parameters of DCH."""

    radius: float = Field(default=0.5, gt=0)
    """Scale of the Cauchy distribution as a share of the code length (gamma / K), positive. Lower values concentrate
    similar items within a smaller radius."""
    distance: Distance = "cosine"
    """Distance of relaxed codes: `cosine` (in bits) or `euclidean` (squared, four per bit)."""
    weighting: Weighting = "both"
    """Weights of pairs: `both` gives similar and dissimilar pairs the same total weight. `similar` raises the weight of
    similar pairs alone."""
    quantization: Quantization = "cauchy"
    """Quantization loss: `cauchy` (of the distance to the nearest code) or `squared` (per bit)."""
    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the quantization loss (lambda in the paper), which pulls relaxed codes toward their signs, at least 0."""

    without_effect: ClassVar = {"quantization": {"quantization_weight": (0.0,)}}


def distances(codes: Tensor, others: Tensor, kind: Distance) -> Tensor:
    """Return the distances between all rows of codes ``(B, K)`` and ``(N, K)``, ``(B, N)``, which are positive.

    ``cosine`` is K / 2 (1.01 - cosine), which is about the Hamming distance, and ``euclidean`` is the squared Euclidean
    distance + 0.001.

    Source: Cao et al., for ``cosine``, and the authors' code, for ``euclidean``.
    """
    if kind == "cosine":
        return 0.5 * codes.shape[1] * (1.0 + SMALLEST_COSINE_GAP - cosines(codes, others))
    return (codes.unsqueeze(1) - others.unsqueeze(0)).square().sum(2) + SMALLEST_SQUARE


def cauchy_loss(distance: Tensor, similar: Tensor, scale: float) -> Tensor:
    """Return the negative log-likelihood of each pair's similarity, ``(B, N)``.

    It is s ln(d / gamma) + ln(1 + gamma / d), computed as ln(1 + d / gamma) for similar and ln(1 + gamma / d) for dissimilar
    pairs.

    Source: Cao et al., the Cauchy cross-entropy loss, without the weights.
    """
    return similar * (distance / scale).log1p() + (1.0 - similar) * (scale / distance).log1p()


def cauchy_quantization(codes: Tensor, scale: float) -> Tensor:
    """Return ln(1 + d / gamma) with d the cosine distance in bits of each item's absolute outputs from ones, ``(B,)``.

    Source: Cao et al., the Cauchy quantization loss.
    """
    bits = codes.shape[1]
    cosine = F.normalize(codes.abs(), dim=1).sum(1) / math.sqrt(bits)
    return (0.5 * bits * (1.0 - cosine).clamp(min=0.0) / scale).log1p()


def weights(similar: Tensor, share: float, kind: Weighting) -> Tensor:
    """Return the weights of pairs, ``(B, N)``: the number of all pairs over that of the pairs of the same kind.

    The share is that of similar pairs among all pairs of the silo. With ``similar``, dissimilar pairs have the weight 1.
    """
    both = 2.0 * pair_weights(similar, share)
    return both if kind == "both" else torch.where(similar > 0, both, 1.0)


class DCH(TowerMethod[DCHParams]):
    """Deep Cauchy hashing, for each modality separately."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"radius": 0.4},
        "authors_code": {
            "radius": 0.4,
            "distance": "euclidean",
            "weighting": "similar",
            "quantization": "squared",
            "quantization_weight": 0.0,
        },
    }

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the share of similar pairs."""
        state.buffers = {"share": mean_similarity(labels_of(data), graded=False)}

    def tower_terms(self, modality: Modality, codes: Tensor, rows: Tensor, labels: Tensor, state: SiloState) -> Terms:
        """Return the Cauchy and quantization terms of one network. Source: the objective."""
        params, scale = self.params, self.params.radius * codes.shape[1]
        similar = similarity(labels, labels, graded=False)
        losses = cauchy_loss(distances(codes, codes, params.distance), similar, scale)
        weighted = losses * weights(similar, float(state.buffers["share"]), params.weighting)
        terms: Terms = {"cauchy": (1.0, mean_of_pairs(weighted))}
        if params.quantization_weight:
            squared = params.quantization == "squared"
            drift = (codes.abs() - 1.0).square() if squared else cauchy_quantization(codes, scale)
            terms["quantization"] = (params.quantization_weight, drift.mean())
        return terms
