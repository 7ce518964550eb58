"""Collective matrix factorization hashing: images and texts are factorized with common latent vectors, without labels.

A linear projection per modality approximates the latent vectors of the items, so that the signs of the projection of either
view are the code. All steps of the alternation have exact solutions, so the objective never increases.

==========  ==========================  ===================================================================
paper       code                        meaning
==========  ==========================  ===================================================================
X^(1), A    stacked vectors             centered vectors of the images, (D, n)
X^(2), Z    stacked vectors             centered vectors of the texts, (E, n)
V           `latent_maps`               latent vectors, (K, n), as linear maps of the stacked vectors
U_1, U_2    ``Factors.bases``           bases, (D, K)
P_1, P_2    ``Factors.projections``     projections, (K, D)
lambda      ``image_weight``            weight of the images' factorization
mu          ``projection_weight``       weight of the projections' errors
gamma       ``ridge``                   weight of the squared norms of all matrices
==========  ==========================  ===================================================================

`objective` is the paper's objective, and `factors_of` and `latent_maps` are its updates. The update of V is linear in the
vectors of an item, so the alternation needs their joint second moments only, and the latent vectors are never formed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field
from torch import nn

from silohash.base.types import Arrays, MethodCard, Modality, ReadArrays
from silohash.methods.local.base import MethodParams, SiloData
from silohash.methods.local.closed_form import base

CARD = MethodCard(
    key="cmfh",
    title="Collective Matrix Factorization Hashing for Multimodal Data",
    authors="Guiguang Ding, Yuchen Guo, Jile Zhou",
    venue="CVPR",
    year=2014,
    link="https://openaccess.thecvf.com/content_cvpr_2014/html/Ding_Collective_Matrix_Factorization_2014_CVPR_paper.html",
    summary="Factorize images and texts with common latent vectors, and project both onto them, without labels.",
    differs_from_paper=(
        "The alternation starts from random projections instead of random latent vectors, so that it needs second moments "
        "only.",
        "The mean of the latent vectors, which the paper subtracts, is 0 for centered vectors.",
        "Items that lack a modality are factorized with the other one.",
        "Each update is an exact minimum. The authors' code does not divide the ridge by the weights of the terms.",
        "The number of iterations is fixed. The authors' code stops when the objective falls by less than 0.01.",
        "The code of both views of an item (the tasks i2unified and t2unified) is the sign of the sum of both projections. "
        "In the preset paper, the projections have the scale of the latent vectors, and their sum approximates the latent "
        "vector whose signs the authors' code uses. In the preset recommended, each projection is divided by its deviation.",
    ),
)


class CMFHParams(MethodParams):
    """Parameters of collective matrix factorization."""

    image_weight: float = Field(default=0.5, gt=0, lt=1)
    """Weight of the factorization of the images, between 0 and 1. That of the texts is the rest."""
    projection_weight: float = Field(default=100.0, gt=0)
    """Weight of the squared distance between latent vectors and projections, greater than 0."""
    ridge: float = Field(default=0.01, gt=0)
    """Weight of the squared norms of bases, projections and latent vectors, greater than 0."""
    iterations: int = Field(default=100, ge=1)
    """Number of iterations of the alternation, at least 1."""
    preprocess: Literal["zscore", "center"] = "center"
    """`zscore`: divide the centered dimensions of the vectors by their standard deviations. `center`: only center them."""
    outputs: Literal["unit", "latent"] = "unit"
    """Scale of the projections, which matters for codes of both views. `latent`: that of the latent vectors, in which the
    view with more variance weighs more. `unit`: divide each projection by its standard deviation, so that both views weigh
    the same."""


Group: TypeAlias = tuple[Modality, ...]
"""The modalities that an item has. Its vectors are stacked in this order."""


@dataclass(frozen=True)
class Factors:
    """The matrices of the factorization, by modality.

    Attributes:
        bases: ``(D, K)``.
        projections: ``(K, D)``.
    """

    bases: Mapping[Modality, base.Matrix]
    projections: Mapping[Modality, base.Matrix]


@dataclass(frozen=True)
class Problem:
    """The factorization of some items, which are given by their second moments.

    Attributes:
        moments: Per group, ``(D_g, D_g)``, sum of the products of the stacked vectors of the items that have exactly the
            modalities of the group.
        weights: Weight of the factorization of each modality.
        projection_weight: Weight of the projections' errors.
        ridge: Weight of the squared norms.
    """

    moments: Mapping[Group, base.Matrix]
    weights: Mapping[Modality, float]
    projection_weight: float
    ridge: float

    def rows(self, group: Group, modality: Modality) -> slice:
        """Return the rows of a modality in the stacked vectors of a group."""
        sizes = [self.sizes[held] for held in group]
        start = sum(sizes[: group.index(modality)])
        return slice(start, start + self.sizes[modality])

    @property
    def sizes(self) -> dict[Modality, int]:
        """Number of dimensions of each modality."""
        return {modality: len(moments) for (modality, *others), moments in self.moments.items() if not others}

    def groups(self, modality: Modality) -> list[Group]:
        """Return the groups whose items have a modality."""
        return [group for group in self.moments if modality in group]

    def moments_of(self, modality: Modality) -> base.Matrix:
        """Return the second moments of a modality, ``(D, D)``."""
        parts = ((self.moments[group], self.rows(group, modality)) for group in self.groups(modality))
        return np.asarray(sum(moments[rows, rows] for moments, rows in parts))


@dataclass(frozen=True)
class Latent:
    """The latent vectors v = T x of all items, as far as the updates need them.

    Attributes:
        maps: Per group, the map T from stacked vectors to latent vectors, ``(K, D_g)``.
        cross: Per modality, the sum of x v^T over the items that have it, ``(D, K)``.
        moments: Per modality, the sum of v v^T over the items that have it, ``(K, K)``.
        squares: Sum of the squared norms of all latent vectors.
    """

    maps: Mapping[Group, base.Matrix]
    cross: Mapping[Modality, base.Matrix]
    moments: Mapping[Modality, base.Matrix]
    squares: float


def latent_of(problem: Problem, maps: Mapping[Group, base.Matrix]) -> Latent:
    """Return the sums over the latent vectors that linear maps ``(K, D_g)`` per group give."""
    products = {group: moments @ maps[group].T for group, moments in problem.moments.items()}
    squares = {group: maps[group] @ product for group, product in products.items()}
    groups = {m: problem.groups(m) for m in problem.sizes}
    cross = {m: np.asarray(sum(products[group][problem.rows(group, m)] for group in groups[m])) for m in groups}
    moments = {m: np.asarray(sum(squares[group] for group in groups[m])) for m in groups}
    return Latent(maps, cross, moments, float(sum(np.trace(square) for square in squares.values())))


def ridged_inverse(moments: base.Matrix, ridge: float) -> base.Matrix:
    """Return the inverse of moments ``(D, D)`` with a ridge on the diagonal."""
    return np.asarray(np.linalg.inv(moments + ridge * np.eye(len(moments))), np.float64)


def factors_of(problem: Problem, latent: Latent, inverses: Mapping[Modality, base.Matrix]) -> Factors:
    """Return the bases and projections that are optimal for the latent vectors.

    U = X V^T (V V^T + gamma / weight I)^-1 and P = V X^T (X X^T + gamma / mu I)^-1, whose inverses ``(D, D)`` are given.
    """
    shares = {m: problem.ridge / weight for m, weight in problem.weights.items()}
    bases = {m: latent.cross[m] @ ridged_inverse(latent.moments[m], share) for m, share in shares.items()}
    projections = {modality: latent.cross[modality].T @ inverse for modality, inverse in inverses.items()}
    return Factors(bases, projections)


def latent_maps(problem: Problem, factors: Factors) -> dict[Group, base.Matrix]:
    """Return the maps to the latent vectors that are optimal for the bases and projections.

    v = (sum of weight U^T U + (modalities mu + gamma) I)^-1 (sum of weight U^T x + mu P x), where the sums are over the
    modalities of the item.
    """
    maps: dict[Group, base.Matrix] = {}
    bits = next(iter(factors.projections.values())).shape[0]
    for group in problem.moments:
        curvature: base.Matrix = (problem.projection_weight * len(group) + problem.ridge) * np.eye(bits)
        pulls = []
        for modality in group:
            basis, projection = factors.bases[modality], factors.projections[modality]
            pulls.append(problem.weights[modality] * basis.T + problem.projection_weight * projection)
            curvature = curvature + problem.weights[modality] * (basis.T @ basis)
        maps[group] = np.asarray(np.linalg.solve(curvature, np.concatenate(pulls, axis=1)), np.float64)
    return maps


def objective(problem: Problem, factors: Factors, latent: Latent) -> float:
    """Return the value of the objective.

    It is the sum of weight |x - U v|^2, mu |v - P x|^2 and gamma |v|^2 over all items and their modalities, and of the
    squared norms of bases and projections times gamma.

    Source: Ding et al., the objective.
    """
    value = problem.ridge * latent.squares
    for modality, weight in problem.weights.items():
        basis, projection = factors.bases[modality], factors.projections[modality]
        inputs, cross, moments = problem.moments_of(modality), latent.cross[modality], latent.moments[modality]
        rebuilt = np.trace(inputs) - 2.0 * np.sum(basis * cross) + np.sum((basis.T @ basis) * moments)
        projected = np.trace(moments) - 2.0 * np.sum(projection.T * cross) + np.sum((projection @ inputs) * projection)
        norms = np.sum(basis**2) + np.sum(projection**2)
        value += weight * rebuilt + problem.projection_weight * projected + problem.ridge * norms
    return float(value)


def factorized(
    problem: Problem, start: Mapping[Modality, base.Matrix], iterations: int
) -> tuple[Mapping[Modality, base.Matrix], base.Matrix]:
    """Alternate between bases and projections on one side, and latent vectors on the other.

    The first latent vectors are the sums of the first projections ``start``, ``(K, D)`` per modality. The results are the
    projections and the value of the objective after each iteration, ``(iterations,)``.
    """
    share = problem.ridge / problem.projection_weight
    inverses = {m: ridged_inverse(problem.moments_of(m), share) for m in problem.sizes}
    latent = latent_of(problem, {g: np.concatenate([start[m] for m in g], axis=1) for g in problem.moments})
    objectives = []
    for _ in range(iterations):
        factors = factors_of(problem, latent, inverses)
        latent = latent_of(problem, latent_maps(problem, factors))
        objectives.append(objective(problem, factors, latent))
    return factors_of(problem, latent, inverses).projections, np.asarray(objectives)


def unit_variance(projection: base.Matrix, moments: base.Matrix, count: float) -> base.Matrix:
    """Return a projection whose values have the variance 1, ``(K, D)``. Rows without variance stay as they are.

    The moments ``(D, D)`` are those of the centered vectors that are projected.
    """
    deviation = np.sqrt(np.einsum("kd,de,ke->k", projection, moments, projection, optimize=True) / count)
    return np.asarray(projection / np.where(deviation > 0, deviation, 1.0)[:, np.newaxis])


BOTH: Group = ("image", "text")


class CMFH(base.FromSums[CMFHParams]):
    """Collective matrix factorization, for one or two modalities."""

    presets: ClassVar = {"recommended": {}, "paper": {"outputs": "latent"}}

    def fit(self, model: nn.Module, data: SiloData) -> dict[str, float]:
        """Compute the projections from the silo's pairs. The loss is the objective per item."""
        found = base.fit_from_sums(self, model, data).private.get("objectives", np.zeros(1))
        return {"loss": float(found[-1]) / len(data)}

    def exchanges(self, bits: int) -> int:
        """Return 2: the scales and the joint second moments."""
        return 2

    def sums(self, views: base.Views, received: ReadArrays, exchange: int) -> Arrays:
        """Return the sums for the scales, then the joint second moments."""
        return base.total(map(partial(base.joint_moments, received) if exchange else base.scale_sums, views.blocks()))

    def solve(self, solution: base.Solution, sums: ReadArrays, exchange: int) -> base.Solution:
        """Compute the scales, then the whole alternation."""
        if exchange == 0:
            counts = {f"{m}/count": sums[f"{m}/count"] for m in base.there(sums)}
            return replace(
                solution, sent=base.scales(sums, standardize=self.params.preprocess == "zscore"), private=counts
            )
        problem = self._problem(sums)
        if not problem.moments:
            return solution
        start = {m: solution.params[f"{m}.hash.weight"].astype(np.float64) for m in problem.sizes}
        projections, objectives = factorized(problem, start, self.params.iterations)
        params = dict(solution.params)
        for modality, projection in projections.items():
            if self.params.outputs == "unit":
                count = max(float(solution.private[f"{modality}/count"]), 1.0)
                projection = unit_variance(projection, problem.moments_of(modality), count)
            params |= base.hash_layer(projection.T, solution.sent, modality, params)
        return base.Solution(params, solution.sent, {**solution.private, "objectives": objectives})

    def _problem(self, sums: ReadArrays) -> Problem:
        """Return the problem that joint second moments state. Modalities whose vectors are all equal are left out."""
        image = self.params.image_weight
        weights: dict[Modality, float] = {"image": image, "text": 1.0 - image}
        held = base.there(sums)
        both = np.asarray(sums.get("both/moments", np.zeros((0, 0))))
        width = len(sums["image/moments"]) if len(held) == len(BOTH) else 0
        parts: dict[Modality, base.Matrix] = {"image": both[:width, :width], "text": both[width:, width:]}
        varied = [m for m in held if sums[f"{m}/moments"].any() or parts[m].any()]
        moments: dict[Group, base.Matrix] = {(m,): sums[f"{m}/moments"] for m in varied}
        if len(varied) == len(BOTH):
            moments[BOTH] = both
        elif varied and both.any():
            moments[varied[0],] = moments[varied[0],] + parts[varied[0]]
        return Problem(moments, {m: weights[m] for m in varied}, self.params.projection_weight, self.params.ridge)
