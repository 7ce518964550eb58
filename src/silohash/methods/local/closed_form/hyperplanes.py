"""Random hyperplanes: each bit is the side of a random hyperplane on which a vector lies. Nothing is learned but the mean.

The code of a vector u has the bits [r . u >= 0]. The normal vectors r, ``hash.weight``, are drawn when the network is built.
Two vectors at the angle theta differ in each bit with probability theta / pi.
"""

import numpy as np
from torch import nn

from silohash.base.types import Arrays, MethodCard, ReadArrays
from silohash.methods.local.base import MethodParams
from silohash.methods.local.closed_form import base
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="hyperplanes",
    title="Similarity Estimation Techniques from Rounding Algorithms",
    authors="Moses S. Charikar",
    venue="STOC",
    year=2002,
    link="https://doi.org/10.1145/509907.509965",
    summary="Take the sides of random hyperplanes as bits, a baseline that does not learn, for searches within a modality.",
    differs_from_paper=(
        "Images and texts have different hyperplanes, so searches across modalities find items by chance.",
        "The hyperplanes pass through the mean vector of the modality. In the paper they pass through the origin.",
    ),
)


class Hyperplanes(base.FromSums[MethodParams]):
    """Random hyperplanes, for one or two modalities."""

    traits = Traits(modalities_comparable=False)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build hash layers with weights from the standard normal distribution."""
        model = super().build(spec, bits)
        for name, values in model.named_parameters():
            if name.endswith(".hash.weight"):
                nn.init.normal_(values)
        return model

    def exchanges(self, bits: int) -> int:
        """Return 1, the exchange of the sums for the means."""
        return 1

    def sums(self, views: base.Views, received: ReadArrays, exchange: int) -> Arrays:
        """Return the sums for the means."""
        return base.total(map(base.scale_sums, views.blocks()))

    def solve(self, solution: base.Solution, sums: ReadArrays, exchange: int) -> base.Solution:
        """Move the hyperplanes to the means."""
        scales, params = base.scales(sums, standardize=False), dict(solution.params)
        for modality in base.there(sums):
            if scales[f"{modality}/factor"].any():
                weight = params[f"{modality}.hash.weight"].T.astype(np.float64)
                params |= base.hash_layer(weight, scales, modality, params)
        return base.Solution(params)
