"""Weighted averages of parameters, a parameter group at a time.

Differs from the paper: nothing but the groups; see `silohash.federated.methods.fedavg`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from silohash.exchange.message import Message
from silohash.models.towers import group_of
from silohash.types import Arrays

Average: TypeAlias = Callable[[Arrays, Sequence[Message]], Arrays]
"""From the current parameters and the silos' updates to the new parameters."""


def weighted_average(current: Arrays, updates: Sequence[Message]) -> Arrays:
    """Averages the parameters of updates by the weights of their groups, in the order given.

    Floating arrays are averaged, integer buffers take the maximum. A group in which all weights are zero (no silo had its
    modality) is left out, so that the caller keeps what it had.

    Args:
        current: the global parameters, for names, shapes and types.
        updates: messages whose ``params`` hold a subset of those names.

    Returns:
        The averages, by name.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", algorithm 1.
    """
    averaged: Arrays = {}
    for name, before in current.items():
        holders = [(update.params[name], update.weights.get(group_of(name), 0.0)) for update in updates
                   if name in update.params]  # fmt: skip
        total = sum(weight for _, weight in holders)
        if not holders or total <= 0:
            continue
        if not np.issubdtype(before.dtype, np.floating):
            averaged[name] = np.maximum.reduce([array for array, _ in holders])
            continue
        mean = np.zeros_like(before)
        for array, weight in holders:
            if weight:
                mean += array * before.dtype.type(weight / total)
        averaged[name] = mean
    return averaged


def capped_weights(weights: np.ndarray, cap: float) -> np.ndarray:
    """Returns weights with the same sum, none above ``cap`` of it; what is cut goes to the others in proportion.

    Where too few silos have weight for that, they all weigh the same.
    """
    total, there = weights.sum(), weights > 0
    if not total or cap * there.sum() <= 1.0:
        return np.where(there, total / max(1, there.sum()), 0.0)
    shares = weights / total
    for _ in range(len(shares)):
        over = shares > cap * (1 + 1e-12)
        rest = shares[(shares < cap) & there].sum()
        if not over.any():
            break
        free = (shares < cap) & there
        fixed = cap * (there & ~free).sum()
        shares = np.where(free, shares * (1.0 - fixed) / rest, np.where(there, cap, 0.0))
    limited: np.ndarray = shares * total
    return limited


Screened: TypeAlias = tuple[list[Message], dict[str, str]]
"""The updates that count, perhaps changed, and what is said of whom."""

Screen: TypeAlias = Callable[[Arrays, Sequence[Message]], Screened]
"""Looks at the updates before they are averaged, given the current parameters."""


@dataclass(frozen=True)
class Aggregation:
    """How a server treats updates, whatever the federated method.

    Attributes:
        average: from the current parameters and the updates to the new ones.
        screens: applied to the updates before, in order.
    """

    average: Average = weighted_average
    screens: tuple[Screen, ...] = ()

    def screened(self, current: Arrays, updates: Sequence[Message]) -> Screened:
        """Returns the updates that count and what is said of whom."""
        kept, remarks = list(updates), dict[str, str]()
        for screen in self.screens:
            kept, said = screen(current, kept)
            remarks |= said
        return kept, remarks
