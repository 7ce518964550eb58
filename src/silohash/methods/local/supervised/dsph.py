"""DSPH: the code of an item should point to the learned proxies of its classes, and away from those of other classes.

The two modalities are compared with the same C proxies instead of with each other. Proxies alone do not tell apart items
with several labels that have none in common, so these are pushed apart in pairs.

=========  ==========================  ==================================================================
paper      code                        meaning
=========  ==========================  ==================================================================
x, y       ``outputs.code``            relaxed codes of images and texts in (-1, 1), (B, K)
P          ``outputs.extra``           proxies, one learned vector per class, (C, K)
g          `cosines`                   cosines of codes and proxies, (B, C)
zeta       ``margin``                  cosine from which on a code is pushed away (`separation_margin`)
alpha      ``pair_weight``             weight of the pairs without a common label
=========  ==========================  ==================================================================

The proxy loss is `attraction` + `repulsion` of g and labels ``(B, C)``, for each modality. The pair loss is
`unrelated_pairs` of the cosines of codes ``(B, N)``, for each pair of modalities.
"""

import math
from collections.abc import Mapping
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloState
from silohash.methods.local.label_networks import CLASS_VECTORS, ClassVectorNet
from silohash.methods.local.losses import cosines, labeled_codes, mean_where, modality_pairs
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


def attraction(alike: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of 1 - g ``(B, C)`` over the items and their own classes ``(B, C)``, a scalar.

    Source: Huo et al., the first part of the proxy loss.
    """
    return mean_where(1.0 - alike, labels)


def repulsion(alike: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, g - zeta) ``(B, C)`` over the items and the classes that they lack, a scalar.

    Source: Huo et al., the second part of the proxy loss.
    """
    return mean_where(F.relu(alike - margin), 1.0 - labels)


def unrelated_pairs(alike: Tensor, labels: Tensor, others: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, cosine - zeta) over pairs of items with several labels but none in common, a scalar.

    The cosines are ``(B, N)``, the labels ``(B, C)`` and ``(N, C)``.

    Source: Huo et al., the pair loss.
    """
    several = (labels.sum(1) > 1).unsqueeze(1) & (others.sum(1) > 1)
    return mean_where(F.relu(alike - margin), (several & (labels @ others.T == 0)).to(alike.dtype))


@cache
def code_distance(codes: int, bits: int) -> int:
    """Return the largest even Hamming distance that a linear code with enough codewords can have by Griesmer's bound.

    A linear code with 2^k codewords of K bits and the smallest distance d needs ``sum_{i<k} ceil(d / 2^i) <= K``. The number
    of codewords is rounded up to such a power, at least 2. The bound would be wrong by 1 for some odd distances.

    Source: Griesmer, "A Bound for Error-Correcting Codes", IBM Journal of Research and Development, 1960.

    Example:
        >>> code_distance(80, 16), code_distance(80, 64)
        (6, 32)
    """
    dimensions = max(1, (codes - 1).bit_length())
    fitting = (
        distance for distance in range(bits - bits % 2, 0, -2)
        if sum(-(-distance // 2**i) for i in range(dimensions)) <= bits
    )  # fmt: skip
    return next(fitting, 0)


def separation_margin(classes: int, bits: int) -> float:
    """Return 1 - 2 d / K, the cosine of two codes of K bits at the `code_distance` d of as many codes as classes.

    Source: Huo et al., "Deep Semantic-Aware Proxy Hashing for Multi-Label Cross-Modal Retrieval". Its authors look up d in
    a table of linear codes.

    Example:
        >>> separation_margin(24, 16), separation_margin(80, 16)
        (0.0, 0.25)
    """
    return 1.0 - 2.0 * code_distance(classes, bits) / bits


class DSPH(LocalMethod[DSPHParams]):
    """Proxies of classes, for one or two modalities."""

    traits = Traits(needs_labels=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers that end in a tanh, and one proxy per class.

        Each starts as a normal vector with variance 2 / C, as by He's initialization of a (C, K) matrix by its outputs.
        """
        net = ClassVectorNet(spec, bits, relaxation="tanh")
        net.add_vectors(torch.randn(bits) * math.sqrt(2.0 / spec.classes) for _ in range(spec.classes))
        return net

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the attraction and repulsion of the proxies, and the loss on pairs without a common label."""
        codes, labels = labeled_codes(outputs, batch)
        if not codes:
            return {}
        proxies = outputs.extra[CLASS_VECTORS]
        margin = self.margin(proxies)
        alike = {m: cosines(values, proxies) for m, values in codes.items()}
        return self.proxy_terms(alike, labels, margin) | self.pair_terms(codes, labels, margin)

    def margin(self, proxies: Tensor) -> float:
        """Return zeta for proxies ``(C, K)``."""
        return separation_margin(*proxies.shape) if self.params.margin is None else self.params.margin

    def proxy_terms(self, alike: Mapping[Modality, Tensor], labels: Mapping[Modality, Tensor], margin: float) -> Terms:
        """Return the terms on the cosines of codes and proxies, ``(B, C)`` per modality, summed over the modalities."""
        return {
            "attraction": (1.0, torch.stack([attraction(alike[m], labels[m]) for m in alike]).sum()),
            "repulsion": (1.0, torch.stack([repulsion(alike[m], labels[m], margin) for m in alike]).sum()),
        }

    def pair_terms(self, codes: Mapping[Modality, Tensor], labels: Mapping[Modality, Tensor], margin: float) -> Terms:
        """Return the terms on pairs of codes, ``(B, K)`` per modality, summed over the pairs of modalities."""
        if not self.params.pair_weight:
            return {}
        pairs = [
            unrelated_pairs(cosines(codes[one], codes[other]), labels[one], labels[other], margin)
            for one, other in modality_pairs(codes)
        ]
        return {"unrelated": (self.params.pair_weight, torch.stack(pairs).sum())}
