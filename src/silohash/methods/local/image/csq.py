"""Central similarity quantization: every bit of an item's code is classified as the bit of the hash center of its class.

Hash centers are far apart, fixed before the training, and the same in all silos, which derive them from the seed of the run.
An item with several labels has the majority of their centers as its center.

=========  =======================  ==================================================================
paper      code                     meaning
=========  =======================  ==================================================================
h          ``outputs.code``         relaxed codes in (-1, 1), ``(B, K)``
c          ``buffers["centers"]``   hash centers of the classes, ``(C, K)``
c'         `item_centers`           semantic hash centers of the items, ``(B, K)``
L_C        `central_similarity`     binary cross-entropy of each bit
L_Q        `gaps`                   distance of the relaxed codes from -1 and 1
lambda     ``quantization_weight``  weight of L_Q
=========  =======================  ==================================================================

The objective is `central_similarity` + lambda * `gaps`. The hash centers are those of `hash_centers` in
``methods/local/class_codes.py``.
"""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Terms
from silohash.methods.local.base import MethodParams, SiloData, SiloState, TowerMethod, federation_of, signs
from silohash.methods.local.class_codes import hash_centers, random_code
from silohash.methods.local.losses import mean_where
from silohash.methods.traits import Traits
from silohash.models.towers import Adapted, HashNet

CARD = MethodCard(
    key="csq",
    title="Central Similarity Quantization for Efficient Image and Video Retrieval",
    authors="Li Yuan, Tao Wang, Xiaopeng Zhang, Francis EH Tay, Zequn Jie, Wei Liu, Jiashi Feng",
    venue="CVPR",
    year=2020,
    link="https://arxiv.org/abs/1908.00347",
    summary="Pull the code of each item to the fixed hash center of its class. The centers are far apart.",
    supervised=True,
    differs_from_paper=(
        "The network is that of the run.",
        "Texts, which the paper does not have, train a tower of their own with the same centers.",
        "Code lengths that are not powers of two have Hadamard matrices of Paley, such as 12, 20, 24 and 48 bits.",
        "Rows and columns of the Hadamard matrix have random signs, so that no bit is constant over the classes.",
        "More classes than twice the number of bits have greedily chosen distant words instead of random ones.",
        "Items without a label do not train.",
        "The logarithm of the hyperbolic cosine in the preset paper is taken from memory. The authors' code has squares.",
        "The weight of the quantization loss in the presets paper and authors_code is that of the authors' code for "
        "ResNet-50. For AlexNet it is 0.001 or 0.0001 there.",
    ),
)


class CSQParams(MethodParams):
    """Parameters of CSQ."""

    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the quantization loss (lambda in the paper), which pulls relaxed codes toward -1 and 1, at least 0."""
    quantization: Literal["squared", "log-cosh"] = "squared"
    """Quantization loss per bit: `squared` or `log-cosh` (nearly linear for large values) of the distance from -1 or 1."""

    without_effect: ClassVar = {"quantization": {"quantization_weight": (0.0,)}}


def item_centers(labels: Tensor, centers: Tensor, ties: Tensor) -> Tensor:
    """Return the hash center of each item, ``(B, K)``: bit by bit the majority of the centers of its labels.

    The code ``ties`` ``(K,)`` decides ties. Items without labels get all of it.

    Source: Yuan et al., multi-label data.
    """
    sums = labels @ centers
    return torch.where(sums == 0, ties, signs(sums))


def central_similarity(codes: Tensor, targets: Tensor) -> Tensor:
    """Return the binary cross-entropy of each bit of h and c', ``(B, K)``: -ln((1 + c' h) / 2), at most 100.

    Source: Yuan et al., the central similarity loss.
    """
    return F.binary_cross_entropy(0.5 * (codes + 1.0), 0.5 * (targets + 1.0), reduction="none")


def gaps(codes: Tensor, kind: Literal["squared", "log-cosh"]) -> Tensor:
    """Return the quantization loss of each bit, ``(B, K)``: (|h| - 1)^2 or ln cosh(|h| - 1).

    Source: Yuan et al., authors' code, for ``squared``.
    """
    distance = 1.0 - codes.abs()
    # ln cosh x = x + softplus(-2 x) - ln 2, without the large powers of cosh.
    return distance.square() if kind == "squared" else distance + F.softplus(-2.0 * distance) - math.log(2.0)


class CSQ(TowerMethod[CSQParams]):
    """Central similarity quantization, for each modality separately, with the same centers."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"quantization_weight": 0.05, "quantization": "log-cosh"},
        "authors_code": {"quantization_weight": 0.05},
    }
    traits = Traits(needs_labels=True, record_terms=True)

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the hash centers, and the code that decides ties."""
        assert isinstance(model, HashNet | Adapted)  # noqa: S101  built above
        federation = federation_of(data, CARD.key)
        counts, seed = federation.counts, federation.seed
        fixed = {
            "centers": hash_centers(len(counts), model.bits, seed=seed), "ties": random_code(model.bits, seed=seed),
        }  # fmt: skip
        state.buffers = {n: torch.tensor(code, dtype=counts.dtype, device=counts.device) for n, code in fixed.items()}

    def tower_terms(self, modality: Modality, codes: Tensor, rows: Tensor, labels: Tensor, state: SiloState) -> Terms:
        """Return the central similarity and quantization terms of one network, over items with a label."""
        labeled = labels.sum(1) > 0
        targets = item_centers(labels, state.buffers["centers"], state.buffers["ties"])
        return {
            "center": (1.0, mean_where(central_similarity(codes, targets).mean(1), labeled)),
            "quantization": (
                self.params.quantization_weight, mean_where(gaps(codes, self.params.quantization).mean(1), labeled),
            ),
        }  # fmt: skip
