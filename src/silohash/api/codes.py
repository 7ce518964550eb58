"""Codes from any source: how good they are, and which are nearest to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.index.base import IndexManifest, Neighbors
from silohash.index.codes import Codes, Words, pack
from silohash.search.inputs import several
from silohash.types import Rows, UserError

if TYPE_CHECKING:
    from silohash.evaluate.measures import Measure
    from silohash.index.base import Allowed
    from silohash.index.store import MemoryEngine

CodesLike: TypeAlias = Codes | npt.ArrayLike
"""Codes, or a table ``(items, bits)``: real outputs whose signs count, signs (-1 or +1), or bits (0 or 1)."""

LabelsLike: TypeAlias = npt.ArrayLike | Sequence[object]
"""Labels: a multi-hot table ``(items, classes)``, or one label or one collection of labels per item."""


@dataclass(frozen=True)
class Score:
    """Hold one measure of how well codes retrieve.

    Attributes:
        measure: name of the measure, such as ``mAP@all``.
        value: mean over queries. Items at the same distance count with the mean over all their orders.
        best: the value if every tie were resolved in favor of relevant items; NaN for measures without ties.
        worst: the value if every tie were resolved against them.
        prior: share of relevant items, which is the mAP of random codes.
        queries: number of queries that count.
        queries_without_relevant: number of queries without a relevant item.
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
    query_ids: Sequence[str] | None = None,
    database_ids: Sequence[str] | None = None,
    measures: str | Sequence[str] = ("mAP@all",),
) -> dict[str, Score]:
    """Measure how well codes retrieve items that share a label with the query. Ties are taken into account exactly.

    Args:
        queries: codes of the queries.
        database: codes of the items that are searched.
        query_labels: labels of the queries.
        database_labels: labels of the items.
        query_ids: ids of the queries. An item with the same id is left out of the query's ranking. By default, the ids of
            `Codes`, if both are given as `Codes`.
        database_ids: ids of the items.
        measures: names of measures, such as ``mAP@all``, ``mAP@50`` or ``P@10``, or one name.

    Returns:
        The scores by name of the measure.

    Raises:
        UserError: if codes, labels and ids do not fit together, or there is no such measure.

    Example:
        >>> codes = [[1] * 8, [-1] * 8]
        >>> evaluate_codes(codes, codes, ["cat", "dog"], ["cat", "dog"])["mAP@all"].value
        1.0
    """
    from silohash.evaluate.measures import evaluate_all
    from silohash.evaluate.relevance import Relevance

    (query_words, bits), (database_words, database_bits) = _words(queries), _words(database)
    _check_comparable(queries, database, bits, database_bits)
    if isinstance(queries, Codes) and isinstance(database, Codes):
        query_ids = queries.ids.tolist() if query_ids is None else query_ids
        database_ids = database.ids.tolist() if database_ids is None else database_ids
    _check_length("query ids", query_ids, len(query_words))
    _check_length("database ids", database_ids, len(database_words))
    relevance = Relevance(*_multi_hot(query_labels, database_labels), left_out=_own_items(query_ids, database_ids))
    found = evaluate_all(_measures_by_labels(several(measures)), query_words, database_words, relevance, bits)
    return {
        str(measure): Score(
            measure=str(measure),
            value=values.mean(),
            best=values.mean_best(),
            worst=values.mean_worst(),
            prior=values.prior,
            queries=int(values.counted.sum()),
            queries_without_relevant=values.queries_without_relevant,
            per_query=values.value,
        )
        for measure, values in found.items()
    }


def _measures_by_labels(names: Sequence[str]) -> list[Measure]:
    """Return the measures with these names.

    Raises:
        UserError: if a measure is unknown, or does not judge by labels.
    """
    from silohash.evaluate.measures import Measure

    measures = [Measure.parse(name) for name in names]
    for measure in measures:
        if measure.by != "labels":
            raise UserError(
                f'"{measure}" judges by {measure.by}, and evaluate_codes judges by labels. Remove by={measure.by}.'
            )
    return measures


def nearest(
    queries: CodesLike,
    database: CodesLike,
    k: int = 10,
    *,
    allowed: Allowed | None = None,
    engine: MemoryEngine = "flat",
    threads: int = 1,
) -> Neighbors:
    """Find the nearest codes of each query by Hamming distance, exactly.

    Args:
        queries: codes of the queries.
        database: codes of the items that are searched.
        k: number of items per query.
        allowed: rows of the database that may be returned, or a boolean mask over its rows; None for all rows.
        engine: "flat" for the built-in scan, or "faiss".
        threads: number of threads that divide the queries among them ("flat" only).

    Returns:
        Neighbors whose keys are rows of the database, ordered by (distance, row).

    Raises:
        UserError: if the codes are not comparable, or the engine is not installed.
    """
    from silohash.index.store import empty_index

    (query_words, bits), (database_words, database_bits) = _words(queries), _words(database)
    _check_comparable(queries, database, bits, database_bits)
    manifest = IndexManifest(model_digest="", bits=bits, modality="image", count=len(database_words))
    index = empty_index(engine, manifest, threads=threads)
    index.add(np.arange(len(database_words), dtype=np.int64), database_words)
    return index.search(query_words, k, allowed=allowed)


def _words(codes: CodesLike) -> tuple[Words, int]:
    """Return packed codes and the code length."""
    if isinstance(codes, Codes):
        return codes.words, codes.bits
    values = np.asarray(codes)
    if values.ndim != 2:
        raise UserError(f"The codes have shape {values.shape}. Give a table of shape (items, bits).")
    if _are_bits(values):
        values = np.where(values, 1, -1)
    return pack(values), values.shape[1]


def _are_bits(values: npt.NDArray[Any]) -> bool:
    """Return whether a table holds bits (0 and 1) instead of numbers whose signs count."""
    return values.dtype == np.bool_ or (values.dtype.kind in "iu" and bool(np.isin(values, (0, 1)).all()))


def _check_comparable(queries: CodesLike, database: CodesLike, bits: int, database_bits: int) -> None:
    if bits != database_bits:
        raise UserError(f"The queries have {bits} bits and the database has {database_bits}. Use codes of one length.")
    digests = {codes.model_digest for codes in (queries, database) if isinstance(codes, Codes)}
    if len(digests) > 1:
        raise UserError(
            f"The codes come from different models ({', '.join(sorted(name[:12] for name in digests))}) and cannot be "
            "compared. Encode both with one model."
        )


def _check_length(what: str, given: Sequence[object] | None, count: int) -> None:
    if given is not None and len(given) != count:
        raise UserError(f"There are {len(given)} {what} but {count} codes. Give one per code.")


def _own_items(query_ids: Sequence[str] | None, database_ids: Sequence[str] | None) -> Rows | None:
    """Return the row of each query's own item in the database, ``(Q,)`` with -1 for none; None without ids."""
    if query_ids is None or database_ids is None:
        return None
    row_of = {name: row for row, name in enumerate(database_ids)}
    return np.array([row_of.get(name, -1) for name in query_ids], np.int64)


def _multi_hot(
    query_labels: LabelsLike, database_labels: LabelsLike
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return both sets of labels as multi-hot tables over the same classes."""
    if _is_table(query_labels) and _is_table(database_labels):
        return (np.asarray(query_labels) != 0).astype(np.uint8), (np.asarray(database_labels) != 0).astype(np.uint8)
    both = [_label_sets(labels) for labels in (query_labels, database_labels)]
    classes = {name: column for column, name in enumerate(dict.fromkeys(n for part in both for s in part for n in s))}
    tables = []
    for part in both:
        table = np.zeros((len(part), max(1, len(classes))), np.uint8)
        for row, names in enumerate(part):
            table[row, [classes[name] for name in names]] = 1
        tables.append(table)
    return tables[0], tables[1]


def _is_table(labels: LabelsLike) -> bool:
    return isinstance(labels, np.ndarray) and labels.ndim == 2


def _label_sets(labels: Any) -> list[list[object]]:  # noqa: ANN401  one label or a collection of labels per item
    """Return the labels of each item as a list."""
    return [list(item) if isinstance(item, list | tuple | set | frozenset) else [item] for item in labels]
