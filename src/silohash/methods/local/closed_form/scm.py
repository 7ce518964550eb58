"""Semantic correlation maximization: one linear projection per modality, whose codes agree with the labels.

All bits at once are the leading singular vectors of a whitened correlation matrix (``variant = "orth"``). Bits that are
computed one after the other take into account how the signs of the earlier ones deviate from their outputs (``variant =
"seq"``). Both variants need the items only through sums, so silos can train the model of the pooled items exactly.

==========  ==========================  ====================================================================
paper       code                        meaning
==========  ==========================  ====================================================================
X, Y        `scaled`                    centered and scaled vectors, (n, D)
L~          `unit_rows`                 labels whose rows have length 1, (n, C)
S~          2 L~ L~^T - 1 1^T           similarity of items, between -1 and 1; never formed
C_xx, C_yy  ``MODALITY/moments``        X^T X and Y^T Y
C_xy        ``MODALITY/products``       X^T S~ Y; its second part is 0 for centered vectors
W_x, W_y    ``MODALITY/directions``     projections, (D, K)
==========  ==========================  ====================================================================

C_xy is kept as the product of two whitened matrices with few columns: the label products X^T L~ and Y^T L~, and for every
earlier bit X^T sgn(X w_x) and Y^T sgn(Y w_y), which the sequential method subtracts. `leading_pairs` solves the
generalized eigenvalue problem of `orth` for all bits, and that of `seq` for the next bit.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.linalg import cholesky, solve_triangular

from silohash.base.types import MODALITIES, Arrays, MethodCard, Modality, ReadArrays
from silohash.methods.local.base import MethodParams, linear_spec
from silohash.methods.local.closed_form import base
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="scm",
    title="Large-Scale Supervised Multimodal Hashing with Semantic Correlation Maximization",
    authors="Dongqing Zhang, Wu-Jun Li",
    venue="AAAI",
    year=2014,
    link="https://ojs.aaai.org/index.php/AAAI/article/view/8995",
    summary="Project images and texts linearly so that their codes agree with the labels, without gradient steps.",
    supervised=True,
    differs_from_paper=(
        "Similarities are those of all images with all texts, so items that lack one of them are used too.",
        "With one modality, the projection is computed as if the other modality had the same vectors.",
        "The ridge of the second moments is relative to their mean diagonal. The default of 0.3 is our choice. That of the "
        "preset paper equals the authors' 1e-6 for 1,000 items.",
        "Bits of `orth` beyond the rank of the correlation matrix are constant. The authors' code fills them with arbitrary "
        "singular vectors.",
        "If canonical correlation analysis has fewer directions than there are remaining bits, the last bits of `seq` are "
        "constant.",
    ),
)


class SCMParams(MethodParams):
    """Parameters of semantic correlation maximization."""

    variant: Literal["seq", "orth"] = "seq"
    """`seq`: compute the bits one after the other, each correcting the earlier ones. `orth`: compute all bits at once."""
    preprocess: Literal["zscore", "center"] = "zscore"
    """`zscore`: divide the centered dimensions of the vectors by their standard deviations. `center`: only center them."""
    ridge: float = Field(default=0.3, gt=0)
    """Ridge of the second moments, as a multiple of their mean diagonal, greater than 0. It limits the weight of dimensions
    that hardly vary."""
    after_rise: Literal["correlate", "continue"] = "correlate"
    """What `seq` does once a singular value exceeds that of the bit before. `correlate`: compute the remaining bits by
    canonical correlation analysis of the pairs, without labels. `continue`: go on as before."""


RANK_TOLERANCE = 1e-9
"""Singular values below this share of the largest are rounding errors."""

CONSTANT_SHARE = 1e-12
"""Smallest ridge of a modality whose vectors are all equal, so that its moments can be inverted."""


def unit_rows(labels: npt.NDArray[np.floating[Any]]) -> base.Matrix:
    """Return labels ``(n, C)`` with rows of length 1. Rows without a label stay 0."""
    length = np.linalg.norm(labels, axis=1, keepdims=True)
    return np.asarray(labels / np.where(length > 0, length, 1.0))


def leading_pairs(
    left: base.Matrix, right: base.Matrix, weights: base.Matrix, count: int
) -> tuple[base.Matrix, base.Matrix, base.Matrix]:
    """Return the leading singular values and vectors of ``left @ diag(weights) @ right.T``, without forming it.

    They are ``(k,)`` in descending order, ``(D, k)`` and ``(E, k)``, where k is ``count``. Pairs beyond the rank are zero.
    If ``right`` is the same array as ``left``, one modality takes the place of both. The product is then symmetric, and its
    largest eigenvalues count: a negative one would give the same items opposite codes.
    """
    left_basis, left_rest = np.linalg.qr(left)
    if right is left:
        values, found = np.linalg.eigh((left_rest * weights) @ left_rest.T)
        values, first, second, right_basis = values[::-1], found[:, ::-1], found[:, ::-1], left_basis
    else:
        right_basis, right_rest = np.linalg.qr(right)
        first, values, transposed = np.linalg.svd((left_rest * weights) @ right_rest.T, full_matrices=False)
        second = transposed.T
    rank = min(count, int((values > RANK_TOLERANCE * values.max(initial=0.0)).sum()))
    beyond = ((0, 0), (0, count - rank))
    return (
        np.pad(values[:rank], beyond[1]),
        np.pad(left_basis @ first[:, :rank], beyond),
        np.pad(right_basis @ second[:, :rank], beyond),
    )


def whitening(moments: base.Matrix, ridge: float) -> base.Matrix:
    """Return the lower Cholesky factor of moments ``(D, D)`` plus ``ridge`` times their mean diagonal on the diagonal."""
    added = max(ridge * float(np.diag(moments).mean()), CONSTANT_SHARE)
    return np.asarray(cholesky(moments + added * np.eye(len(moments)), lower=True))


def signs_of(outputs: base.Matrix) -> base.Matrix:
    """Return the signs with ``sign(0) = +1``."""
    return np.where(outputs >= 0, 1.0, -1.0)


def aligned(directions: Mapping[Modality, base.Matrix], params: ReadArrays) -> dict[Modality, base.Matrix]:
    """Return the directions ``(D, K)`` with the signs in which they agree with the hash layers that silos started from.

    The sign of a bit is arbitrary, but it must be the same for both modalities, and in all silos whose projections are
    averaged, which start from the same hash layers.
    """
    agreement = sum(np.einsum("dk,kd->k", w, params[f"{m}.hash.weight"]) for m, w in directions.items())
    return {modality: w * signs_of(np.asarray(agreement)) for modality, w in directions.items()}


def moments(received: ReadArrays, block: base.Views, *, paired: bool) -> Arrays:
    """Return the sums from which `whitened` starts, with the products of the pairs' vectors if they are ``paired``.

    Returns:
        Per modality, ``MODALITY/count`` ``()``, ``MODALITY/moments`` ``(D, D)`` and ``MODALITY/products`` ``(D, C)``, and
        ``paired`` ``(D, E)`` if there are two modalities.
    """
    labels, sums = unit_rows(block.labels), dict[str, np.ndarray]()
    values = {modality: base.scaled(block, received, modality) for modality in block.vectors}
    for modality, rows in values.items():
        sums[f"{modality}/count"] = np.asarray(float(block.held[modality].sum()))
        sums[f"{modality}/moments"] = rows.T @ rows
        sums[f"{modality}/products"] = rows.T @ labels
    if paired and len(values) == len(MODALITIES):
        sums["paired"] = values["image"].T @ values["text"]
    return sums


def sign_products(received: ReadArrays, block: base.Views) -> Arrays:
    """Return X^T sgn(X w) per modality, ``MODALITY/signs`` ``(D,)``, of the direction w that was sent."""
    sums: Arrays = {}
    for modality in block.vectors:
        rows, direction = base.scaled(block, received, modality), received.get(f"{modality}/direction")
        sums[f"{modality}/signs"] = (
            np.zeros(rows.shape[1]) if direction is None else rows.T @ signs_of(rows @ direction)
        )
    return sums


def whitened(sums: ReadArrays, ridge: float, bits: int) -> Arrays:
    """Return the whitened products from which the first bit is computed.

    A modality without items, or whose vectors are all equal, is left out.

    Returns:
        Per modality, ``MODALITY/whitening`` ``(D, D)``, ``MODALITY/products`` ``(D, C)``, ``MODALITY/directions``
        ``(D, 0)`` and ``MODALITY/count`` ``()``, and ``weights`` ``(C,)``, ``values`` ``(0,)`` and, if there are two
        modalities, ``paired`` ``(D, E)``.
    """
    private: Arrays = {}
    for modality in base.there(sums):
        if np.any(sums[f"{modality}/moments"]):
            factor = whitening(sums[f"{modality}/moments"], ridge)
            products = solve_triangular(factor, sums[f"{modality}/products"], lower=True)
            private |= {
                f"{modality}/whitening": factor,
                f"{modality}/products": products,
                f"{modality}/directions": np.zeros((len(factor), 0)),
                f"{modality}/count": sums[f"{modality}/count"],
            }
            private |= {"weights": np.full(products.shape[1], 2.0 * bits), "values": np.zeros(0)}
    if len(base.there(private)) == len(MODALITIES) and "paired" in sums:
        private["paired"] = sums["paired"]
    return private


def deflated(private: ReadArrays, sums: ReadArrays) -> Arrays:
    """Return the server's arrays after the part of the correlation that the last bit explains was subtracted."""
    found = dict(private)
    for modality in base.there(private):
        product = solve_triangular(private[f"{modality}/whitening"], sums[f"{modality}/signs"], lower=True)
        found[f"{modality}/products"] = np.column_stack([private[f"{modality}/products"], product])
    found["weights"] = np.append(private["weights"], -1.0)
    return found


def correlation(private: ReadArrays) -> Arrays:
    """Return whitened products whose leading pairs are the directions of canonical correlation analysis."""
    image, text = (private[f"{modality}/whitening"] for modality in MODALITIES)
    return {
        "image/products": solve_triangular(image, private["paired"], lower=True),
        "text/products": solve_triangular(text, np.eye(len(text)), lower=True),
        "weights": np.ones(len(text)),
    }


def with_bits(private: ReadArrays, count: int) -> Arrays:
    """Return the server's arrays with the directions and singular values of further bits. There is at least one modality."""
    held = base.there(private)
    left, right = private[f"{held[0]}/products"], private[f"{held[-1]}/products"]
    values, *directions = leading_pairs(left, right, private["weights"], count)
    found = {**private, "values": np.append(private["values"], values)}
    for modality, vectors in zip((held[0], held[-1]), directions, strict=True):
        new = solve_triangular(private[f"{modality}/whitening"], vectors, lower=True, trans="T")
        found[f"{modality}/directions"] = np.column_stack([private[f"{modality}/directions"], new])
    return found


def finished(solution: base.Solution, private: ReadArrays) -> base.Solution:
    """Return the solution with the projections as the parameters of the hash layers. Outputs have variance 1."""
    directions = {m: private[f"{m}/directions"] * np.sqrt(private[f"{m}/count"]) for m in base.there(private)}
    params = dict(solution.params)
    for modality, projection in aligned(directions, params).items():
        params |= base.hash_layer(projection, solution.sent, modality, params)
    return base.Solution(params, solution.sent, private)


class SCM(base.FromSums[SCMParams]):
    """Semantic correlation maximization, for one or two modalities."""

    presets: ClassVar = {"recommended": {}, "paper": {"ridge": 1e-9}}
    traits = Traits(needs_labels=True)

    def exchanges(self, bits: int) -> int:
        """Return 2 for means and moments, and for ``seq`` one more per bit but the last."""
        return 2 if self.params.variant == "orth" else bits + 1

    def remarks(self, spec: ModelSpec, bits: int) -> list[str]:
        """Return a remark if ``orth`` has fewer bits than asked for."""
        rank = min([spec.classes, *(tower.hidden for tower in linear_spec(spec).towers.values())])
        if self.params.variant != "orth" or bits <= rank:
            return []
        return [
            f'local.variant = "orth" gives at most {rank} bits here (the number of labels or of dimensions), so '
            f'{bits - rank} of the {bits} bits are constant. Lower local.bits, or set local.variant = "seq".'
        ]

    def sums(self, views: base.Views, received: ReadArrays, exchange: int) -> Arrays:
        """Return the sums for the scales, then the moments, then the products of the last bit's signs."""
        paired = self.params.variant == "seq" and self.params.after_rise == "correlate"
        of_block = (base.scale_sums, partial(moments, received, paired=paired), partial(sign_products, received))
        return base.total(map(of_block[min(exchange, 2)], views.blocks()))

    def solve(self, solution: base.Solution, sums: ReadArrays, exchange: int) -> base.Solution:
        """Compute the scales, then all bits at once or one bit per exchange."""
        if exchange == 0:
            return replace(solution, sent=base.scales(sums, standardize=self.params.preprocess == "zscore"))
        bits = base.code_length(solution.params)
        if exchange > 1 and len(solution.private["values"]) == bits:
            return solution
        private = whitened(sums, self.params.ridge, bits) if exchange == 1 else deflated(solution.private, sums)
        if not base.there(private):
            return base.Solution(solution.params, solution.sent, {"values": np.zeros(bits)})
        private = with_bits(private, bits) if self.params.variant == "orth" else self._with_next_bit(private, bits)
        if len(private["values"]) == bits:
            return finished(solution, private)
        last = {f"{m}/direction": private[f"{m}/directions"][:, -1] for m in base.there(private)}
        return base.Solution(solution.params, {**solution.sent, **last}, private)

    def _with_next_bit(self, private: ReadArrays, bits: int) -> Arrays:
        """Return the server's arrays with one more bit, or with all remaining bits if the singular value rises."""
        found = with_bits(private, 1)
        rises = len(found["values"]) > 1 and found["values"][-1] > found["values"][-2]
        if not rises or "paired" not in private:
            return found
        return with_bits({**private, **correlation(private)}, bits - len(private["values"]))
