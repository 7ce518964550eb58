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
from silohash.methods.clipping import clipped, noised
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.message import Message

FEWEST_DEVIATIONS = 3.0
"""A class whose noisy count is below this multiple of the noise's standard deviation is not released. The decision sees
nothing but noisy values, so it costs no privacy."""


def private_change(
    update: Message, origin: ReadArrays, *, clip_norm: float, deviation: float, generator: np.random.Generator
) -> Message:
    """Return an update whose change of the parameters is limited and noisy, and whose weights are all 1.

    Args:
        update: Update of a silo that holds nothing but parameters.
        origin: Parameters from which the change is measured.
        clip_norm: Limit on the norm of the change.
        deviation: Standard deviation of the noise.
        generator: Source of the noise.
    """
    change = {name: np.asarray(array, np.float64) - origin[name] for name, array in update.params.items()}
    moved = noised(clipped(change, clip_norm), deviation, generator)
    params = {name: (origin[name] + moved[name]).astype(array.dtype) for name, array in update.params.items()}
    return replace(update, params=params, weights=public_weights(update, unit="silo"))


def noise_share(clip_norm: float, noise_multiplier: float, silos: int) -> float:
    """Return the standard deviation of the noise that each silo adds, so that the sum hides it from any other silo.

    Another silo knows its own noise. The noise of the other ``silos - 1`` has the standard deviation
    ``noise_multiplier * clip_norm``.

    Args:
        clip_norm: Limit on the norm of a silo's change.
        noise_multiplier: Standard deviation of the noise that no silo knows alone, as a multiple of clip_norm.
        silos: Number of silos of the round, at least 2.
    """
    return noise_multiplier * clip_norm / math.sqrt(silos - 1)


def item_share(message: Message, means: Sequence[SharedMean], max_labels: int) -> float:
    """Return the largest norm that one item's share in all class sums and counts of a message can have.

    An item has a total weight of at most ``max_labels`` over its classes and at most 1 in each, and contributes a vector of
    values in [-1, 1].

    Args:
        message: Message of a silo.
        means: Means per class that the method declares.
        max_labels: Limit on the total weight of an item.
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
    are brought back into the range that means of values in [-1, 1] can have.

    Args:
        update: Update of a silo. Its parameters are already private.
        means: Means per class that the method declares, of all sums in the update.
        max_labels: As for `item_share`.
        noise_multiplier: Standard deviation of the noise, as a multiple of the largest share of an item.
        generator: Source of the noise.
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

    Args:
        update: Message with exact weights.
        unit: What is hidden.
    """
    return {group: float(unit == "silo" or weight > 0) for group, weight in update.weights.items()}
