"""Class proxies: one learned vector per class, near which the codes of the items of the class should lie.

A proxy is a parameter of a single class (`silohash.methods.local.base.class_group`). Silos weigh it by their number of
items of the class when they average parameters, so silos without any do not change it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from silohash.base.types import Modality, Outputs, PairBatch
from silohash.methods.local.base import class_group
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet

PROXIES = "proxies"
"""Name of the proxies among the extra outputs, ``(C, K)``."""


class ProxyNet(HashNet):
    """Towers that end in a tanh, and one proxy per class.

    Each proxy starts as a normal vector with variance 2 / C, as by He's initialization of a (C, K) matrix by its number of
    outputs.
    """

    def __init__(self, spec: ModelSpec, bits: int) -> None:
        super().__init__(spec, bits, relaxation="tanh")
        self.classes = spec.classes
        for number in range(spec.classes):
            start = torch.randn(bits) * math.sqrt(2.0 / spec.classes)
            self.register_parameter(class_group(number), nn.Parameter(start))

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Return the outputs of the towers. For items with labels, the extra outputs contain the proxies."""
        outputs = super().forward(batch, modalities)
        if batch.labels is None:
            return outputs
        proxies = torch.stack([self.get_parameter(class_group(number)) for number in range(self.classes)])
        return replace(outputs, extra={**outputs.extra, PROXIES: proxies})


@cache
def code_distance(codes: int, bits: int) -> int:
    """Return the largest even Hamming distance that a linear code with enough codewords can have by Griesmer's bound.

    A linear code with 2^k codewords of K bits and the smallest distance d needs ``sum_{i<k} ceil(d / 2^i) <= K``. Its
    codewords can be as many classes. The bound is not always reached, but it is with the lengths and numbers of classes
    that the literature uses. It would be wrong by 1 for some odd distances, so only even ones are considered.

    Args:
        codes: Number of codewords, at least 1. It is rounded up to a power of two, at least 2.
        bits: Code length K.

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
