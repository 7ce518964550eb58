"""Distances to items that have a picture code, a text code, or both: an item is as near as the nearer of its codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silohash.evaluate.relevance import Pairs, Relevance, Words, to_words
from silohash.evaluate.ties import Histogram, check_sizes
from silohash.types import Rows, UserError

PAIRS_AT_ONCE = 1 << 22
"""Number of pairs of a query and an item whose distances are computed at once."""

Distances = npt.NDArray[np.int16]


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
        array([[1, 1]], dtype=int16)
    """

    sides: tuple[npt.NDArray[np.generic], ...]
    held: tuple[npt.NDArray[np.bool_], ...]

    def __post_init__(self) -> None:
        sizes = {len(values) for values in (*self.sides, *self.held)}
        if len(self.sides) != len(self.held) or len(sizes) != 1:
            raise UserError(
                f"There are {len(self.sides)} sides of {sorted(sizes)} items. Give codes of the same items on every side, "
                "and which items have them."
            )
        without = ~np.any(self.held, axis=0)
        if without.any():
            raise UserError(f"Item {int(without.argmax())} does not have a code on any side. Leave it out.")

    def __len__(self) -> int:
        return len(self.held[0])

    def distances(self, query_words: npt.NDArray[np.generic], bits: int) -> Distances:
        """Return the distances in bits between queries ``(Q, W)`` and items, ``(Q, N)`` int16."""
        queries = to_words(query_words, bits)
        nearest = np.full((len(queries), len(self)), bits + 1, np.int16)
        for words, held in zip(self.sides, self.held, strict=True):
            apart = _distances(queries, to_words(words, bits))
            np.minimum(nearest, np.where(held, apart, np.int16(bits + 1)), out=nearest)
        return nearest


def _distances(queries: Words, words: Words) -> Distances:
    apart = np.zeros((len(queries), len(words)), np.int16)
    for word in range(words.shape[1]):
        apart += np.bitwise_count(queries[:, word, None] ^ words[None, :, word])
    return apart


def item_histogram(
    query_words: npt.NDArray[np.generic],
    items: ItemCodes,
    relevance: Relevance | Pairs,
    bits: int,
    *,
    graded: bool = False,
) -> Histogram:
    """Count the items at each distance from each query.

    Args:
        query_words: ``(Q, W)`` packed codes of an unsigned type.
        items: the codes of the database.
        relevance: which items are relevant to which query.
        bits: length of the codes.
        graded: count items by their number of shared labels, instead of relevant or not.

    Raises:
        UserError: if codes and relevance do not fit together.
    """
    _check(query_words, items, relevance, bits)
    levels = 1 + max(1, relevance.most_shared() if graded and isinstance(relevance, Relevance) else 1)
    counts = np.zeros((len(query_words), bits + 1, levels), np.int64)
    for rows in _blocks(len(query_words), len(items)):
        gains = np.minimum(relevance.gains(rows), levels - 1)
        cells = items.distances(query_words[rows], bits).astype(np.int64) * levels + gains
        for row, of_query in zip(rows, cells, strict=True):
            counts[row] = np.bincount(of_query, minlength=(bits + 1) * levels).reshape(bits + 1, levels)
        for row, item, column in _left_out(relevance, rows):
            cell = cells[column, item]
            counts[row, cell // levels, cell % levels] -= 1
    return Histogram(counts)


def item_gains(
    query_words: npt.NDArray[np.generic], items: ItemCodes, relevance: Relevance | Pairs, bits: int, rows: Rows
) -> npt.NDArray[np.uint16]:
    """Return the relevance of the items to some queries in the order of distance, with ties in the order of the database.

    Args:
        query_words: ``(Q, W)`` packed codes of an unsigned type.
        items: the codes of the database.
        relevance: which items are relevant to which query.
        bits: length of the codes.
        rows: ``(B,)`` rows of the queries.

    Returns:
        ``(B, N)`` uint16, the number of shared labels (1 for a pair, 0 for an item that is not relevant). Where a query
        leaves an item out, the last value is 0.
    """
    distances, gains = items.distances(query_words[rows], bits), relevance.gains(rows)
    for _, item, column in _left_out(relevance, rows):
        distances[column, item], gains[column, item] = bits + 1, 0
    return np.take_along_axis(gains, np.argsort(distances, axis=1, kind="stable"), axis=1)


def _check(query_words: npt.NDArray[np.generic], items: ItemCodes, relevance: Relevance | Pairs, bits: int) -> None:
    """Check that codes and relevance have the same numbers of queries and items, on every side."""
    for words in items.sides:
        check_sizes(to_words(query_words, bits), to_words(words, bits), relevance)


def _blocks(queries: int, items: int) -> Iterator[Rows]:
    """Yield the rows of the queries in blocks of `PAIRS_AT_ONCE` pairs."""
    step = max(1, PAIRS_AT_ONCE // items)
    for start in range(0, queries, step):
        yield np.arange(start, min(start + step, queries))


def _left_out(relevance: Relevance | Pairs, rows: Rows) -> Iterator[tuple[int, int, int]]:
    """Yield each of the given queries that leaves an item out, with that item and the query's position in ``rows``."""
    if isinstance(relevance, Relevance) and relevance.left_out is not None:
        for column, row in enumerate(rows.tolist()):
            if relevance.left_out[row] >= 0:
                yield row, int(relevance.left_out[row]), column
