"""Canonical correlations between images and texts, and rotations to binary codes, from sums over items.

============  ==========================  ================================================================
symbol        code                        meaning
============  ==========================  ================================================================
C_xx, C_yy    blocks of the scatter       covariances of images and texts, ``(D, D)`` and ``(E, E)``
C_xy          block of the scatter        covariances of images with texts, ``(D, E)``
U S V^T       `canonical_maps`            singular value decomposition of C_xx^(-1/2) C_xy C_yy^(-1/2)
O             ``outputs``                 hash outputs, unit rows, ``(n, K)``
Q             `rotation`                  rotation of the hash outputs, ``(K, K)``
============  ==========================  ================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silohash.base import seeds
from silohash.base.types import Arrays, Modality
from silohash.methods.federated.second_moments import Matrix, SecondMoments, second_moments

NO_LABELS = 0
"""Number of labels of the sums, which do not hold any."""


def pair_moments(image: np.ndarray, text: np.ndarray) -> SecondMoments:
    """Return the second moments of the stacked vectors of pairs.

    Args:
        image: ``(n, D)`` of any float type; ``n`` may be 0.
        text: ``(n, E)``, in the same order.
    """
    return second_moments(np.concatenate([image, text], axis=1), np.zeros((len(image), NO_LABELS)))


def inverse_root(covariance: Matrix, penalty: float) -> Matrix:
    """Return (C + penalty * mean of the diagonal of C * I)^(-1/2), ``(D, D)``; zeros if the diagonal is zero.

    Args:
        covariance: C, symmetric and without negative eigenvalues, ``(D, D)``.
        penalty: Ridge penalty, greater than 0.
    """
    ridge = penalty * float(np.trace(covariance)) / max(len(covariance), 1)
    if ridge <= 0.0:
        return np.zeros_like(covariance)
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T)


def canonical_maps(
    moments: SecondMoments, width: int, *, components: int, penalty: float, power: float
) -> dict[Modality, Matrix]:
    """Return maps of centered images and texts to canonical variables, each times a power of its correlation.

    The variables of a pair agree more, the higher their correlation is. Variables whose correlation is low differ between
    an image and its text for the most part, and are reduced.

    Args:
        moments: Second moments of the stacked vectors of pairs, at least one pair.
        width: Number of dimensions of the images, which come first.
        components: Largest number of canonical variables.
        penalty: Ridge penalty of both covariances, as a multiple of their mean variance; greater than 0.
        power: Exponent of the correlations, at least 0.

    Returns:
        ``(D, R)`` for images and ``(E, R)`` for texts, with at most R = ``components`` columns.

    Source: Hotelling, "Relations Between Two Sets of Variates", Biometrika 1936; the power of the correlations is that of
    Gong et al., "A Multi-View Embedding Space for Modeling Internet Images, Tags, and Their Semantics", IJCV 2014.
    """
    covariance = moments.scatter() / float(moments.count)
    image = inverse_root(covariance[:width, :width], penalty)
    text = inverse_root(covariance[width:, width:], penalty)
    left, correlations, right = np.linalg.svd(image @ covariance[:width, width:] @ text, full_matrices=False)
    weights = correlations[:components] ** power
    return {"image": image @ left[:, :components] * weights, "text": text @ right[:components].T * weights}


def mean_deviation_of(projection: Matrix, covariance: Matrix) -> float:
    """Return the mean over columns of the standard deviation of projected vectors.

    Args:
        projection: ``(D, K)``.
        covariance: ``(D, D)``, covariance of the vectors.
    """
    variances = np.einsum("dk,dk->k", projection, covariance @ projection)
    return float(np.sqrt(np.maximum(variances, 0.0)).mean())


def random_rotation(components: int, bits: int, seed: int) -> Matrix:
    """Return the first rows of a random rotation, ``(components, bits)``.

    Args:
        components: Number of rows, at most the number of bits.
        bits: Code length K.
        seed: Seed of the run.
    """
    drawn = seeds.numpy_generator(seed, "rotation of canonical variables").normal(size=(bits, bits))
    return np.asarray(np.linalg.qr(drawn)[0][:components])


def rotation_sums(outputs: Mapping[Modality, np.ndarray]) -> Matrix:
    """Return the sum over items and modalities of o sign(o)^T, ``(K, K)``, for hash outputs o of length 1.

    Args:
        outputs: ``(n, K)`` per modality, at least one. Rows of zeros do not count; ``n`` may be 0.
    """
    total = np.zeros((1, 1))
    for values in outputs.values():
        o = values.astype(np.float64)
        o /= np.maximum(np.linalg.norm(o, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        total = total + o.T @ np.where(o >= 0, 1.0, -1.0)
    return total


def rotation(sums: Matrix) -> Matrix:
    """Return the rotation Q after which the hash outputs are closest to their present signs, ``(K, K)``.

    Of all rotations, it minimizes the sum of the squared distances between the rotated outputs of length 1 and the signs.

    Args:
        sums: ``(K, K)``, sum of o sign(o)^T over all items.

    Source: Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to Learning Binary Codes", CVPR 2011.
    """
    left, _, right = np.linalg.svd(sums)
    return np.asarray(left @ right)


def rotated(params: Arrays, modality: Modality, turn: Matrix) -> Arrays:
    """Return the parameters of a tower's hash layer after a rotation of its outputs, in their dtypes.

    Args:
        params: Current parameters.
        modality: The tower.
        turn: ``(K, K)``, Q.
    """
    names = {f"{modality}.hash.weight": turn.T, f"{modality}.hash.bias": turn.T}
    return {
        name: np.asarray(matrix @ params[name].astype(np.float64)).astype(params[name].dtype)
        for name, matrix in names.items()
    }
