"""How sure a hit is: the probability that an item at a distance is right, learned from queries that were held back.

Silos count the hits of their held-back queries by rank and distance. From these counts follow, per task, a probability for
each distance and number of searched items, by logistic regression, and the bar: the distance beyond which nothing is close.

A distance alone does not tell how sure a hit is. Among more items, the nearest ones are nearer and no more often right, so
that what a silo learns among its own items would be too high for a search of all silos. At a given distance, the hits are
right the more often, the larger the share of all items that are as near.

Source: J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods", in
Advances in Large Margin Classifiers, 1999, for the regression and its targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

HITS_COUNTED = 10
"""Nearest items per query that are counted, and whose probabilities are promised to hold on average."""

MIDDLE_RANK = 5
"""The rank for which probabilities are given. Those of the hits of one page do not depend on their ranks."""

TENTHS = 10
"""Number of equal ranges of probabilities in which a reliability diagram compares them."""

MOST_REFUSED = 0.05
"""Largest share of held-back queries without any item within the bar."""

FEWEST_KNOWN = 0.4
"""Smallest share of a query that the model must know for hits to be close."""


class HitCounts(NamedTuple):
    """Counts over the queries of a silo, by rank and distance.

    Attributes:
        right: Expected number of right items at each rank and distance, ``(HITS_COUNTED, bits + 1)`` float64. Fractions
            follow from ties.
        items: Number of items there, of the same shape and type. The first row counts the nearest items, one per query.
        searched: Number of items that the queries searched, ``(1,)`` float64.
    """

    right: npt.NDArray[np.float64]
    items: npt.NDArray[np.float64]
    searched: npt.NDArray[np.float64]

    @property
    def nearest(self) -> npt.NDArray[np.float64]:
        """Number of queries whose nearest item is at each distance, ``(bits + 1,)``."""
        return np.asarray(self.items[0])


def hit_counts(histogram: Histogram) -> HitCounts:
    """Count the nearest items of each query, and the right ones among them. Tied items are as if in random order."""
    groups = histogram.groups(None)
    share = groups.relevant / np.maximum(groups.items, 1)
    here = [(groups.before <= rank) & (rank < groups.before + groups.items) for rank in range(HITS_COUNTED)]
    right = np.stack([(share * held).sum(0) for held in here])
    items = np.stack([held.sum(0) for held in here]).astype(np.float64)
    return HitCounts(right, items, np.array([histogram.database], np.float64))


@dataclass(frozen=True)
class Calibration:
    """What a distance says about a hit of one task.

    Attributes:
        offset: Logit of the probability at distance 0, if as many items as `MIDDLE_RANK` are searched.
        per_bit: How much the logit falls per bit of distance.
        per_doubling: How much it falls whenever the number of searched items doubles.
        bar_bits: Largest distance of a hit that counts as close.
        queries: Number of held-back queries from which this was learned.
        searched: Number of items that all of them searched, which stands for an unknown number.
    """

    offset: float
    per_bit: Annotated[float, Field(ge=0)]
    per_doubling: Annotated[float, Field(ge=0)]
    bar_bits: Annotated[int, Field(ge=0)]
    queries: Annotated[int, Field(ge=1)]
    searched: Annotated[int, Field(ge=1)]

    @classmethod
    def learned(cls, silos: Sequence[HitCounts]) -> Calibration | None:
        """Return the calibration of a task from the counts of some silos; None if no query found a right item."""
        if not any(counts.right.any() for counts in silos):
            return None
        nearest = np.sum([counts.nearest for counts in silos], axis=0)
        queries = round(float(nearest.sum()))
        bar = int(np.searchsorted(np.cumsum(nearest), queries - math.floor(MOST_REFUSED * queries)))
        return cls(*_regression(silos), bar, queries, round(sum(float(counts.searched[0]) for counts in silos)))

    def probability(self, distance_bits: int, searched: int = 0) -> float:
        """Return the probability that a hit at a distance is right, given the number of searched items if it is known."""
        doublings = math.log2((searched or self.searched) / MIDDLE_RANK)
        logit = self.offset - self.per_bit * distance_bits - self.per_doubling * doublings
        return 0.5 * (1 + math.tanh(logit / 2))

    def judged(
        self, distance_bits: int, *, searched: int = 0, known: float = 1.0, bar: float | None = None
    ) -> tuple[float, Strength]:
        """Return the probability that a hit is right, and its strength.

        Args:
            distance_bits: Distance of the hit.
            searched: Number of searched items; 0 if it is not known.
            known: Share of the query that the model knows. Words that it does not know cannot be right, so the probability
                falls with them. A code tells nothing of them, so they take up their share of ``bar_bits``, and nothing is
                close to a query of which the model knows less than `FEWEST_KNOWN`.
            bar: Lowest probability of a hit that is close; None for that share of the distance ``bar_bits``.
        """
        probability = known * self.probability(distance_bits, searched)
        if known < FEWEST_KNOWN or (distance_bits > known * self.bar_bits if bar is None else probability < bar):
            return probability, "none"
        return probability, "strong" if probability >= STRONG else "likely" if probability >= LIKELY else "weak"


def reliability(calibration: Calibration, parts: Sequence[HitCounts]) -> tuple[tuple[float, float, float], ...]:
    """Return, for each tenth of the probabilities with hits, their mean, the share that is right, and the share of all hits.

    Source: M. Naeini, G. Cooper, M. Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.
    """
    sums = np.zeros((TENTHS, 3))
    for counts in parts:
        right, items, searched = counts.right.sum(0), counts.items.sum(0), int(counts.searched[0])
        found = np.array([calibration.probability(distance, searched) for distance in range(len(items))])
        tenths = np.minimum((found * TENTHS).astype(int), TENTHS - 1)
        np.add.at(sums, tenths, np.stack([found * items, right, items], axis=1))
    sums = sums[sums[:, 2] > 0]
    return tuple((p / n, right / n, n / sums[:, 2].sum()) for p, right, n in sums.tolist())


def calibration_error(found: Sequence[tuple[float, float, float]]) -> float:
    """Return the expected calibration error of what `reliability` returns, from 0 to 1."""
    return sum(share * abs(probability - right) for probability, right, share in found)


def _regression(silos: Sequence[HitCounts]) -> tuple[float, float, float]:
    """Return the offset, the fall per bit and the fall per doubling of the regression.

    Each item weighs one by its rank, because the first hits of a search of all silos are among the first of each. Neither
    value falls below 0: at no data may a nearer item be less often right, or one among fewer items.
    """
    from scipy.optimize import minimize  # here, because only training needs it and its import is slow

    ranks = np.arange(1, HITS_COUNTED + 1)[:, None]
    right, items = (np.concatenate([(counts[part] / ranks).ravel() for counts in silos]) for part in (0, 1))
    bits = silos[0].items.shape[1] - 1
    distances = np.tile(np.arange(bits + 1), len(silos) * HITS_COUNTED)
    doublings = np.concatenate(
        [np.broadcast_to(np.log2(counts.searched / ranks), counts.items.shape).ravel() for counts in silos]
    )
    design = np.stack([np.ones(len(items)), -distances / bits, -doublings / doublings.max(initial=1.0)], axis=1)
    wrong = items.sum() - right.sum()
    low, high = 1 / (wrong + 2), (right.sum() + 1) / (right.sum() + 2)
    targets = right * high + (items - right) * low

    def loss(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        """Return the negative logarithm of the likelihood, and its gradient."""
        logits = design @ values
        slope = design.T @ (items * 0.5 * (1 + np.tanh(logits / 2)) - targets)
        return float((items * np.logaddexp(0, logits) - targets * logits).sum()), slope

    found = minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B", bounds=[(None, None), (0, None), (0, None)]).x
    return float(found[0]), float(found[1] / bits), float(found[2] / doublings.max(initial=1.0))
