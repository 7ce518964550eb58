"""Add up the updates of a round as they arrive, so that the server's memory does not grow with the number of silos.

This is possible if the server needs only sums, and the total weight is known before the first update with a weight: a mean
divides each weight by the total before it adds, so the result is the same as that of a list, bit for bit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.averaging import LARGEST_WEIGHT, WeightedMean
from silohash.methods.federated.statistics import add_sums
from silohash.methods.message import Message
from silohash.methods.stored import Spool
from silohash.models.towers import group_of


class Collection(Protocol):
    """The updates of a round, in the form that their aggregation needs."""

    def add(self, update: Message) -> None:
        """Add an update."""

    def updates(self) -> Sequence[Message]:
        """Return what to aggregate."""


@dataclass
class Listed:
    """All updates of a round, in memory or on disk."""

    spool: Spool
    _updates: list[Message] = field(default_factory=list)

    def add(self, update: Message) -> None:
        """Store an update."""
        self._updates.append(self.spool.store_message(update))

    def updates(self) -> Sequence[Message]:
        """Return all updates."""
        return self._updates


class Folded:
    """The sum of the updates of a round: one message with their weighted mean, and their summed weights and statistics.

    If the weights turn out to have another total than expected, such as when an update is rejected, the mean is scaled
    accordingly. It then equals that of a list to rounding. The global parameters define names, shapes and dtypes.
    """

    def __init__(self, current: ReadArrays) -> None:
        self.mean = WeightedMean(current, dict.fromkeys(current, 1.0))
        self.weights: dict[str, list[float]] = {}
        self.shares: dict[str, list[float]] = {}
        self.sums: Arrays = {}
        self.counts: dict[str, int] = {}
        self.round = 0
        self.number = 0

    def expect(self, weights: Iterable[Mapping[str, float]]) -> None:
        """Set the total weights before the first update that has a weight, from those of each silo in the same order.

        Weights that no update can have are left out.
        """
        given: dict[str, list[float]] = {}
        for announced in weights:
            for group, weight in announced.items():
                if 0 <= weight <= LARGEST_WEIGHT:
                    given.setdefault(group, []).append(weight)
        self.mean.totals = {name: sum(given.get(group_of(name), ())) or 1.0 for name in self.mean.values}

    def add(self, update: Message) -> None:
        """Add an update to the sums."""
        self.number, self.round = self.number + 1, update.round
        self.mean.add(update)
        for name in update.params:
            self.shares.setdefault(name, []).append(update.weights.get(group_of(name), 0.0))
        for group, weight in update.weights.items():
            self.weights.setdefault(group, []).append(weight)
        add_sums(self.sums, update.sums)
        for name, count in update.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def updates(self) -> Sequence[Message]:
        """Return one message that stands for all updates; no message if there was none."""
        if not self.number:
            return []
        found: Arrays = {}
        for name, mean in self.mean.values.items():
            total, expected = sum(self.shares.get(name, ())), self.mean.totals[name]
            if total > 0:
                exact = total == expected or not np.issubdtype(mean.dtype, np.floating)
                found[name] = mean if exact else mean * mean.dtype.type(expected / total)
        return [
            Message(
                kind="update", sender="silos", round=self.round, params=found, sums=self.sums,
                weights={group: sum(weights) for group, weights in self.weights.items()}, counts=self.counts,
            )
        ]  # fmt: skip
