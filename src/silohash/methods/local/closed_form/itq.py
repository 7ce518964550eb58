"""Iterative quantization: directions of the vectors, rotated so that their signs lose least. There are no gradient steps.

==========  ====================  =========================================================================
paper       code                  meaning
==========  ====================  =========================================================================
X           `base.scaled`         centered vectors, (n, D)
W           ``directions``        directions, (D, R), one column per bit if the vectors have as many dimensions
R           `rotation`            rotation of the projected vectors, (K, K)
V R         outputs               projected and rotated vectors, (n, K)
B           signs of the outputs  codes, (n, K)
rho         ``penalty``           ridge penalty of the canonical directions
==========  ====================  =========================================================================

The directions need second moments of the vectors only, and each step of the rotation one sum of products, ``(K, K)``. The
totals over silos therefore give the codes of the pooled items.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from silohash.base.errors import UnsuitableFeatures
from silohash.base.types import MODALITIES, Arrays, MethodCard, Modality, ReadArrays
from silohash.methods.local.base import MethodParams
from silohash.methods.local.closed_form import base

CARD = MethodCard(
    key="itq",
    title="Iterative Quantization: A Procrustean Approach to Learning Binary Codes",
    authors="Yunchao Gong, Svetlana Lazebnik",
    venue="CVPR",
    year=2011,
    link="https://doi.org/10.1109/CVPR.2011.5995432",
    summary="Project vectors onto their main directions, and rotate these so that their signs lose least, without labels.",
    differs_from_paper=(
        "The canonical directions are those of images and texts. The paper has labels in place of texts.",
        "If the vectors have fewer dimensions than the code has bits, the directions are spread over all bits by the first "
        "rotation. The paper has at most as many bits as dimensions.",
        "The first rotation follows from the initial parameters.",
        "The preset recommended has 18 steps of the rotation, the mean variance as the ridge penalty, and directions "
        "weighted by squared correlations. The preset paper has 50 steps, 0.0001 times the mean variance, and correlations.",
    ),
)


class ITQParams(MethodParams):
    """Parameters of iterative quantization."""

    directions: Literal["canonical", "principal"] = "canonical"
    """`canonical`: the directions in which images and texts of a pair agree most. `principal`: the directions in which all
    vectors vary most, for networks that place images and texts in one space. A model of one modality always takes these."""
    penalty: float = Field(default=1.0, gt=0)
    """Ridge penalty of the canonical directions, as a multiple of the mean variance, greater than 0. Lower values fit the
    pairs more closely, and need more of them."""
    power: float = Field(default=2.0, ge=0)
    """Exponent of the correlations by which the canonical directions are multiplied, at least 0. At 0 all count the same."""
    iterations: int = Field(default=18, ge=0)
    """Number of steps of the rotation, at least 0. At 0 the rotation is random. Each step is one round of `fedsums`."""


class ITQ(base.FromSums[ITQParams]):
    """Iterative quantization, for one or two modalities."""

    presets: ClassVar = {"recommended": {}, "paper": {"penalty": 1e-4, "power": 1.0, "iterations": 50}}

    def exchanges(self, bits: int) -> int:
        """Return the number of exchanges: the means, the second moments, and the steps of the rotation."""
        return 2 + self.params.iterations

    def sums(self, views: base.Views, received: ReadArrays, exchange: int) -> Arrays:
        """Return the sums for the means, then the joint second moments, and then those for a step of the rotation."""
        steps = (base.scale_sums, partial(base.joint_moments, received), partial(sign_products, received))
        return base.total(map(steps[min(exchange, 2)], views.blocks()))

    def solve(self, solution: base.Solution, sums: ReadArrays, exchange: int) -> base.Solution:
        """Compute the means, then the directions with their first rotation, and then a step of the rotation.

        Raises:
            UnsuitableFeatures: If principal directions are wanted of images and texts that are not in one space.
        """
        if exchange == 0:
            return replace(solution, sent=base.scales(sums, standardize=False))
        if exchange == 1:
            directions = self._directions(sums, base.code_length(solution.params))
            first = first_rotation(solution.params, next(iter(directions.values())).shape[1])
            projections = {modality: found @ first for modality, found in directions.items()}
        else:
            turn = rotation(sums["rotation"])
            projections = {m: solution.sent[f"{m}/projection"] @ turn for m in base.there(solution.sent)}
        params, sent = dict(solution.params), dict(solution.sent)
        for modality, projection in projections.items():
            params |= base.hash_layer(projection, sent, modality, params) if projection.any() else {}
            sent[f"{modality}/projection"] = projection
        return base.Solution(params, sent)

    def _directions(self, sums: ReadArrays, bits: int) -> dict[Modality, base.Matrix]:
        """Return the directions of each modality, ``(D, R)``, from totals of `base.joint_moments`.

        They are zero for a modality whose vectors are all equal or missing.
        """
        moments = {modality: sums[f"{modality}/moments"] for modality in base.there(sums)}
        both, width = sums.get("both/moments"), len(moments.get("image", ()))
        components = min(bits, *map(len, moments.values()))
        if both is not None:
            parts = {"image": both[:width, :width], "text": both[width:, width:]}
            moments = {modality: own + parts[modality] for modality, own in moments.items()}
        if both is not None and self.params.directions == "canonical" and all(own.any() for own in moments.values()):
            return canonical_maps(
                both, width, components=components, penalty=self.params.penalty, power=self.params.power
            )
        return principal_directions(moments, components)


def principal_directions(moments: Mapping[Modality, base.Matrix], components: int) -> dict[Modality, base.Matrix]:
    """Return the directions in which the vectors of all modalities vary most, ``(D, R)``; zero for equal vectors.

    Raises:
        UnsuitableFeatures: If the second moments ``(D, D)`` of images and texts differ in shape.
    """
    varied = {modality: own for modality, own in moments.items() if own.any()}
    if len({*map(len, varied.values())}) > 1:
        raise UnsuitableFeatures(
            f"Images have vectors of {len(varied['image'])} dimensions and texts of {len(varied['text'])}, so there are no "
            'common principal directions. Use local.directions = "canonical".'
        )
    main = np.linalg.eigh(sum(varied.values()))[1][:, ::-1][:, :components] if varied else None
    return {
        modality: main if modality in varied and main is not None else np.zeros((len(own), components))
        for modality, own in moments.items()
    }


def first_rotation(params: ReadArrays, components: int) -> base.Matrix:
    """Return the first rows of a random rotation, ``(components, K)``, which follows from the initial parameters."""
    weight = next(params[f"{m}.hash.weight"] for m in MODALITIES if f"{m}.hash.weight" in params).astype(np.float64)
    return np.asarray(np.linalg.qr(weight[:, : len(weight)])[0].T[:components])


def inverse_root(covariance: base.Matrix, penalty: float) -> base.Matrix:
    """Return (C + penalty * mean of the diagonal of C * I)^(-1/2), ``(D, D)``; zeros if the diagonal is zero."""
    ridge = penalty * float(np.trace(covariance)) / max(len(covariance), 1)
    if ridge <= 0.0:
        return np.zeros_like(covariance)
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T)


def canonical_maps(
    covariance: base.Matrix, width: int, *, components: int, penalty: float, power: float
) -> dict[Modality, base.Matrix]:
    """Return maps of centered images and texts to canonical variables, each times a power of its correlation.

    The variables of a pair agree more, the higher their correlation is. Variables whose correlation is low differ between
    an image and its text for the most part, and are reduced. The covariance, or a multiple of it, is that of the stacked
    vectors of pairs, first the image with its ``width``. The ridge penalty of both is a multiple of their mean variance.

    Returns:
        ``(D, R)`` for images and ``(E, R)`` for texts, with at most R = ``components`` columns.

    Source: Hotelling, "Relations Between Two Sets of Variates", Biometrika 1936; the power of the correlations is that of
    Gong et al., "A Multi-View Embedding Space for Modeling Internet Images, Tags, and Their Semantics", IJCV 2014.
    """
    image = inverse_root(covariance[:width, :width], penalty)
    text = inverse_root(covariance[width:, width:], penalty)
    left, correlations, right = np.linalg.svd(image @ covariance[:width, width:] @ text, full_matrices=False)
    weights = correlations[:components] ** power
    return {"image": image @ left[:, :components] * weights, "text": text @ right[:components].T * weights}


def sign_products(received: ReadArrays, block: base.Views) -> Arrays:
    """Return ``rotation``, the sum over items and modalities of v sign(v)^T, ``(K, K)``, for outputs v."""
    outputs = [base.scaled(block, received, m) @ received[f"{m}/projection"] for m in block.vectors]
    return {"rotation": np.asarray(sum(v.T @ np.where(v >= 0, 1.0, -1.0) for v in outputs))}


def rotation(sums: base.Matrix) -> base.Matrix:
    """Return the rotation Q after which outputs are closest to their present signs, ``(K, K)``.

    Of all rotations, it minimizes the sum of the squared distances between the rotated outputs and the signs. It follows
    from the sum of v sign(v)^T over all outputs v.

    Source: Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to Learning Binary Codes", CVPR 2011.
    """
    left, _, right = np.linalg.svd(sums)
    return np.asarray(left @ right)
