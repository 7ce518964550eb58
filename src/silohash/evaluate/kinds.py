"""What each measure counts, as a closed form over the histogram of distances, so that ties are exact and silos add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

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


@dataclass(frozen=True, kw_only=True)
class MeasureKind:
    """A measure that users can name, apart from its conventions, which are those of a `Measure`.

    Attributes:
        over_orders: Returns the mean, highest and lowest value of each query over all orders of the tied items.
        in_known_order: Returns the values ``(Q,)`` if items are ranked in a known order, from their relevance in that order.
        forms: Examples of its names, as users write them.
        meaning: What it measures, in one sentence.
        options: Its options with their values, for `silohash list measure`.
        conventions: Returns the names of the conventions that only this kind has, such as ``gain``.
        parts: Returns the measures whose values this one adds up: by default itself.
        needs_cutoff: Whether it must have a cutoff or a radius, because it does not depend on the ranking of all items.
        without_cutoff: Why it cannot have a cutoff, after "because"; empty if it can.
        has_radius: Whether it can have a radius in place of a cutoff.
        is_rank: Whether the values are ranks, of which lower ones are better, and not shares from 0 to 1.
    """

    over_orders: Callable[[Measure, Histogram], TieValues]
    in_known_order: Callable[[Measure, ranked.Gains], Values]
    forms: tuple[str, ...]
    meaning: str
    options: tuple[str, ...] = (BY, TIES, EMPTY)
    conventions: Callable[[Measure], Sequence[str]] = lambda _: ()
    parts: Callable[[Measure], tuple[Measure, ...]] = lambda measure: (measure,)
    needs_cutoff: bool = False
    without_cutoff: str = ""
    has_radius: bool = False
    is_rank: bool = False


@cache
def kind_of(name: str) -> MeasureKind:
    """Return the kind of the measures of a name, such as ``mAP``.

    Raises:
        UserError: If there is none, or if its module cannot be imported.
    """
    kind: MeasureKind = MEASURES.resolve(name)
    return kind


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
    if radius_bits > counts.bits:
        raise OutOfRange(
            f'The radius of "{measure}" exceeds the largest distance of codes of {counts.bits} bits. Lower it.'
        )
    relevant, items = (part[:, : radius_bits + 1].sum(1) for part in (counts.relevant, counts.items))
    return np.asarray(relevant), np.asarray(items)


def _without_ties(values: Values) -> TieValues:
    untouched = np.full(len(values), np.nan)
    return TieValues(values, untouched, untouched)


def _average_precision(measure: Measure, counts: Histogram) -> TieValues:
    if measure.cutoff is None:
        return ties.average_precision(counts)
    return cutoffs.average_precision_at(counts, measure.cutoff, measure.denominator)


def _precision(measure: Measure, counts: Histogram) -> TieValues:
    if measure.radius_bits is not None:
        found, within = _within_radius(measure, counts, measure.radius_bits)
        return _without_ties(ties.divided(found, within))
    return TieValues(*(_per(cutoff_of(measure), found) for found in cutoffs.hits(counts, cutoff_of(measure))))


def _recall(measure: Measure, counts: Histogram) -> TieValues:
    """Return the hits per relevant item; by pairs, whether there is a hit."""
    if measure.radius_bits is not None:
        found, _ = _within_radius(measure, counts, measure.radius_bits)
        if measure.by == "pairs":
            return _without_ties((found > 0).astype(np.float64))
        return _without_ties(ties.divided(found, counts.relevant_in_all))
    if measure.by == "pairs":
        return cutoffs.success(counts, cutoff_of(measure))
    found_in_order = cutoffs.hits(counts, cutoff_of(measure))
    return TieValues(*(ties.divided(found, counts.relevant_in_all) for found in found_in_order))


def _recall_in_order(measure: Measure, gains: ranked.Gains) -> Values:
    found = ranked.hits(gains, measure.cutoff)
    return np.minimum(found, 1.0) if measure.by == "pairs" else ties.divided(found, (gains > 0).sum(1))


MEAN_AVERAGE_PRECISION = MeasureKind(
    over_orders=_average_precision,
    in_known_order=lambda measure, gains: ranked.average_precision(gains, measure.cutoff, measure.denominator),
    forms=("mAP@all", "mAP@50"),
    meaning="mean average precision over the whole database, or over the first k items",
    options=(
        "denominator=retrieved (relevant items among the first k) | min (of k and all relevant items) | "
        "all (relevant items in the database) | first-k-relevant (legacy: the first k of these at any position); "
        "only with a cutoff",
        BY,
        TIES,
        EMPTY,
    ),
    conventions=lambda measure: () if measure.cutoff is None else ("denominator",),
)

SUCCESS = MeasureKind(
    over_orders=lambda measure, counts: cutoffs.success(counts, cutoff_of(measure)),
    in_known_order=lambda measure, gains: np.minimum(ranked.hits(gains, measure.cutoff), 1.0),
    forms=("Success@10",),
    meaning="the share of queries with a relevant item among the first k, which is Recall@K of captions and pictures",
    needs_cutoff=True,
)

PRECISION = MeasureKind(
    over_orders=_precision,
    in_known_order=lambda measure, gains: _per(cutoff_of(measure), ranked.hits(gains, measure.cutoff)),
    forms=("P@10", "P@radius2"),
    meaning="precision: the share of relevant items among the first k, or among those within a radius in bits (0 without "
    "any)",
    needs_cutoff=True,
    has_radius=True,
)

RECALL = MeasureKind(
    over_orders=_recall,
    in_known_order=_recall_in_order,
    forms=("R@10", "R@radius2"),
    meaning="recall: the share of all relevant items that are among the first k, or within a radius in bits; by pairs, the "
    "share of queries with a partner among them, as is usual for captions",
    needs_cutoff=True,
    has_radius=True,
)

DISCOUNTED_GAIN = MeasureKind(
    over_orders=lambda measure, counts: cutoffs.ndcg(counts, measure.cutoff, measure.gain),
    in_known_order=lambda measure, gains: ranked.ndcg(gains, measure.cutoff, measure.gain),
    forms=("nDCG@all", "nDCG@100"),
    meaning="normalized discounted cumulative gain, graded by the number s of shared labels",
    options=("gain=linear (s) | exponential (2^s - 1)", BY, TIES, EMPTY),
    conventions=lambda _: ("gain",),
)

MEDIAN_RANK = MeasureKind(
    over_orders=lambda _, counts: cutoffs.first_rank(counts),
    in_known_order=lambda _, gains: ranked.first_rank(gains),
    forms=("MedR",),
    meaning="the median over queries of the rank of the first relevant item, from 1; lower is better",
    options=(
        BY,
        TIES,
        "empty=zero (a query without relevant items has the rank after the last item) | skip (it is left out)",
    ),
    without_cutoff="it is a rank",
    is_rank=True,
)

RECALL_SUM = replace(
    RECALL,
    forms=("RSum[by=pairs]",),
    meaning="the sum of R@1, R@5 and R@10, from 0 to 3; the rSum of papers is 100 times the sum of its values for i2t and "
    "t2i",
    options=(BY, FOLDS, TIES, EMPTY),
    parts=lambda measure: tuple(replace(measure, name="R", cutoff=cutoff) for cutoff in SUMMED_CUTOFFS),
    needs_cutoff=False,
    without_cutoff="it adds up recalls at several",
    has_radius=False,
)
