"""Distances to items that have a picture code, a text code, or both: an item is as near as the nearer of its codes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import LengthsDiffer, MissingContent
from silohash.base.types import Rows
from silohash.evaluate import kernels
from silohash.evaluate.relevance import Packed, Pairs, Relevance, Words, marked_gains, to_words, without_left_out
from silohash.evaluate.scores import Scores, score_gains, score_histogram
from silohash.evaluate.ties import Histogram, check_sizes, corrected, histogram, ranked_gains

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

    sides: tuple[Packed, ...]
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

    def distances(self, query_words: Packed, bits: int) -> Distances:
        """Return the distances in bits between queries ``(Q, W)`` and items, ``(Q, N)`` int64."""
        return _nearest(to_words(query_words, bits)[:, None], self.words(bits)[:, None], np.stack(self.held)[:, None])


def _nearest(queries: Words, sides: Words, held: npt.NDArray[np.bool_]) -> Distances:
    """Return the smallest distance over the sides: queries ``(..., W)``, sides ``(S, ..., W)``, held ``(S, ...)``."""
    apart = np.bitwise_count(queries ^ sides).sum(-1, dtype=np.int64)
    return np.asarray(np.where(held, apart, np.iinfo(np.int64).max).min(0))


Database: TypeAlias = Packed | ItemCodes | Scores
"""What queries search: items with one code or several, or the scores of the queries with items."""


def counts_by_distance(
    query_words: Packed, database: Database, relevance: Relevance | Pairs, bits: int, *, graded: bool = False
) -> Histogram:
    """Count the items at each distance from each query, with one code per item or with several, or by their scores.

    See `ties.histogram`, `item_histogram` and `scores.score_histogram`.
    """
    if isinstance(database, Scores):
        return score_histogram(database, relevance, graded=graded)
    if isinstance(database, ItemCodes):
        return item_histogram(query_words, database, relevance, bits, graded=graded)
    return histogram(query_words, database, relevance, bits, graded=graded)


def gains_by_distance(
    query_words: Packed, database: Database, relevance: Relevance | Pairs, bits: int
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
    query_words: Packed, items: ItemCodes, relevance: Relevance | Pairs, bits: int, *, graded: bool = False
) -> Histogram:
    """Count the items at each distance from each query. See `ties.histogram`.

    Raises:
        UserError: If codes and relevance do not fit together.
    """
    queries, words, held = to_words(query_words, bits), items.words(bits), np.stack(items.held)
    for side in words:
        check_sizes(queries, side, relevance)
    labels = relevance.unlabeled if isinstance(relevance, Pairs) else relevance
    counts = np.zeros((len(queries), bits + 1, 1 + max(1, labels.most_shared() if graded else 1)), np.int64)
    kernels.count_nearest(queries, words, held, labels.query_words, labels.database_words, counts)

    def apart(query_rows: Rows, item_rows: Rows) -> Distances:
        """Return the distance of each pair of a query and an item."""
        return _nearest(queries[query_rows], words[:, item_rows], held[:, item_rows])

    return corrected(counts, relevance, apart)


def item_gains(
    query_words: Packed, items: ItemCodes, relevance: Relevance | Pairs, bits: int, rows: Rows
) -> npt.NDArray[np.uint16]:
    """Return the relevance of the items to some queries, ``(n, N)``, in the order of distance. See `ties.ranked_gains`."""
    order = np.argsort(items.distances(query_words[rows], bits), axis=1, kind="stable")
    return without_left_out(np.take_along_axis(marked_gains(relevance, rows), order, axis=1))
