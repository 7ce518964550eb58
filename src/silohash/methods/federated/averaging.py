"""Weighted averages of parameters, computed per parameter group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeAlias

import numpy as np

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.message import Message
from silohash.models.towers import group_of

Average: TypeAlias = Callable[[Arrays, Sequence[Message]], Arrays]
"""A function of the current parameters and the silos' updates that returns the new parameters."""

LARGEST_WEIGHT = 1e15
"""Largest weight of a silo. In float32, the parameters of other silos do not vanish beside it."""

BLOCK_VALUES = 1 << 17
"""Number of values of a parameter that are added at a time, so that their products stay in the cache."""


class WeightedMean:
    """A weighted mean of parameters, to which updates are added one after the other.

    Floating-point arrays are averaged; integer buffers take the maximum.

    Attributes:
        totals: Total weight of each parameter, positive. Parameters that are not listed are left out.
        values: The mean by name, complete once all updates have been added.
    """

    def __init__(self, current: ReadArrays, totals: Mapping[str, float]) -> None:
        self.totals = totals
        self.values: Arrays = {name: np.zeros(current[name].shape, current[name].dtype) for name in totals}
        self._seen: set[str] = set()

    def add(self, update: Message) -> None:
        """Add an update with the weights of its parameter groups."""
        for name, total in self.totals.items():
            if name in update.params:
                self._add(name, update, update.weights.get(group_of(name), 0.0), total)

    def _add(self, name: str, update: Message, weight: float, total: float) -> None:
        mean = self.values[name]
        if not np.issubdtype(mean.dtype, np.floating):
            array = update.params[name]
            self.values[name] = np.array(np.maximum(mean, array) if name in self._seen else array)
            self._seen.add(name)
        elif weight:
            array, share = update.params[name], mean.dtype.type(weight / total)
            sums, values = mean.reshape(-1), array.reshape(-1)
            for start in range(0, len(sums), BLOCK_VALUES):
                sums[start : start + BLOCK_VALUES] += values[start : start + BLOCK_VALUES] * share


def weighted_average(current: ReadArrays, updates: Sequence[Message]) -> Arrays:
    """Average the parameters of the updates by the weights of their groups, in the given order.

    Floating-point arrays are averaged; integer buffers take the maximum. A group whose weights are all zero (no silo
    had its modality) is left out, so that the caller keeps the current values.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", algorithm 1.
    """
    totals = {
        name: sum(update.weights.get(group_of(name), 0.0) for update in updates if name in update.params)
        for name in current
    }
    mean = WeightedMean(current, {name: total for name, total in totals.items() if total > 0})
    for update in updates:
        mean.add(update)
    return mean.values


def has_weight(update: Message) -> bool:
    """Return whether an update has a positive weight in any group."""
    return any(weight > 0 for weight in update.weights.values())


def capped_weights(weights: np.ndarray, cap: float) -> np.ndarray:
    """Limit every weight to ``cap`` times the sum of all weights, and return weights with the same sum.

    The excess is distributed over the other positive weights in proportion. If there are too few of them for that, all
    positive weights become equal. Weights ``(n,)`` are at least 0, and the cap is between 0 and 1.
    """
    total, there = weights.sum(), weights > 0
    if not total or cap * there.sum() <= 1.0:
        return np.where(there, total / max(1, there.sum()), 0.0)
    if weights.max() <= cap * total:
        return weights
    shares = weights / total
    for _ in range(len(shares)):
        if not (shares > cap * (1 + 1e-12)).any():
            break
        free = (shares < cap) & there
        rest, fixed = shares[free].sum(), cap * (there & ~free).sum()
        shares = np.where(free, shares * (1.0 - fixed) / rest, np.where(there, cap, 0.0))
    return np.asarray(shares * total)


Screened: TypeAlias = tuple[list[Message], dict[str, str]]
"""The updates to aggregate, possibly modified, and a remark per affected silo."""

Screen: TypeAlias = Callable[[Arrays, Sequence[Message], int], Screened]
"""A function that inspects the updates before they are averaged.

It is given the current parameters, the updates, and the number of silos of the round whose updates were rejected. If it
returns no update, the round is skipped."""


Protection: TypeAlias = Callable[..., Screened]
"""A function of messages, the number of rejected ones and ``means`` that changes the values beside the parameters."""


def unprotected(messages: Sequence[Message], rejected: int) -> Screened:  # noqa: ARG001  a Protection
    """Return the messages as they are."""
    return list(messages), {}


@dataclass(frozen=True)
class Aggregation:
    """How the server combines updates, independent of the federated method.

    Attributes:
        protection: Function that limits the influence of single silos on what is sent beside parameters, in updates
            and in statistics.
    """

    average: Average = weighted_average
    screens: tuple[Screen, ...] = ()
    protection: Protection = unprotected

    def protecting(self, means: Sequence[SharedMean]) -> Self:
        """Return the same aggregation, with a protection of the means that a method declares."""
        protects = self.protection is not unprotected
        return replace(self, protection=partial(self.protection, means=means)) if protects else self

    def screened(self, current: Arrays, updates: Sequence[Message], rejected: int = 0) -> Screened:
        """Return the updates to aggregate and the remarks of all screens; the arguments are those of a `Screen`."""
        kept, remarks = self.protection(updates, rejected)
        for screen in self.screens:
            kept, found = screen(current, kept, rejected)
            remarks |= found
        return kept, remarks
