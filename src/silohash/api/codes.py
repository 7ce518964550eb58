"""Codes from any source: how good they are, and which are nearest to each other."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.api.given_codes import packed_codes
from silohash.api.given_names import given_ids, multi_hot, own_items
from silohash.base.arrays import Given, as_array, check_same_rows, enough_memory, given, whole
from silohash.base.errors import AmbiguousForm, LengthsDiffer, OutOfRange, UnsuitableMeasure, WrongShape, WrongType
from silohash.base.types import PlausibilityWarning
from silohash.base.visible import visible
from silohash.index.base import IndexManifest, Neighbors
from silohash.index.codes import Codes, Words

if TYPE_CHECKING:
    from silohash.evaluate.measures import Measure, PerQuery
    from silohash.evaluate.relevance import Relevance
    from silohash.index.base import Allowed

MOST_NEIGHBORS = 1 << 28
"""Most places of an answer if k exceeds the number of items, so that a wrong k does not fill the memory."""

CodesLike: TypeAlias = Codes | npt.ArrayLike
"""Codes, or a table ``(items, bits)`` in one of the forms of `evaluate_codes`, or packed bytes."""

LabelsLike: TypeAlias = npt.ArrayLike | Sequence[object]
"""Labels: a table ``(items, classes)``, or one label or one collection of labels per item, as in `evaluate_codes`."""

IdsLike: TypeAlias = npt.ArrayLike | Sequence[str] | Sequence[int]
"""One text or one whole number per item."""


@dataclass(frozen=True)
class Score:
    """Hold one measure of how well codes retrieve.

    Attributes:
        measure: Name of the measure, such as ``mAP@all``.
        value: Mean over queries. Items at the same distance count with the mean over all their orders.
        best: The value if every tie were resolved in favor of relevant items; NaN for measures without ties.
        worst: The value if every tie were resolved against them.
        prior: Share of relevant items, which is the mAP of random codes.
        queries: Number of queries that count.
        queries_without_relevant: Number of queries without a relevant item.
        per_query: ``(Q,)`` float64 value of each query.
    """

    measure: str
    value: float
    best: float
    worst: float
    prior: float
    queries: int
    queries_without_relevant: int
    per_query: npt.NDArray[np.float64] = field(repr=False, compare=False)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        ties = "" if np.isnan(self.best) else f"{self.worst:.4f} to {self.best:.4f} over the orders of ties; "
        return f"{self.measure} = {self.value:.4f} ({ties}random codes: {self.prior:.4f}; queries: {self.queries:,})"


def evaluate_codes(
    queries: CodesLike,
    database: CodesLike,
    query_labels: LabelsLike,
    database_labels: LabelsLike,
    *,
    query_ids: IdsLike | None = None,
    database_ids: IdsLike | None = None,
    measures: str | Sequence[str] = ("mAP@all",),
    bits: int | None = None,
) -> dict[str, Score]:
    """Measure how well codes retrieve items that share a label with the query. Ties are taken into account exactly.

    Queries and database have the same form, with numbers of any type, from NumPy, torch, SciPy, pandas or nested lists.

    ======  ========================================================================================================
    codes   `Codes`; or ``(items, bits)`` of 0 and 1, of -1 and +1, or of outputs below and above 0, whose signs
            count (0 as +1); or packed bytes, ``(items, bits / 8)``, with ``bits``
    labels  ``(items, classes)`` of 0 and 1 or of -1 and +1; or one class number of at least 0 or one text per item,
            ``(items,)`` or ``(items, 1)``, with None for an item without labels; or a list or set of these per item
    ids     one text or one whole number per item
    ======  ========================================================================================================

    Args:
        queries: Codes of the queries.
        database: Codes of the items that are searched.
        query_labels: Labels of the queries.
        database_labels: Labels of the items.
        query_ids: Ids of the queries, whose rankings leave out all items with the same id; by default those of `Codes`.
        database_ids: Ids of the items.
        measures: Names of measures, such as ``mAP@all``, ``mAP@50`` or ``P@10``, or one name.
        bits: Number of bits per code, for packed bytes with the same order of bits on both sides.

    Returns:
        The scores by name of the measure. A `PlausibilityWarning` says if they mean little, as with equal codes.

    Raises:
        UserError: If a form is ambiguous, codes, labels and ids do not fit together, or there is no such measure.

    Example:
        >>> codes = [[1] * 8, [-1] * 8]
        >>> evaluate_codes(codes, codes, ["cat", "dog"], ["cat", "dog"])["mAP@all"].value
        1.0
    """
    from silohash.evaluate.measures import evaluate_all
    from silohash.evaluate.relevance import Relevance

    with enough_memory():
        chosen = _measures_by_labels(measures)
        sides = _given_codes(queries, database)
        labels = given("query labels", query_labels), given("database labels", database_labels)
        ids = given_ids(queries, database, query_ids, database_ids)
        query_words, database_words, length = packed_codes(*sides, bits)
        _check_rows(sides, labels, ids)
        relevance = Relevance(*multi_hot(*labels), left_out=own_items(*ids))
        found = evaluate_all(chosen, query_words, database_words, relevance, length)
    explicit = query_ids is not None or database_ids is not None
    doubts = _doubts_of_relevance(relevance, found.values(), ids_are_given=explicit)
    _warn(_doubts_of_codes(query_words, database_words), doubts)
    return {str(measure): _score(measure, values) for measure, values in found.items()}


def _score(measure: Measure, values: PerQuery) -> Score:
    return Score(
        measure=str(measure),
        value=values.mean(),
        best=values.mean("best"),
        worst=values.mean("worst"),
        prior=values.prior,
        queries=int(values.counted.sum()),
        queries_without_relevant=values.queries_without_relevant,
        per_query=values.value,
    )


def _measures_by_labels(names: str | Sequence[str]) -> list[Measure]:
    from silohash.evaluate.measures import Measure

    listed = list(given("measures", [names] if isinstance(names, str) else names).values)
    if not listed or not all(isinstance(name, str) for name in listed):
        raise WrongType(f'measures is {visible(repr(names))[:100]}. Give names of measures, such as "mAP@all".')
    measures = [Measure.parse(name) for name in listed]
    for measure in measures:
        if measure.by != "labels":
            raise UnsuitableMeasure(f'evaluate_codes judges by labels. Remove by={measure.by} from "{measure}".')
    return measures


def nearest(
    queries: CodesLike,
    database: CodesLike,
    k: int = 10,
    *,
    allowed: Allowed | None = None,
    engine: str = "flat",
    threads: int = 1,
    bits: int | None = None,
) -> Neighbors:
    """Find the nearest codes of each query by Hamming distance, exactly.

    Args:
        queries: Codes of the queries, in one of the forms that `evaluate_codes` lists.
        database: Codes of the items that are searched, in the same form.
        k: Number of items per query.
        allowed: Rows of the database that may be returned, or a boolean mask over its rows; None for all rows.
        engine: "flat" for the built-in scan, "trie", or "faiss".
        threads: Number of threads that divide the queries among them ("flat" only).
        bits: Number of bits per code. Packed bytes need it; both sides must have the same order of bits in a byte.

    Returns:
        Neighbors whose keys are rows of the database, ordered by (distance, row).

    Raises:
        UserError: If the form of the codes is ambiguous, they are not comparable, or the backend is not installed.

    Warns:
        PlausibilityWarning: if all codes of a side are equal.
    """
    from silohash.index.store import empty_index

    with enough_memory():
        sides = _given_codes(queries, database)
        query_words, database_words, length = packed_codes(*sides, bits)
        count, wanted = len(database_words), whole("k", k, 1)
        if wanted > count and wanted * len(query_words) > MOST_NEIGHBORS:
            raise OutOfRange(f"k is {wanted:,}, and the database has {count:,} items. Use at most {max(1, count)}.")
        manifest = IndexManifest(model_digest="", bits=length, modality="image", count=count)
        if not isinstance(engine, str):
            raise WrongType(f"engine is of type {type(engine).__name__}. Name an index backend, such as flat.")
        index = empty_index(engine, manifest, threads=whole("threads", threads, 1))
        index.add(np.arange(count, dtype=np.int64), database_words)
        rows = None if allowed is None else _allowed_rows(given("allowed rows", allowed), count)
        found = index.search(query_words, wanted, allowed=rows)
    _warn(_doubts_of_codes(query_words, database_words))
    return found


def _given_codes(queries: object, database: object) -> tuple[Codes | Given, Codes | Given]:
    first = queries if isinstance(queries, Codes) else given("query codes", queries)
    return first, database if isinstance(database, Codes) else given("database codes", database)


def _check_rows(
    sides: tuple[Codes | Given, Codes | Given], labels: tuple[Given, Given], ids: tuple[Given | None, Given | None]
) -> None:
    """Check that codes, labels and ids of each side describe the same items."""
    for side, of_side, names in zip(sides, labels, ids, strict=True):
        _check_length(of_side, len(side))
        _check_length(names, len(side))
        check_same_rows(None if isinstance(side, Codes) else side, of_side, names)


def _check_length(part: Given | None, count: int) -> None:
    if part is not None and len(part) != count:
        turned = isinstance(part.values, np.ndarray) and part.values.ndim == 2 and part.values.shape[1] == count
        remedy = "Give its transpose, with one row per item." if turned else "Give one per code."
        raise LengthsDiffer(f"There are {len(part)} {part.what} but {count} codes. {remedy}")


def _allowed_rows(allowed: Given, count: int) -> npt.NDArray[Any]:
    """Return rows of the database, or a mask over them, after checking which of the two they are."""
    forms = f"Give rows of the database, or one bool per item ({count})."
    rows = as_array(allowed, forms) if len(allowed) else np.zeros(0, np.int64)
    if rows.dtype == np.bool_ and rows.shape == (count,):
        return rows
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise WrongShape(f"The allowed rows are {rows.dtype} of shape {rows.shape}. {forms}")
    if len(rows) == count and len(rows) and ((rows == 0) | (rows == 1)).all():
        raise AmbiguousForm(f"allowed has a 0 or 1 for {count} items. Give a mask as booleans, or None for all rows.")
    if len(rows) and not (rows.min() >= 0 and rows.max() < count):
        raise OutOfRange(f"allowed has rows from {rows.min()} to {rows.max()}. Give rows from 0 to {count - 1}.")
    return rows.astype(np.int64)


def _doubts_of_codes(queries: Words, database: Words) -> list[str]:
    """Return a sentence for each side whose codes are all equal."""
    return [
        f"All {len(words)} codes of the {side} are equal. Check the outputs of the model, and how they became bits."
        for side, words in (("queries", queries), ("database", database))
        if len(words) > 1 and (words == words[0]).all()
    ]


def _doubts_of_relevance(relevance: Relevance, found: Iterable[PerQuery], *, ids_are_given: bool) -> list[str]:
    """Return a sentence each if no item is left out, and if all items are relevant to all queries, or none to any."""
    doubts = []
    if ids_are_given and not len(relevance.left_out_pairs()[0]):
        doubts.append("No item of the database has the id of a query, so that no item is left out of a ranking.")
    some = next(iter(found))
    if some.queries_without_relevant == relevance.queries:
        doubts.append("No query shares a label with an item. Check whether the labels of both sides are written alike.")
    if relevance.items > 1 and some.prior == 1 and not some.queries_without_relevant:
        doubts.append("Every item is relevant to every query, so that any codes have the best score. Check the labels.")
    return doubts


def _warn(*doubts: Iterable[str]) -> None:
    """Warn the caller of the public function."""
    for doubt in chain.from_iterable(doubts):
        warnings.warn(doubt, PlausibilityWarning, stacklevel=3)
