"""Retrieval measures: their names, which users type and results show, and how they are computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from silohash.base.registry import suggestion
from silohash.base.types import Rows, UserError
from silohash.evaluate import cutoffs, ranked, ties
from silohash.evaluate.cutoffs import Denominator, Gain
from silohash.evaluate.items import ItemCodes, counts_by_distance, gains_by_distance
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.evaluate.scores import Scores
from silohash.evaluate.ties import Histogram, TieValues, Values

Name: TypeAlias = Literal["mAP", "P", "R", "nDCG", "Success", "MedR", "RSum"]
By: TypeAlias = Literal["labels", "pairs", "scores"]
Ties: TypeAlias = Literal["expected", "index", "worst"]
Empty: TypeAlias = Literal["zero", "skip"]

RANKED_BYTES = 1 << 26
"""Memory limit for the ranked items of a block of queries."""


class Description(NamedTuple):
    """Description of a measure in `silohash list measure`."""

    name: str
    forms: tuple[str, ...]
    meaning: str
    options: tuple[str, ...]


PAIR_MEASURES = ("R@1[by=pairs]", "R@5[by=pairs]", "R@10[by=pairs]", "MedR[by=pairs]")
"""The measures of a run whose archive does not have labels."""

_BY = (
    "by=labels (items that share a label are relevant) | pairs (only a picture's own texts and a text's own picture are, in "
    "i2t and t2i; the items of the split query are searched) | scores (the ten items with the highest scores are, among the "
    "same items; they are ranked by their codes, which find the candidates of a model that scores pairs)"
)
_FOLDS = (
    "folds=5 (by pairs: divide the pictures into five parts of consecutive ones, each searched by itself; the figure is of "
    "the queries of all parts)"
)
_TIES = (
    "ties=expected (mean over all orders of items at equal distance) | index (order of the database) | "
    "worst (relevant items come last)"
)
_EMPTY = "empty=zero (a query without relevant items counts as 0) | skip (the mean leaves it out)"

DESCRIPTIONS: tuple[Description, ...] = (
    Description(
        "mAP",
        ("mAP@all", "mAP@50"),
        "mean average precision over the whole database, or over the first k items",
        (
            "denominator=retrieved (relevant items among the first k) | min (of k and all relevant items) | "
            "all (relevant items in the database) | first-k-relevant (legacy: the first k of these at any position); "
            "only with a cutoff",
            _BY,
            _TIES,
            _EMPTY,
        ),
    ),
    Description(
        "P",
        ("P@10", "P@radius2"),
        "precision: the share of relevant items among the first k, or among those within a radius in bits (0 without any)",
        (_BY, _TIES, _EMPTY),
    ),
    Description(
        "R",
        ("R@10", "R@radius2"),
        "recall: the share of all relevant items that are among the first k, or within a radius in bits; by pairs, the "
        "share of queries with a partner among them, as is usual for captions",
        (_BY, _TIES, _EMPTY),
    ),
    Description(
        "nDCG",
        ("nDCG@all", "nDCG@100"),
        "normalized discounted cumulative gain, graded by the number s of shared labels",
        ("gain=linear (s) | exponential (2^s - 1)", _BY, _TIES, _EMPTY),
    ),
    Description(
        "Success",
        ("Success@10",),
        "the share of queries with a relevant item among the first k, which is Recall@K of captions and pictures",
        (_BY, _TIES, _EMPTY),
    ),
    Description(
        "MedR",
        ("MedR",),
        "the median over queries of the rank of the first relevant item, from 1; lower is better",
        (
            _BY,
            _TIES,
            "empty=zero (a query without relevant items has the rank after the last item) | skip (it is left out)",
        ),
    ),
    Description(
        "RSum",
        ("RSum[by=pairs]",),
        "the sum of R@1, R@5 and R@10, from 0 to 3; the rSum of papers is 100 times the sum of its values for i2t and t2i",
        (_BY, _FOLDS, _TIES, _EMPTY),
    ),
)

_CHOICES: dict[str, tuple[str, ...]] = {
    "denominator": get_args(Denominator),
    "gain": get_args(Gain),
    "by": get_args(By),
    "ties": get_args(Ties),
    "empty": get_args(Empty),
}
_FORM = re.compile(r"(?P<name>\w+)(@(?P<cutoff>\w+))?(\[(?P<options>[^\[\]]*)\])?")
_WITHOUT_CUTOFF = ("MedR", "RSum")
MOST_DIGITS = 9
"""Most digits of a number in the name of a measure, so that sums with it fit 64 bits."""

SUMMED_CUTOFFS = (1, 5, 10)
"""Cutoffs of the recalls that RSum adds up."""


def describe() -> list[dict[str, Any]]:
    """Return the ``name``, ``forms``, ``meaning`` and ``options`` of every measure, ready for JSON."""
    return [description._asdict() for description in DESCRIPTIONS]


@dataclass(frozen=True)
class Measure:
    """A retrieval measure with its conventions. `str` gives the name that a user types.

    Attributes:
        name: ``mAP``, ``P``, ``R``, ``nDCG``, ``Success``, ``MedR`` or ``RSum``.
        cutoff: Number of items that count; None for all, or if there is a radius.
        radius_bits: Largest distance of items that count, in place of a cutoff; only for P and R.
        denominator: Divisor of mAP with a cutoff.
        gain: Gain of an item in nDCG.
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

    name: Name
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
            raise UserError(f'The cutoff of "{text}" is {self.cutoff}; it must be at least 1.')
        if self.radius_bits is not None and (self.name not in {"P", "R"} or self.cutoff is not None):
            raise UserError(f'"{text}" cannot have a radius. Only P and R can, as "P@radius2".')
        if self.name in _WITHOUT_CUTOFF and self.cutoff is not None:
            because = "it is a rank" if self.is_rank else "it adds up recalls at several"
            raise UserError(f'"{self.name}" has no cutoff, because {because}. Write "{self.name}".')
        if self.cutoff is None and self.radius_bits is None and self.name not in {"mAP", "nDCG", *_WITHOUT_CUTOFF}:
            raise UserError(f'"{text}" does not depend on the ranking. Give a cutoff, as "{self.name}@10".')
        for option in self._options_without_use():
            raise UserError(f'"{text.split("[")[0]}" has no option "{option}"{self._options_in_words()}.')

    def _options(self) -> list[str]:
        """Return the options that this measure has."""
        special = {"mAP": ["denominator"] if self.cutoff is not None else [], "nDCG": ["gain"]}.get(self.name, [])
        folds = ["folds"] if self.by == "pairs" else []
        return [*special, "by", *folds, *([] if self.radius_bits is not None else ["ties"]), "empty"]

    def _options_without_use(self) -> list[str]:
        defaults = {field.name: field.default for field in fields(self)}
        used = self._options()
        return [name for name in (*_CHOICES, "folds") if name not in used and getattr(self, name) != defaults[name]]

    def _options_in_words(self) -> str:
        return f"; it has {', '.join(self._options())}"

    def __str__(self) -> str:
        where = "all" if self.cutoff is None else str(self.cutoff)
        where = where if self.radius_bits is None else f"radius{self.radius_bits}"
        name = self.name if self.name in _WITHOUT_CUTOFF and self.cutoff is None else f"{self.name}@{where}"
        defaults = {field.name: field.default for field in fields(self) if field.name != "denominator"}
        shown = [n for n in self._options() if getattr(self, n) != defaults.get(n)]
        options = ",".join(f"{option}={getattr(self, option)}" for option in shown)
        return name + (f"[{options}]" if options else "")

    @property
    def is_rank(self) -> bool:
        """Whether the values are ranks, of which lower ones are better, and not shares from 0 to 1."""
        return self.name == "MedR"

    def parts(self) -> tuple[Measure, ...]:
        """Return the measures whose values this one adds up: the three recalls of RSum, otherwise itself."""
        if self.name != "RSum":
            return (self,)
        return tuple(replace(self, name="R", cutoff=cutoff) for cutoff in SUMMED_CUTOFFS)

    @staticmethod
    def parse(text: str) -> Measure:
        """Return the measure of a name such as ``mAP@50[denominator=min]``.

        Raises:
            UserError: If the measure, the cutoff or an option does not exist; suggests the nearest.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None or (match["cutoff"] is None and match["name"].lower() not in map(str.lower, _WITHOUT_CUTOFF)):
            raise UserError(
                f'"{text}" is not a measure. Write one such as "mAP@all", "mAP@50[denominator=min,ties=index]" or "P@10".'
            )
        options = _parsed_options(text, match["options"] or "")
        where = _where(text, (match["cutoff"] or "all").lower())
        values: dict[str, Any] = {"name": _name(match["name"]), **where, **options}
        measure = Measure(**values)
        for option in options:
            if option not in measure._options():
                raise UserError(f'"{text}" has no option "{option}"{measure._options_in_words()}.')
        return measure


def _name(text: str) -> str:
    known = {description.name.lower(): description.name for description in DESCRIPTIONS}
    if text.lower() in known:
        return known[text.lower()]
    near = suggestion(text.lower(), known)  # in lower case, as users type the names
    for lower, name in known.items():
        near = near.replace(f'"{lower}"', f'"{name}"')
    raise UserError(f'There is no measure "{text}"{near}. Available: {", ".join(known.values())}.')


def _parsed_options(text: str, given: str) -> dict[str, str | int]:
    options: dict[str, str | int] = {}
    for part in filter(None, given.split(",")):
        option, _, value = (piece.strip() for piece in part.partition("="))
        if option == "folds":
            options[option] = _folds(text, value)
            continue
        if option not in _CHOICES:
            near = suggestion(option, _CHOICES)
            raise UserError(f'"{text}": there is no option "{option}"{near}. Available: {", ".join(_CHOICES)}.')
        if value not in _CHOICES[option]:
            near = suggestion(value, _CHOICES[option])
            raise UserError(f'"{text}": {option} cannot be "{value}"{near}; it is {" or ".join(_CHOICES[option])}.')
        options[option] = value
    return options


def _folds(text: str, value: str) -> int:
    if not _is_number(value) or not int(value):
        raise UserError(
            f'"{text}": folds is "{value}"; it must be a whole number of at least 1, as in "R@1[by=pairs,folds=5]".'
        )
    return int(value)


def _where(text: str, cutoff: str) -> dict[str, int | None]:
    radius = re.fullmatch(r"radius(\d{1,9})", cutoff)
    if radius:
        return {"radius_bits": int(radius[1])}
    if cutoff != "all" and not _is_number(cutoff):
        near = suggestion(cutoff, ["all", "radius2"])
        raise UserError(
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
        queries_without_relevant: Number of queries without a relevant item.
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

    def mean(self) -> float:
        """Return the mean over the counted queries, or the median of ranks; NaN if there are none."""
        return mean_of(self.value[self.counted], are_ranks=self.are_ranks)

    def mean_best(self) -> float:
        """Return the same of the best values."""
        return mean_of(self.best[self.counted], are_ranks=self.are_ranks)

    def mean_worst(self) -> float:
        """Return the same of the worst values."""
        return mean_of(self.worst[self.counted], are_ranks=self.are_ranks)


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
    return measure.startswith("MedR")


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
    measures: Sequence[Measure],
    query_words: npt.NDArray[np.generic],
    database: npt.NDArray[np.generic] | ItemCodes | Scores,
    relevance: Relevance | Pairs,
    bits: int,
    *,
    threads: int | None = None,
) -> dict[Measure, PerQuery]:
    """Compute several measures of one retrieval task. The codes are compared once.

    Args:
        measures: The measures.
        query_words: ``(Q, W)`` packed codes of an unsigned type. They have no effect if there are scores.
        database: ``(N, W)`` packed codes, or the codes of items with several sides, or the scores of queries with items.
        relevance: Which items are relevant to which query.
        bits: Length of the codes; 0 if there are scores.
        threads: Number of threads; None for as many as the process may use.

    Raises:
        UserError: If codes and relevance do not fit together, or a radius exceeds the code length.
    """
    graded = isinstance(relevance, Relevance) and any(measure.name == "nDCG" for measure in measures)
    counts = counts_by_distance(query_words, database, relevance, bits, graded=graded, threads=threads)
    single = {part for measure in measures for part in measure.parts()}
    values = {measure: _tie_values(measure, counts) for measure in single}
    if in_order := [measure for measure in single if measure.ties == "index"]:
        by_index = _by_index(in_order, gains_by_distance(query_words, database, relevance, bits), relevance)
        for measure in filter(lambda m: m.is_rank, in_order):  # a ranking ends before the items that it leaves out
            by_index[measure] = np.minimum(by_index[measure], counts.items.sum(1) + 1)
        values |= {m: TieValues(by_index[m], values[m].best, values[m].worst) for m in in_order}
    return {measure: _per_query(measure, counts, [values[part] for part in measure.parts()]) for measure in measures}


def _per_query(measure: Measure, counts: Histogram, parts: Sequence[TieValues]) -> PerQuery:
    values = TieValues(*(np.sum(column, axis=0) for column in zip(*parts, strict=True)))
    has_relevant = counts.relevant_in_all > 0
    counted = has_relevant if measure.empty == "skip" else np.ones_like(has_relevant)
    prior = _prior(measure, counts, counted)
    return PerQuery(*values, counted, int((~has_relevant).sum()), prior, are_ranks=measure.is_rank)


def _prior(measure: Measure, counts: Histogram, counted: npt.NDArray[np.bool_]) -> float:
    """Return what random codes reach: the share of relevant items or, by pairs, the measure with all items tied."""
    if measure.by != "labels" and measure.radius_bits is None:
        tied = counts.all_tied()
        priors = [_over_orders(part, tied).expected[counted] for part in measure.parts()]
        return sum(mean_of(values, are_ranks=measure.is_rank) for values in priors)
    pairs = int(counts.items[counted].sum())
    return int(counts.relevant_in_all[counted].sum()) / pairs if pairs else float("nan")


def _tie_values(measure: Measure, counts: Histogram) -> TieValues:
    """Return a measure for each query, with the worst value in place of the expected one if the measure says so."""
    found = _over_orders(measure, counts)
    return TieValues(found.worst, found.best, found.worst) if measure.ties == "worst" else found


def _over_orders(measure: Measure, counts: Histogram) -> TieValues:
    if measure.radius_bits is not None:
        return _within_radius(measure, counts, measure.radius_bits)
    if measure.name == "nDCG":
        return cutoffs.ndcg(counts, measure.cutoff, measure.gain)
    if measure.is_rank:
        return cutoffs.first_rank(counts)
    if measure.cutoff is None:
        return ties.average_precision(counts)
    if measure.name == "mAP":
        return cutoffs.average_precision_at(counts, measure.cutoff, measure.denominator)
    if _is_success(measure):
        return cutoffs.success(counts, measure.cutoff)
    divisor = _divisor(measure, counts.relevant_in_all)
    return TieValues(*(ties.divided(found, divisor) for found in cutoffs.hits(counts, measure.cutoff)))


def _is_success(measure: Measure) -> bool:
    """Return whether a query counts as 1 as soon as one relevant item is found."""
    return measure.name == "Success" or (measure.name == "R" and measure.by == "pairs")


def _divisor(measure: Measure, relevant_in_all: ties.Counts) -> ties.Counts:
    return relevant_in_all if measure.name == "R" else np.full_like(relevant_in_all, measure.cutoff)


def _within_radius(measure: Measure, counts: Histogram, radius_bits: int) -> TieValues:
    if radius_bits > counts.bits:
        raise UserError(
            f'The radius of "{measure}" exceeds the largest distance of codes of {counts.bits} bits. Lower it.'
        )
    found = counts.relevant[:, : radius_bits + 1].sum(1)
    divisor = counts.items[:, : radius_bits + 1].sum(1) if measure.name == "P" else counts.relevant_in_all
    untouched = np.full(len(found), np.nan)
    values = (found > 0).astype(np.float64) if _is_success(measure) else ties.divided(found, divisor)
    return TieValues(values, untouched, untouched)


def _by_index(
    measures: Sequence[Measure], ranking: Callable[[Rows], ranked.Gains], relevance: Relevance | Pairs
) -> dict[Measure, Values]:
    """Return the values of measures with ties in the order of the database."""
    relevant_in_all = np.empty(relevance.queries, np.int64)
    values = {measure: np.empty(relevance.queries) for measure in measures}
    step = max(1, RANKED_BYTES // (16 * relevance.items))
    for start in range(0, relevance.queries, step):
        rows = np.arange(start, min(start + step, relevance.queries))
        gains = ranking(rows)
        relevant_in_all[rows] = (gains > 0).sum(1)
        for measure in measures:
            values[measure][rows] = _in_known_order(measure, gains)
    for measure in measures:
        if measure.name in {"P", "R"} and not _is_success(measure):
            values[measure] = ties.divided(values[measure], _divisor(measure, relevant_in_all))
    return values


def _in_known_order(measure: Measure, gains: ranked.Gains) -> Values:
    if measure.name == "mAP":
        return ranked.average_precision(gains, measure.cutoff, measure.denominator)
    if measure.name == "nDCG":
        return ranked.ndcg(gains, measure.cutoff, measure.gain)
    if measure.is_rank:
        return ranked.first_rank(gains)
    found = ranked.hits(gains, measure.cutoff)
    return np.minimum(found, 1.0) if _is_success(measure) else found
