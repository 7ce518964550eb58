"""Limit the norm of named arrays, and add Gaussian noise to them."""

from __future__ import annotations

import math

import numpy as np

from silohash.base.types import Arrays, ReadArrays


def norm_of(arrays: ReadArrays) -> float:
    """Return the Euclidean norm of all values of some arrays together, computed in float64."""
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays.values()))


def clipped(arrays: ReadArrays, limit: float) -> Arrays:
    """Return float64 arrays with the same direction and a norm of at most ``limit``, which is greater than 0.

    Arrays with values that are not finite become zero, because no factor limits them.

    Example:
        >>> clipped({"a": np.array([3.0, 4.0])}, 1.0)["a"].tolist()
        [0.6000000000000001, 0.8]
    """
    norm = norm_of(arrays)
    if not math.isfinite(norm):
        return {name: np.zeros(array.shape) for name, array in arrays.items()}
    factor = min(1.0, limit / norm) if norm > 0 else 1.0
    return {name: array.astype(np.float64) * factor for name, array in arrays.items()}


def noised(arrays: ReadArrays, deviation: float, generator: np.random.Generator) -> Arrays:
    """Return float64 arrays with independent Gaussian noise on every value, drawn in the order of the arrays."""
    return {name: array + generator.normal(scale=deviation, size=array.shape) for name, array in arrays.items()}
