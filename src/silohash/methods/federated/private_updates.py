"""What a silo sends under differential privacy: limited contributions, hidden in Gaussian noise, with public weights.

Everything exact is left out: weights are equal for all silos, because numbers of items per modality or class would be
exact, and losses stay in the silo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.message import Message

FEWEST_DEVIATIONS = 3.0
"""A class whose noisy count is below this multiple of the noise's standard deviation is not released. The decision sees
nothing but noisy values, so it costs no privacy."""


def private_change(
    update: Message, origin: ReadArrays, *, clip_norm: float, deviation: float, generator: np.random.Generator
) -> Message:
    """Return an update of parameters whose change from an origin is limited and noisy, and whose weights are all 1."""
    change = {name: np.asarray(array, np.float64) - origin[name] for name, array in update.params.items()}
    moved = noised(clipped(change, clip_norm), deviation, generator)
    params = {name: (origin[name] + moved[name]).astype(array.dtype) for name, array in update.params.items()}
    return replace(update, params=params, weights=public_weights(update, unit="silo"))


def noise_share(clip_norm: float, noise_multiplier: float, silos: int) -> float:
    """Return the standard deviation of the noise that each silo adds, so that the sum hides it from any other silo.

    Another silo knows its own noise. The noise of the other ``silos - 1``, at least one, has the standard deviation
    ``noise_multiplier * clip_norm``.
    """
    return noise_multiplier * clip_norm / math.sqrt(silos - 1)


def item_share(message: Message, means: Sequence[SharedMean], max_labels: int) -> float:
    """Return the largest norm that one item's share in all class sums and counts of a message can have.

    An item has a total weight of at most ``max_labels`` over its classes and at most 1 in each, and contributes a vector of
    values in [-1, 1]. The means are those per class that the method declares.
    """
    widths = [message.sums[name].shape[1] for mean in means for name in mean.pairs(message)]
    return math.sqrt(max_labels * sum(width + 1 for width in widths))


def private_statistics(
    update: Message,
    means: Sequence[SharedMean],
    *,
    max_labels: int,
    noise_multiplier: float,
    generator: np.random.Generator,
) -> Message:
    """Return an update with noisy class sums and counts, and weights of 1.

    Rows of classes whose noisy count is small become zero, so that the server does not divide noise by noise. The others
    are brought back into the range that means of values in [-1, 1] can have. The method declares the means per class of all
    sums in the update, whose parameters are already private. The noise is a multiple of the largest `item_share`.
    """
    deviation = noise_multiplier * item_share(update, means, max_labels)
    noisy = noised(update.sums, deviation, generator)
    found: Arrays = {}
    for mean in means:
        for name, count_name in mean.pairs(update).items():
            counts = np.minimum(noisy[count_name], update.counts["items"])
            counts = np.where(noisy[count_name] >= FEWEST_DEVIATIONS * deviation, counts, 0.0)
            found[count_name] = counts
            found[name] = np.clip(noisy[name], mean.low * counts[:, None], mean.high * counts[:, None])
    sums = {name: found[name].astype(array.dtype) for name, array in update.sums.items()}
    return replace(update, sums=sums, weights=public_weights(update, unit="record"))


def public_weights(update: Message, *, unit: Literal["record", "silo"]) -> dict[str, float]:
    """Return the weights of a silo that do not depend on its numbers of items.

    With the unit ``silo`` they are all 1. With the unit ``record`` they are 0 for parameter groups that the silo does not
    train, because it has no pictures or no texts at all.
    """
    return {group: float(unit == "silo" or weight > 0) for group, weight in update.weights.items()}


def norm_of(arrays: ReadArrays) -> float:
    """Return the Euclidean norm of all values of some arrays together, computed in float64."""
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays.values()))


def clipped(arrays: ReadArrays, limit: float) -> Arrays:
    """Return float64 arrays with the same direction and a norm of at most ``limit``.

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
