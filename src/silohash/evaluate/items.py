"""Distances to items that have a picture code, a text code, or both: an item is as near as the nearer of its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silohash.base.errors import LengthsDiffer, MissingContent
from silohash.base.types import Rows
from silohash.evaluate import kernels
from silohash.evaluate.relevance import Pairs, Relevance, Words, to_words
from silohash.evaluate.scores import Scores, score_gains, score_histogram
from silohash.evaluate.ties import Counts, Histogram, check_sizes, histogram, ranked_gains

Distances = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ItemCodes:
    """The codes of items with up to two sides, such as a picture and a text.

    Attributes:
        sides: ``(N, W)`` packed codes, one array per side.
        held: ``(N,)`` bool per side, which items have a code on that side. Every item has at least one.

    Example:
        >>> codes = np.array([[0], [255]], np.uint16)
        >>> items = ItemCodes((codes, codes[::-1]), (np.array([True, True]), np.array([False, True])))
        >>> items.distances(np.array([[1]], np.uint16), 8)
        array([[1, 1]])
    """

    sides: tuple[npt.NDArray[np.generic], ...]
    held: tuple[npt.NDArray[np.bool_], ...]

    def __post_init__(self) -> None:
        sizes = {len(values) for values in (*self.sides, *self.held)}
        if len(self.sides) != len(self.held) or len(sizes) != 1:
            raise LengthsDiffer(
                f"There are {len(self.sides)} sides of {sorted(sizes)} items. Give codes of the same items on every side, "
                "and which items have them."
            )
        without = ~np.any(self.held, axis=0)
        if without.any():
            raise MissingContent(f"Item {int(without.argmax())} does not have a code on any side. Leave it out.")

    def __len__(self) -> int:
        return len(self.held[0])

    def words(self, bits: int) -> Words:
        """Return the codes of all sides as 64-bit words, ``(S, N, W)``."""
        return np.stack([to_words(words, bits) for words in self.sides])

    def distances(self, query_words: npt.NDArray[np.generic], bits: int) -> Distances:
        """Return the distances in bits between queries ``(Q, W)`` and items, ``(Q, N)`` int64."""
        return _nearest(to_words(query_words, bits)[:, None], self.words(bits)[:, None], np.stack(self.held)[:, None])


def _nearest(queries: Words, sides: Words, held: npt.NDArray[np.bool_]) -> Distances:
    """Return the smallest distance over the sides. Shapes are broadcast.

    Args:
        queries: ``(..., W)``.
        sides: ``(S, ..., W)``.
        held: ``(S, ...)``.
    """
    apart = np.bitwise_count(queries ^ sides).sum(-1, dtype=np.int64)
    return np.asarray(np.where(held, apart, np.iinfo(np.int64).max).min(0))


def counts_by_distance(
    query_words: npt.NDArray[np.generic],
    database: npt.NDArray[np.generic] | ItemCodes | Scores,
    relevance: Relevance | Pairs,
    bits: int,
    *,
    graded: bool = False,
    threads: int | None = None,
) -> Histogram:
    """Count the items at each distance from each query, with one code per item or with several, or by their scores.

    See `ties.histogram`, `item_histogram` and `scores.score_histogram`. ``threads`` matters for one code per item only.
    """
    if isinstance(database, Scores):
        return score_histogram(database, relevance, graded=graded)
    if isinstance(database, ItemCodes):
        return item_histogram(query_words, database, relevance, bits, graded=graded)
    return histogram(query_words, database, relevance, bits, graded=graded, threads=threads)


def gains_by_distance(
    query_words: npt.NDArray[np.generic],
    database: npt.NDArray[np.generic] | ItemCodes | Scores,
    relevance: Relevance | Pairs,
    bits: int,
) -> Callable[[Rows], npt.NDArray[np.uint16]]:
    """Return a function that ranks the items for some queries.

    See `ties.ranked_gains`, `item_gains` and `scores.score_gains`.
    """
    if isinstance(database, Scores):
        return lambda rows: score_gains(database, relevance, rows)
    if isinstance(database, ItemCodes):
        return lambda rows: item_gains(query_words, database, relevance, bits, rows)
    queries, words = to_words(query_words, bits), to_words(database, bits)
    return lambda rows: ranked_gains(queries, words, relevance, bits, rows)


def item_histogram(
    query_words: npt.NDArray[np.generic],
    items: ItemCodes,
    relevance: Relevance | Pairs,
    bits: int,
    *,
    graded: bool = False,
) -> Histogram:
    """Count the items at each distance from each query. See `ties.histogram`.

    Raises:
        UserError: If codes and relevance do not fit together.
    """
    queries, words, held = to_words(query_words, bits), items.words(bits), np.stack(items.held)
    for side in words:
        check_sizes(queries, side, relevance)
    levels = 2
    if isinstance(relevance, Pairs):
        labels = Relevance(np.zeros((len(queries), 0), np.uint8), np.zeros((len(items), 0), np.uint8))
    else:
        labels = relevance
        levels = 1 + max(1, relevance.most_shared() if graded else 1)
    counts = np.zeros((len(queries), bits + 1, levels), np.int64)
    kernels.count_nearest(queries, words, held, labels.query_words, labels.database_words, counts)

    def nearest(query_rows: Rows, item_rows: Rows) -> Distances:
        """Return the distance of each pair of a query and an item."""
        return _nearest(queries[query_rows], words[:, item_rows], held[:, item_rows])

    _correct(counts, relevance, nearest)
    return Histogram(counts)


def _correct(counts: Counts, relevance: Relevance | Pairs, nearest: Callable[[Rows, Rows], Distances]) -> None:
    """Count the partners of pairs as relevant, and remove the items that queries leave out, in place."""
    _, distances, levels = counts.shape
    cells = counts.reshape(-1)
    if isinstance(relevance, Pairs):
        apart = nearest(relevance.query_rows, relevance.database_rows)
        first = (relevance.query_rows * distances + apart) * levels
        np.subtract.at(cells, first, 1)
        np.add.at(cells, first + 1, 1)
    else:
        rows, shared = relevance.shared_with_left_out()
        apart = nearest(*relevance.left_out_pairs())
        np.subtract.at(cells, (rows * distances + apart) * levels + np.minimum(shared, levels - 1), 1)


def item_gains(
    query_words: npt.NDArray[np.generic], items: ItemCodes, relevance: Relevance | Pairs, bits: int, rows: Rows
) -> npt.NDArray[np.uint16]:
    """Return the relevance of the items to some queries in the order of distance. See `ties.ranked_gains`.

    Returns:
        ``(B, N)`` uint16, the number of shared labels (1 for a pair, 0 for an item that is not relevant). Where a query
        leaves items out, as many values at the end are 0.
    """
    distances, gains = items.distances(query_words[rows], bits), relevance.gains(rows)
    if isinstance(relevance, Relevance):
        left_out = relevance.left_out_pairs(rows)
        distances[left_out], gains[left_out] = bits + 1, 0
    return np.take_along_axis(gains, np.argsort(distances, axis=1, kind="stable"), axis=1)
