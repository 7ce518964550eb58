"""Second moments and label cross-products of vectors: additive sums whose totals are exact for any partition.

A silo computes the sums of its own items in float64, in blocks of rows. The totals over all silos equal the sums of the
pooled items up to rounding, so a solution that is computed from them does not depend on how the items are partitioned.

The sums of one silo reveal its items: if it has fewer items than the vectors have dimensions, the second moments span
exactly its vectors. The server should see them only as totals over the silos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from silohash.base.types import Arrays

Matrix = npt.NDArray[np.float64]

BLOCK_ROWS = 4096
"""Number of rows that are converted to float64 at a time."""

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Ridge penalties among which generalized cross-validation chooses.

Features that were trained on the same items fit the labels of these items better than those of other items. The
cross-validation cannot see this from the sums, and would choose too small a penalty. The smallest one limits the error."""

ERROR_TOLERANCE = 1.05
"""Of the penalties whose error is at most this multiple of the smallest error, the smallest penalty is chosen."""


@dataclass(frozen=True)
class SecondMoments:
    """Sums over ``n`` items with vectors ``x (D,)`` and multi-hot labels ``y (C,)``, all in float64.

    Attributes:
        count: ``()``, the number of items.
        vector_sum: ``(D,)``, sum of x.
        vector_products: ``(D, D)``, sum of x x^T.
        label_sum: ``(C,)``, number of items per label.
        cross_products: ``(D, C)``, sum of x y^T.
    """

    count: Matrix
    vector_sum: Matrix
    vector_products: Matrix
    label_sum: Matrix
    cross_products: Matrix

    def to_sums(self, name: str) -> Arrays:
        """Return the sums as arrays under ``NAME/``. Of the symmetric products only the upper triangle is included."""
        upper = self.vector_products[np.triu_indices(len(self.vector_sum))]
        return {f"{name}/{field}": array for field, array in asdict(replace(self, vector_products=upper)).items()}

    @staticmethod
    def from_sums(sums: Mapping[str, np.ndarray], name: str) -> SecondMoments:
        """Return the moments whose arrays, or the totals of several silos' arrays, are under ``NAME/``."""
        given = {field.name: sums[f"{name}/{field.name}"] for field in fields(SecondMoments)}
        width = len(given["vector_sum"])
        products = np.zeros((width, width))
        products[np.triu_indices(width)] = given["vector_products"]
        return SecondMoments(**{**given, "vector_products": products + np.triu(products, 1).T})

    def mean(self) -> Matrix:
        """Return the mean vector, ``(D,)``; zero without items."""
        return np.asarray(self.vector_sum / max(float(self.count), 1.0))

    def label_shares(self) -> Matrix:
        """Return the share of items that have each label, ``(C,)``; zero without items."""
        return np.asarray(self.label_sum / max(float(self.count), 1.0))

    def scatter(self) -> Matrix:
        """Return the sum of (x - mean)(x - mean)^T, ``(D, D)``."""
        mean = self.mean()
        return np.asarray(self.vector_products - float(self.count) * np.outer(mean, mean))

    def centered_cross_products(self) -> Matrix:
        """Return the sum of (x - mean)(y - mean of y)^T, ``(D, C)``."""
        return np.asarray(self.cross_products - np.outer(self.mean(), self.label_sum))


def second_moments(vectors: np.ndarray, labels: np.ndarray) -> SecondMoments:
    """Return the sums over a silo's items with vectors ``(n, D)`` and multi-hot labels ``(n, C)``; n may be 0."""
    width, classes = vectors.shape[1], labels.shape[1]
    vector_sum, label_sum = np.zeros(width), np.zeros(classes)
    vector_products, cross_products = np.zeros((width, width)), np.zeros((width, classes))
    for start in range(0, len(vectors), BLOCK_ROWS):
        x = vectors[start : start + BLOCK_ROWS].astype(np.float64)
        y = labels[start : start + BLOCK_ROWS].astype(np.float64)
        vector_sum += x.sum(0)
        label_sum += y.sum(0)
        vector_products += x.T @ x
        cross_products += x.T @ y
    return SecondMoments(np.asarray(float(len(vectors))), vector_sum, vector_products, label_sum, cross_products)


def ridge_weights(
    moments: SecondMoments, blocks: Sequence[int] = (), *, penalties: Sequence[float] = PENALTIES
) -> Matrix:
    """Return the weights of the ridge regression from centered vectors to centered labels.

    W = (S + Lambda)^-1 B, where S is the scatter and B holds the centered cross-products. Lambda is a diagonal matrix with
    one value per block of dimensions: the penalty times the mean of the block's diagonal in S. The fitted scores therefore
    do not depend on the scale of a block. If several penalties are given, their errors by generalized cross-validation are
    compared, which are computed from the sums alone. The smallest penalty is used whose error is at most 5 % above the
    smallest error, because classes are told apart better with less shrinkage than the squared error favors.

    By default, all dimensions are one block. The weights ``(D, C)`` are zero where all vectors of a block are equal.

    Source: Hoerl and Kennard, "Ridge Regression: Biased Estimation for Nonorthogonal Problems", Technometrics 1970;
    Golub, Heath and Wahba, "Generalized Cross-Validation as a Method for Choosing a Good Ridge Parameter", Technometrics
    1979.
    """
    scatter, cross = moments.scatter(), moments.centered_cross_products()
    blocks = blocks or (len(scatter),)
    means = [part.mean() if len(part) else 0.0 for part in np.split(np.diag(scatter), np.cumsum(blocks)[:-1])]
    # These factors ``(D,)`` give every block a mean diagonal of 1. They are 0 where all its vectors are equal.
    scales = np.repeat([mean**-0.5 if mean > 0.0 else 0.0 for mean in means], blocks)
    values, vectors = np.linalg.eigh(scatter * np.outer(scales, scales))
    values = np.maximum(values, 0.0)
    rotated = vectors.T @ (cross * scales[:, None])
    if len(penalties) > 1:
        label_squares = float((moments.label_sum - moments.label_sum**2 / max(float(moments.count), 1.0)).sum())
        errors = [cross_validation_error(values, rotated, label_squares, float(moments.count), p) for p in penalties]
        limit = ERROR_TOLERANCE * min(errors)
        penalties = [min(p for p, error in zip(penalties, errors, strict=True) if error <= limit)]
    return np.asarray(scales[:, None] * (vectors @ (rotated / (values + penalties[0])[:, None])))


def cross_validation_error(
    values: Matrix, rotated: Matrix, label_squares: float, count: float, penalty: float
) -> float:
    """Return the error of a ridge regression by generalized cross-validation, up to a constant factor.

    It is RSS / (n - df)^2, where RSS is the sum of squared residuals, and df = 1 + sum of values / (values + penalty) is
    the number of effective parameters, including the mean. It is infinite if there are no more items n than these. Values
    ``(D,)`` are the eigenvalues of the scatter, in whose basis the cross-products ``(D, C)`` are rotated. The sum of the
    squared centered labels is given.

    Source: Golub, Heath and Wahba, equation (1.4).
    """
    squares = (rotated**2).sum(1)
    residual = label_squares - float((squares * (values + 2.0 * penalty) / (values + penalty) ** 2).sum())
    free = count - 1.0 - float((values / (values + penalty)).sum())
    return residual / free**2 if free > 0.0 else np.inf


def mean_deviation(projection: Matrix, scatter: Matrix, count: float = 1.0) -> float:
    """Return the mean over columns of the standard deviation of vectors after a projection ``(D, K)``.

    The scatter ``(D, D)`` is that of ``count`` vectors, or their covariance with a count of 1.
    """
    squares = np.einsum("dk,dk->k", projection, scatter @ projection)
    return float(np.sqrt(np.maximum(squares, 0.0) / max(count, 1.0)).mean())
