"""What each measure counts, as a closed form over the histogram of distances, so that ties are exact and silos add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from silohash.base.errors import OutOfRange, SettingNeeded
from silohash.evaluate import MEASURES, cutoffs, ranked, ties
from silohash.evaluate.ties import Counts, Histogram, TieValues, Values

if TYPE_CHECKING:
    from silohash.evaluate.measures import Measure

SUMMED_CUTOFFS = (1, 5, 10)
"""Cutoffs of the recalls that RSum adds up."""

BY = (
    "by=labels (items that share a label are relevant) | pairs (only a picture's own texts and a text's own picture are, in "
    "i2t and t2i; the items of the split query are searched) | scores (the ten items with the highest scores are, among the "
    "same items; they are ranked by their codes, which find the candidates of a model that scores pairs)"
)
FOLDS = (
    "folds=5 (by pairs: divide the pictures into five parts of consecutive ones, each searched by itself; the figure is of "
    "the queries of all parts)"
)
TIES = (
    "ties=expected (mean over all orders of items at equal distance) | index (order of the database) | "
    "worst (relevant items come last)"
)
EMPTY = "empty=zero (a query without relevant items counts as 0) | skip (the mean leaves it out)"


class MeasureKind(ABC):
    """A measure that users can name, apart from its conventions, which are those of a `Measure`.

    Attributes:
        forms: Examples of its names, as users write them.
        meaning: What it measures, in one sentence.
        options: Its options with their values, for `silohash list measure`.
        needs_cutoff: Whether it must have a cutoff or a radius, because it does not depend on the ranking of all items.
        without_cutoff: Why it cannot have a cutoff, after "because"; empty if it can.
        has_radius: Whether it can have a radius in place of a cutoff.
        is_rank: Whether the values are ranks, of which lower ones are better, and not shares from 0 to 1.
    """

    forms: ClassVar[tuple[str, ...]]
    meaning: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = (BY, TIES, EMPTY)
    needs_cutoff: ClassVar[bool] = False
    without_cutoff: ClassVar[str] = ""
    has_radius: ClassVar[bool] = False
    is_rank: ClassVar[bool] = False

    def conventions(self, measure: Measure) -> Sequence[str]:
        """Return the names of the conventions that only this kind has, such as ``gain``."""
        return ()

    def parts(self, measure: Measure) -> tuple[Measure, ...]:
        """Return the measures whose values this one adds up: by default itself."""
        return (measure,)

    @abstractmethod
    def over_orders(self, measure: Measure, counts: Histogram) -> TieValues:
        """Return the mean, highest and lowest value of each query over all orders of the tied items.

        Raises:
            UserError: If the measure does not fit the codes.
        """

    @abstractmethod
    def in_known_order(self, measure: Measure, gains: ranked.Gains) -> Values:
        """Return the values ``(Q,)`` if items are ranked in a known order, from their relevance in that order."""


@cache
def kind_of(name: str) -> MeasureKind:
    """Return the kind of the measures of a name, such as ``mAP``.

    Raises:
        UserError: If there is none, or if its module cannot be imported.
    """
    kind: MeasureKind = MEASURES.resolve(name)()
    return kind


class MeanAveragePrecision(MeasureKind):
    """Mean average precision."""

    forms: ClassVar[tuple[str, ...]] = ("mAP@all", "mAP@50")
    meaning = "mean average precision over the whole database, or over the first k items"
    options = (
        "denominator=retrieved (relevant items among the first k) | min (of k and all relevant items) | "
        "all (relevant items in the database) | first-k-relevant (legacy: the first k of these at any position); "
        "only with a cutoff",
        *MeasureKind.options,
    )

    def conventions(self, measure: Measure) -> Sequence[str]:
        """Return the denominator, which has no effect without a cutoff."""
        return () if measure.cutoff is None else ("denominator",)

    def over_orders(self, measure: Measure, counts: Histogram) -> TieValues:
        """Return the average precision."""
        if measure.cutoff is None:
            return ties.average_precision(counts)
        return cutoffs.average_precision_at(counts, measure.cutoff, measure.denominator)

    def in_known_order(self, measure: Measure, gains: ranked.Gains) -> Values:
        """Return the average precision in a known order."""
        return ranked.average_precision(gains, measure.cutoff, measure.denominator)


class Success(MeasureKind):
    """The share of queries with a relevant item among the first k."""

    forms: ClassVar[tuple[str, ...]] = ("Success@10",)
    meaning = "the share of queries with a relevant item among the first k, which is Recall@K of captions and pictures"
    needs_cutoff = True

    def over_orders(self, measure: Measure, counts: Histogram) -> TieValues:
        """Return the probability that a relevant item is found."""
        return cutoffs.success(counts, cutoff_of(measure))

    def in_known_order(self, measure: Measure, gains: ranked.Gains) -> Values:
        """Return whether a relevant item is found."""
        return np.minimum(ranked.hits(gains, measure.cutoff), 1.0)


class Precision(MeasureKind):
    """The share of relevant items among those that are found."""

    forms: ClassVar[tuple[str, ...]] = ("P@10", "P@radius2")
    meaning = (
        "precision: the share of relevant items among the first k, or among those within a radius in bits "
        "(0 without any)"
    )
    needs_cutoff = True
    has_radius = True

    def over_orders(self, measure: Measure, counts: Histogram) -> TieValues:
        """Return the hits per item that counts."""
        if measure.radius_bits is not None:
            found, within = _within_radius(measure, counts, measure.radius_bits)
            return _without_ties(ties.divided(found, within))
        return TieValues(*(_per(cutoff_of(measure), found) for found in cutoffs.hits(counts, cutoff_of(measure))))

    def in_known_order(self, measure: Measure, gains: ranked.Gains) -> Values:
        """Return the hits per item that counts in a known order."""
        return _per(cutoff_of(measure), ranked.hits(gains, measure.cutoff))


class Recall(MeasureKind):
    """The share of all relevant items that are found. By pairs, a query counts as 1 as soon as one partner is found."""

    forms: ClassVar[tuple[str, ...]] = ("R@10", "R@radius2")
    meaning = (
        "recall: the share of all relevant items that are among the first k, or within a radius in bits; by pairs, the "
        "share of queries with a partner among them, as is usual for captions"
    )
    needs_cutoff = True
    has_radius = True

    def over_orders(self, measure: Measure, counts: Histogram) -> TieValues:
        """Return the hits per relevant item."""
        if measure.radius_bits is not None:
            found, _ = _within_radius(measure, counts, measure.radius_bits)
            if measure.by == "pairs":
                return _without_ties((found > 0).astype(np.float64))
            return _without_ties(ties.divided(found, counts.relevant_in_all))
        if measure.by == "pairs":
            return cutoffs.success(counts, cutoff_of(measure))
        found_in_order = cutoffs.hits(counts, cutoff_of(measure))
        return TieValues(*(ties.divided(found, counts.relevant_in_all) for found in found_in_order))

    def in_known_order(self, measure: Measure, gains: ranked.Gains) -> Values:
        """Return the hits per relevant item in a known order."""
        found = ranked.hits(gains, measure.cutoff)
        return np.minimum(found, 1.0) if measure.by == "pairs" else ties.divided(found, (gains > 0).sum(1))


class DiscountedGain(MeasureKind):
    """Normalized discounted cumulative gain."""

    forms: ClassVar[tuple[str, ...]] = ("nDCG@all", "nDCG@100")
    meaning = "normalized discounted cumulative gain, graded by the number s of shared labels"
    options = ("gain=linear (s) | exponential (2^s - 1)", *MeasureKind.options)

    def conventions(self, measure: Measure) -> Sequence[str]:
        """Return the gain."""
        return ("gain",)

    def over_orders(self, measure: Measure, counts: Histogram) -> TieValues:
        """Return the gain of the ranking divided by that of the best one."""
        return cutoffs.ndcg(counts, measure.cutoff, measure.gain)

    def in_known_order(self, measure: Measure, gains: ranked.Gains) -> Values:
        """Return the gain of the ranking in a known order divided by that of the best one."""
        return ranked.ndcg(gains, measure.cutoff, measure.gain)


class MedianRank(MeasureKind):
    """The rank of the first relevant item."""

    forms: ClassVar[tuple[str, ...]] = ("MedR",)
    meaning = "the median over queries of the rank of the first relevant item, from 1; lower is better"
    options = (
        BY,
        TIES,
        "empty=zero (a query without relevant items has the rank after the last item) | skip (it is left out)",
    )
    without_cutoff = "it is a rank"
    is_rank = True

    def over_orders(self, measure: Measure, counts: Histogram) -> TieValues:
        """Return the rank of the first relevant item."""
        return cutoffs.first_rank(counts)

    def in_known_order(self, measure: Measure, gains: ranked.Gains) -> Values:
        """Return the rank of the first relevant item in a known order."""
        return ranked.first_rank(gains)


class RecallSum(Recall):
    """The sum of three recalls."""

    forms: ClassVar[tuple[str, ...]] = ("RSum[by=pairs]",)
    meaning = (
        "the sum of R@1, R@5 and R@10, from 0 to 3; the rSum of papers is 100 times the sum of its values for i2t and "
        "t2i"
    )
    options = (BY, FOLDS, TIES, EMPTY)
    needs_cutoff = False
    without_cutoff = "it adds up recalls at several"
    has_radius = False

    def parts(self, measure: Measure) -> tuple[Measure, ...]:
        """Return the three recalls."""
        return tuple(replace(measure, name="R", cutoff=cutoff) for cutoff in SUMMED_CUTOFFS)


def cutoff_of(measure: Measure) -> int:
    """Return the cutoff of a measure that must have one.

    Raises:
        UserError: If it has none.
    """
    if measure.cutoff is None:
        raise SettingNeeded(f'"{measure}" does not depend on the ranking. Give a cutoff, as "{measure.name}@10".')
    return measure.cutoff


def _per(cutoff: int, found: Values) -> Values:
    return ties.divided(found, np.full(len(found), cutoff))


def _within_radius(measure: Measure, counts: Histogram, radius_bits: int) -> tuple[Counts, Counts]:
    """Return the number of relevant items and of all items within a radius."""
    if radius_bits > counts.bits:
        raise OutOfRange(
            f'The radius of "{measure}" exceeds the largest distance of codes of {counts.bits} bits. Lower it.'
        )
    relevant, items = (part[:, : radius_bits + 1].sum(1) for part in (counts.relevant, counts.items))
    return np.asarray(relevant), np.asarray(items)


def _without_ties(values: Values) -> TieValues:
    """Return values that do not depend on the order of ties."""
    untouched = np.full(len(values), np.nan)
    return TieValues(values, untouched, untouched)
