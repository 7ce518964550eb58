"""How sure a hit is: the probability that an item at a distance is right, learned from queries that were held back.

Silos count the hits of their held-back queries by distance. The sums of these counts over silos give, per task, a
probability for each distance, by isotonic regression, and the bar: the distance beyond which nothing is close.

Source: B. Zadrozny, C. Elkan, "Transforming classifier scores into accurate multiclass probability estimates", KDD 2002.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

if TYPE_CHECKING:
    from silohash.evaluate.ties import Histogram

Strength: TypeAlias = Literal["strong", "likely", "weak", "none"]

STRONG, LIKELY = 0.8, 0.5
"""Lowest probabilities of a strong and of a likely hit."""

HITS_COUNTED = 5
"""Nearest items per query that silos count. The first ten of a merged answer hold fewer than ten items of one silo."""

MOST_REFUSED = 0.05
"""Largest share of held-back queries without any item within the bar."""

FEWEST_KNOWN = 0.5
"""Smallest share of a query that the model must know for hits to be close."""

Probability = Annotated[float, Field(ge=0, le=1)]


class HitCounts(NamedTuple):
    """Counts over queries, by distance, each ``(bits + 1,)`` float64. They add up over silos.

    Attributes:
        right: Expected number of right items among the nearest of each query.
        items: Expected number of items among the nearest of each query. Fractions follow from ties at the cut.
        nearest: Number of queries whose nearest item is at the distance.
    """

    right: npt.NDArray[np.float64]
    items: npt.NDArray[np.float64]
    nearest: npt.NDArray[np.float64]


def hit_counts(histogram: Histogram, cutoff: int | None = HITS_COUNTED) -> HitCounts:
    """Count the nearest items of each query, and the right ones among them; all items without a cutoff.

    Items at the distance of the last one are counted in proportion, as if they were in random order.
    """
    groups = histogram.groups(cutoff)
    share = groups.within / np.maximum(groups.items, 1)
    nearest = np.bincount((groups.items > 0).argmax(axis=1), minlength=groups.items.shape[1])
    return HitCounts(
        (groups.relevant * share).sum(0), groups.within.sum(0).astype(np.float64), nearest.astype(np.float64)
    )


@dataclass(frozen=True)
class Calibration:
    """What a distance says about a hit of one task.

    Attributes:
        probabilities: Probability that an item is right, by its distance in bits. It does not rise with the distance.
        bar_bits: Largest distance of a hit that counts as close.
        queries: Number of held-back queries from which this was learned.
    """

    probabilities: tuple[Probability, ...]
    bar_bits: Annotated[int, Field(ge=0)]
    queries: Annotated[int, Field(ge=1)]

    @classmethod
    def learned(cls, counts: HitCounts) -> Calibration | None:
        """Return the calibration of a task from the counts of all silos; None if no query found a right item.

        Each distance also gets one item of the mean probability, so that a distance without items has the probability of its
        neighbors, and a few items do not make a hit certain.
        """
        queries = round(float(counts.nearest.sum()))
        if not queries or not counts.right.any():
            return None
        mean = counts.right.sum() / counts.items.sum()
        found = decreasing((counts.right + mean) / (counts.items + 1), counts.items + 1)
        bar = int(np.searchsorted(np.cumsum(counts.nearest), queries - math.floor(MOST_REFUSED * queries)))
        return cls(tuple(np.clip(found, 0, 1).tolist()), bar, queries)

    def probability(self, distance_bits: int) -> float:
        """Return the probability that a hit at a distance is right."""
        return self.probabilities[min(distance_bits, len(self.probabilities) - 1)]

    def judged(self, distance_bits: int, *, known: float = 1.0, bar: float | None = None) -> tuple[float, Strength]:
        """Return the probability that a hit is right, and its strength.

        Args:
            distance_bits: Distance of the hit.
            known: Share of the query that the model knows. Words that it does not know cannot be right, so the probability
                falls with them, and nothing is close to a query of which it knows less than `FEWEST_KNOWN`.
            bar: Lowest probability of a hit that is close; None for the distance ``bar_bits``.
        """
        probability = known * self.probability(distance_bits)
        if known < FEWEST_KNOWN or (distance_bits > self.bar_bits if bar is None else probability < bar):
            return probability, "none"
        return probability, "strong" if probability >= STRONG else "likely" if probability >= LIKELY else "weak"


def decreasing(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the values that do not rise and have the least weighted squares of differences to the given ones, ``(n,)``.

    This is isotonic regression, by pooling adjacent violators.

    Example:
        >>> decreasing(np.array([0.9, 0.25, 0.5]), np.array([1.0, 1.0, 3.0])).tolist()
        [0.9, 0.4375, 0.4375]
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, size = value, weight, 1
        while pools and pools[-1][0] < mean:
            before, heavy, length = pools.pop()
            mean = (before * heavy + mean * total) / (heavy + total)
            total, size = heavy + total, length + size
        pools.append((mean, total, size))
    return np.repeat([mean for mean, _, _ in pools], [size for _, _, size in pools])
