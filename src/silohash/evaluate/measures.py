"""Retrieval measures: their names, which users type and results show, and how they are computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from silohash.base.errors import NoEffect, OutOfRange, TooFew, UnknownName, UnknownOption, WrongChoice, WrongForm
from silohash.base.registry import suggestion
from silohash.base.types import Rows
from silohash.evaluate import MEASURES, ranked
from silohash.evaluate.cutoffs import Denominator, Gain
from silohash.evaluate.items import Database, ItemCodes, counts_by_distance, gains_by_distance
from silohash.evaluate.kinds import MeasureKind, cutoff_of, kind_of
from silohash.evaluate.relevance import Packed, Pairs, Relevance
from silohash.evaluate.scores import Scores
from silohash.evaluate.ties import Histogram, TieValues, Values

By: TypeAlias = Literal["labels", "pairs", "scores"]
Ties: TypeAlias = Literal["expected", "index", "worst"]
Empty: TypeAlias = Literal["zero", "skip"]

RANKED_BYTES = 1 << 26
"""Memory limit for the ranked items of a block of queries."""

PAIR_MEASURES = ("R@1[by=pairs]", "R@5[by=pairs]", "R@10[by=pairs]", "MedR[by=pairs]")
"""The measures of a run whose archive does not have labels."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "denominator": get_args(Denominator),
    "gain": get_args(Gain),
    "by": get_args(By),
    "ties": get_args(Ties),
    "empty": get_args(Empty),
}
_FORM = re.compile(r"(?P<name>\w+)(@(?P<cutoff>\w+))?(\[(?P<options>[^\[\]]*)\])?")
MOST_DIGITS = 9
"""Most digits of a number in the name of a measure, so that sums with it fit 64 bits."""


def describe() -> list[dict[str, Any]]:
    """Return the ``name``, ``forms``, ``meaning`` and ``options`` of every measure, ready for JSON."""
    kinds = {name: kind_of(name) for name in MEASURES.names()}
    return [
        {"name": name, "forms": kind.forms, "meaning": kind.meaning, "options": kind.options}
        for name, kind in kinds.items()
    ]


@dataclass(frozen=True)
class Measure:
    """A retrieval measure with its conventions. `str` gives the name that a user types.

    Attributes:
        name: ``mAP``, ``P``, ``R``, ``nDCG``, ``Success``, ``MedR``, ``RSum``, or the name of an added measure.
        cutoff: Number of items that count; None for all, or if there is a radius.
        radius_bits: Largest distance of items that count, in place of a cutoff; for P and R.
        denominator: Divisor of mAP with a cutoff.
        by: What makes an item relevant.
        folds: Number of parts of the pictures that are searched by themselves; only by pairs.
        ties: Order of items at equal distance.
        empty: Treatment of queries without relevant items.

    Example:
        >>> str(Measure.parse("mAP@50[ties=index, denominator=retrieved]"))
        'mAP@50[denominator=retrieved,ties=index]'
        >>> str(Measure.parse("map@ALL"))
        'mAP@all'
        >>> str(Measure.parse("R@1[by=pairs, ties=worst]"))
        'R@1[by=pairs,ties=worst]'
    """

    name: str
    cutoff: int | None = None
    radius_bits: int | None = None
    denominator: Denominator = "retrieved"
    gain: Gain = "linear"
    by: By = "labels"
    folds: int = 1
    ties: Ties = "expected"
    empty: Empty = "zero"

    def __post_init__(self) -> None:
        text = str(self)
        if self.cutoff is not None and self.cutoff < 1:
            raise OutOfRange(f'The cutoff of "{text}" is {self.cutoff}; it must be at least 1.')
        if self.radius_bits is not None and (not self.kind.has_radius or self.cutoff is not None):
            having = " and ".join(name for name in MEASURES.names() if kind_of(name).has_radius)
            raise NoEffect(f'"{text}" cannot have a radius. Only {having} can, as "P@radius2".')
        if self.kind.without_cutoff and self.cutoff is not None:
            raise NoEffect(f'"{self.name}" has no cutoff, because {self.kind.without_cutoff}. Write "{self.name}".')
        if self.kind.needs_cutoff and self.radius_bits is None:
            cutoff_of(self)
        for option in self._options_without_use():
            bare = text.split("[")[0]
            raise UnknownOption(f'"{bare}" has no option "{option}"; it has {", ".join(self._options())}.')

    @property
    def kind(self) -> MeasureKind:
        """What the measure counts."""
        return kind_of(self.name)

    def _options(self) -> list[str]:
        folds = ["folds"] if self.by == "pairs" else []
        tied = [] if self.radius_bits is not None else ["ties"]
        return [*self.kind.conventions(self), "by", *folds, *tied, "empty"]

    def _options_without_use(self) -> list[str]:
        defaults = {field.name: field.default for field in fields(self)}
        used = self._options()
        return [name for name in (*_CHOICES, "folds") if name not in used and getattr(self, name) != defaults[name]]

    def __str__(self) -> str:
        where = "all" if self.cutoff is None else str(self.cutoff)
        where = where if self.radius_bits is None else f"radius{self.radius_bits}"
        name = self.name if self.kind.without_cutoff and self.cutoff is None else f"{self.name}@{where}"
        defaults = {field.name: field.default for field in fields(self) if field.name != "denominator"}
        shown = [n for n in self._options() if getattr(self, n) != defaults.get(n)]
        options = ",".join(f"{option}={getattr(self, option)}" for option in shown)
        return name + (f"[{options}]" if options else "")

    @staticmethod
    def parse(text: str) -> Measure:
        """Return the measure of a name such as ``mAP@50[denominator=min]``.

        Raises:
            UserError: If the measure, the cutoff or an option does not exist; suggests the nearest.
        """
        match = _FORM.fullmatch(text.strip())
        known = {name.lower(): name for name in MEASURES.names()}
        name = "" if match is None else known.get(match["name"].lower(), "")
        if match is None or (match["cutoff"] is None and not (name and kind_of(name).without_cutoff)):
            raise WrongForm(
                f'"{text}" is not a measure. Write one such as "mAP@all", "mAP@50[denominator=min,ties=index]" or "P@10".'
            )
        options = _parsed_options(text, match["options"] or "")
        where = _where(text, (match["cutoff"] or "all").lower())
        if not name:
            near = suggestion(match["name"].lower(), known)  # in lower case, as users type the names
            for lower, right in known.items():
                near = near.replace(f'"{lower}"', f'"{right}"')
            raise UnknownName(f'There is no measure "{match["name"]}"{near}. Available: {", ".join(known.values())}.')
        values: dict[str, Any] = {"name": name, **where, **options}
        measure = Measure(**values)
        for option in options:
            if option not in measure._options():
                raise UnknownOption(f'"{text}" has no option "{option}"; it has {", ".join(measure._options())}.')
        return measure


def _parsed_options(text: str, given: str) -> dict[str, str | int]:
    options: dict[str, str | int] = {}
    for part in filter(None, given.split(",")):
        option, _, value = (piece.strip() for piece in part.partition("="))
        if option == "folds":
            if not _is_number(value) or not int(value):
                raise OutOfRange(
                    f'"{text}": folds is "{value}"; it must be a whole number of at least 1, as in "R@1[by=pairs,folds=5]".'
                )
            options[option] = int(value)
            continue
        if option not in _CHOICES:
            near = suggestion(option, _CHOICES)
            raise UnknownOption(f'"{text}": there is no option "{option}"{near}. Available: {", ".join(_CHOICES)}.')
        if value not in _CHOICES[option]:
            near = suggestion(value, _CHOICES[option])
            raise WrongChoice(f'"{text}": {option} cannot be "{value}"{near}; it is {" or ".join(_CHOICES[option])}.')
        options[option] = value
    return options


def _where(text: str, cutoff: str) -> dict[str, int | None]:
    radius = re.fullmatch(r"radius(\d{1,9})", cutoff)
    if radius:
        return {"radius_bits": int(radius[1])}
    if cutoff != "all" and not _is_number(cutoff):
        near = suggestion(cutoff, ["all", "radius2"])
        raise WrongForm(
            f'"{text}": "{cutoff}" is not a cutoff{near}. Write a number of up to {MOST_DIGITS} digits, "all", or a radius '
            'such as "radius2".'
        )
    return {"cutoff": None if cutoff == "all" else int(cutoff)}


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST_DIGITS


@dataclass(frozen=True)
class PerQuery:
    """Values of a measure, one per query.

    Attributes:
        value: ``(Q,)`` float64.
        best: ``(Q,)`` highest value over all orders of ties; NaN for a measure without ties.
        worst: ``(Q,)`` lowest value over all orders of ties.
        counted: ``(Q,)`` bool, which queries enter the mean.
        prior: Share of relevant items over the counted queries, which is the mAP of random codes. By pairs, the value of
            the measure for random codes.
        are_ranks: Whether the values are ranks, which have a median in place of a mean.
    """

    value: Values
    best: Values
    worst: Values
    counted: npt.NDArray[np.bool_]
    queries_without_relevant: int
    prior: float
    are_ranks: bool = False

    def mean(self, of: Literal["value", "best", "worst"] = "value") -> float:
        """Return the mean over the counted queries, or the median of ranks; NaN if there are none."""
        return mean_of(getattr(self, of)[self.counted], are_ranks=self.are_ranks)


def mean_of(values: Values, *, are_ranks: bool = False) -> float:
    """Return the mean of values of queries, or the median of ranks; NaN if there are none."""
    if not len(values):
        return float("nan")
    return float(np.median(values) if are_ranks else values.mean())


def is_rank(measure: str) -> bool:
    """Return whether the measure of this name has ranks as values, of which lower ones are better.

    Example:
        >>> is_rank("MedR[by=pairs]"), is_rank("R@10")
        (True, False)
    """
    name = measure.partition("@")[0].partition("[")[0]
    return name in MEASURES.targets() and kind_of(name).is_rank


def by_pairs(measure: str) -> bool:
    """Return whether only a query's partners are relevant in the measure of this name.

    Example:
        >>> by_pairs("R@1[by=pairs,ties=worst]"), by_pairs("R@1")
        (True, False)
    """
    return "by=pairs" in measure


def by_scores(measure: str) -> bool:
    """Return whether the measure of this name compares the codes of a model with its scores.

    Example:
        >>> by_scores("R@100[by=scores]"), by_scores("R@1[by=pairs]")
        (True, False)
    """
    return "by=scores" in measure


def evaluate_all(
    measures: Sequence[Measure], query_words: Packed, database: Database, relevance: Relevance | Pairs, bits: int
) -> dict[Measure, PerQuery]:
    """Compute several measures of one retrieval task. The codes are compared once.

    The queries have packed codes ``(Q, W)`` of an unsigned type. The database has such codes ``(N, W)``, the codes of items
    with several sides, or the scores of queries with items. With scores, the codes of the queries have no effect and the
    bits are 0.

    Raises:
        UserError: If codes and relevance do not fit together, or a radius exceeds the code length.
    """
    graded = isinstance(relevance, Relevance) and any(
        "gain" in measure.kind.conventions(measure) for measure in measures
    )
    counts = counts_by_distance(query_words, database, relevance, bits, graded=graded)
    parts = {measure: measure.kind.parts(measure) for measure in measures}
    single = set(chain.from_iterable(parts.values()))
    values = {measure: _tie_values(measure, counts) for measure in single}
    if in_order := [measure for measure in single if measure.ties == "index"]:
        by_index = _by_index(in_order, gains_by_distance(query_words, database, relevance, bits), relevance)
        # A ranking ends before the items that it leaves out, whose places are zeros at its end.
        for measure in filter(lambda m: m.kind.is_rank, in_order):
            by_index[measure] = np.minimum(by_index[measure], counts.items.sum(1) + 1)
        values |= {m: TieValues(by_index[m], values[m].best, values[m].worst) for m in in_order}
    return {measure: _per_query(measure, counts, [values[part] for part in parts[measure]]) for measure in measures}


def _per_query(measure: Measure, counts: Histogram, parts: Sequence[TieValues]) -> PerQuery:
    values = TieValues(*(np.sum(column, axis=0) for column in zip(*parts, strict=True)))
    has_relevant = counts.relevant_in_all > 0
    counted = has_relevant if measure.empty == "skip" else np.ones_like(has_relevant)
    prior = _prior(measure, counts, counted)
    return PerQuery(*values, counted, int((~has_relevant).sum()), prior, are_ranks=measure.kind.is_rank)


def _prior(measure: Measure, counts: Histogram, counted: npt.NDArray[np.bool_]) -> float:
    """Return what random codes reach: the share of relevant items or, by pairs, the measure with all items tied."""
    if measure.by != "labels" and measure.radius_bits is None:
        tied = counts.all_tied()
        parts = measure.kind.parts(measure)
        priors = [part.kind.over_orders(part, tied).expected[counted] for part in parts]
        return sum(mean_of(values, are_ranks=measure.kind.is_rank) for values in priors)
    pairs = int(counts.items[counted].sum())
    return int(counts.relevant_in_all[counted].sum()) / pairs if pairs else float("nan")


def _tie_values(measure: Measure, counts: Histogram) -> TieValues:
    found = measure.kind.over_orders(measure, counts)
    return TieValues(found.worst, found.best, found.worst) if measure.ties == "worst" else found


def _by_index(
    measures: Sequence[Measure], ranking: Callable[[Rows], ranked.Gains], relevance: Relevance | Pairs
) -> dict[Measure, Values]:
    """Return the values of measures with ties in the order of the database."""
    values = {measure: np.empty(relevance.queries) for measure in measures}
    step = max(1, RANKED_BYTES // (16 * relevance.items))
    for start in range(0, relevance.queries, step):
        rows = np.arange(start, min(start + step, relevance.queries))
        gains = ranking(rows)
        for measure in measures:
            values[measure][rows] = measure.kind.in_known_order(measure, gains)
    return values


def evaluate_in_folds(
    measures: Sequence[Measure], query_words: Packed, database: Database, relevance: Relevance | Pairs, bits: int
) -> dict[Measure, PerQuery]:
    """Compute several measures of one retrieval task, some of them over parts of the pictures.

    See `evaluate_all` for the arguments. A measure with ``folds`` has one value per query, among the items of its part.

    Raises:
        UserError: If there are fewer pictures than folds, or `evaluate_all` refuses the arguments.
    """
    found: dict[Measure, PerQuery] = {}
    for count in sorted({measure.folds for measure in measures}):
        some = [measure for measure in measures if measure.folds == count]
        if count > 1 and isinstance(relevance, Pairs) and not isinstance(database, ItemCodes):
            found |= _over_parts(some, query_words, database, relevance, bits)
        else:
            found |= evaluate_all(some, query_words, database, relevance, bits)
    return {measure: found[measure] for measure in measures}


def _over_parts(
    measures: Sequence[Measure], query_words: Packed, database: Packed | Scores, pairs: Pairs, bits: int
) -> dict[Measure, PerQuery]:
    parts = folds_of(pairs, measures[0].folds)
    values = []
    for queries, items in parts:
        among = _among(pairs, queries, items)
        if isinstance(database, Scores):
            values.append(evaluate_all(measures, query_words, database.take(queries, items), among, bits))
        else:
            values.append(evaluate_all(measures, query_words[queries], database[items], among, bits))
    order = np.argsort(np.concatenate([queries for queries, _ in parts]))
    return {measure: _joined([part[measure] for part in values], order) for measure in measures}


def folds_of(pairs: Pairs, count: int) -> list[tuple[Rows, Rows]]:
    """Return the rows of the queries and of the items in each of ``count`` parts of consecutive pictures.

    The side with fewer rows is that of the pictures. A row of the other side belongs to the picture that is its partner.

    Raises:
        UserError: If there are fewer pictures than parts.
    """
    asked = pairs.queries <= pairs.items
    pictures, texts = (pairs.queries, pairs.items) if asked else (pairs.items, pairs.queries)
    if count > pictures:
        raise TooFew(f"{pictures} pictures cannot be divided into {count} folds. Lower folds in the measure.")
    picture_of = np.full(texts, -1)
    ends = (pairs.database_rows, pairs.query_rows) if asked else (pairs.query_rows, pairs.database_rows)
    picture_of[ends[0]] = ends[1]
    fold = np.arange(pictures) * count // pictures
    found = []
    for number in range(count):
        some = np.flatnonzero(fold == number)
        their = np.flatnonzero(np.isin(picture_of, some))
        found.append((some, their) if asked else (their, some))
    return found


def _among(pairs: Pairs, queries: Rows, items: Rows) -> Pairs:
    """Return the pairs of some queries and some items, with their new rows. Both are sorted."""
    kept = np.isin(pairs.query_rows, queries) & np.isin(pairs.database_rows, items)
    query_rows, database_rows = pairs.query_rows[kept], pairs.database_rows[kept]
    return Pairs(len(queries), len(items), np.searchsorted(queries, query_rows), np.searchsorted(items, database_rows))


def _joined(parts: Sequence[PerQuery], order: Rows) -> PerQuery:
    """Return the values of all parts in the order of the queries. The prior is the mean, weighted by the queries."""
    names = ("value", "best", "worst", "counted")
    columns = {name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names}
    return PerQuery(
        **columns,
        queries_without_relevant=sum(part.queries_without_relevant for part in parts),
        prior=float(np.average([part.prior for part in parts], weights=[len(part.value) for part in parts])),
        are_ranks=parts[0].are_ranks,
    )
