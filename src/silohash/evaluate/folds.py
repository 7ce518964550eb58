"""Measures by pairs over parts of the pictures, each searched by itself, as tests on 1,000 of 5,000 pictures are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.base.types import Rows, UserError
from silohash.evaluate.items import ItemCodes
from silohash.evaluate.measures import Measure, PerQuery, evaluate_all
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.evaluate.scores import Scores


def evaluate_in_folds(
    measures: Sequence[Measure],
    query_words: npt.NDArray[np.generic],
    database: npt.NDArray[np.generic] | ItemCodes | Scores,
    relevance: Relevance | Pairs,
    bits: int,
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
    measures: Sequence[Measure],
    query_words: npt.NDArray[np.generic],
    database: npt.NDArray[np.generic] | Scores,
    pairs: Pairs,
    bits: int,
) -> dict[Measure, PerQuery]:
    """Return the values of measures with the same number of folds."""
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
    """Return the rows of the queries and of the items in each part of consecutive pictures.

    The side with fewer rows is that of the pictures. A row of the other side belongs to the picture that is its partner.

    Args:
        pairs: Pictures and their texts, in either direction.
        count: Number of parts, which differ by at most one picture.

    Raises:
        UserError: If there are fewer pictures than parts.
    """
    asked = pairs.queries <= pairs.items
    pictures, texts = (pairs.queries, pairs.items) if asked else (pairs.items, pairs.queries)
    if count > pictures:
        raise UserError(f"{pictures} pictures cannot be divided into {count} folds. Lower folds in the measure.")
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
    value, best, worst = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("value", "best", "worst")
    )
    return PerQuery(
        value=value,
        best=best,
        worst=worst,
        counted=np.concatenate([part.counted for part in parts])[order],
        queries_without_relevant=sum(part.queries_without_relevant for part in parts),
        prior=float(np.average([part.prior for part in parts], weights=[len(part.value) for part in parts])),
        are_ranks=parts[0].are_ranks,
    )
