"""Histograms of relevant and other items by distance, and the average precision under ties.

Items at equal Hamming distances have no order among themselves, so a measure has an expected, a best and a worst value
over all orders. All three follow in closed form from the counts alone. Counts add up: the sum of the silos' histograms is
the histogram of the pooled items.

Source: F. McSherry, M. Najork, "Computing information retrieval performance measures efficiently in the presence of tied
scores", ECIR 2008; K. He, F. Cakir, S. Bargal, S. Sclaroff, "Hashing as tie-aware learning to rank", CVPR 2018.

A tie group holds the items at one distance. Symbols: b items, g of them relevant, come before the group. The group has n
items, r of them relevant, and t of its items fall within the cutoff. H is the harmonic number.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from silohash.base.cores import available_cores
from silohash.base.errors import LengthsDiffer, NothingUsable
from silohash.base.types import Rows
from silohash.evaluate import kernels
from silohash.evaluate.relevance import Packed, Pairs, Relevance, Words, marked_gains, to_words, without_left_out

Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Precise = npt.NDArray[np.longdouble]

QUERIES_AT_ONCE = 64
WORTH_THREADS = 10_000_000
MARKED_BITS = 128
"""Longest code whose distance, except 128 itself, leaves one bit of a byte free to mark the relevant items."""


class TieValues(NamedTuple):
    """A measure per query: the mean, highest and lowest value over all orders of the tied items, each ``(Q,)``."""

    expected: Values
    best: Values
    worst: Values


class Groups(NamedTuple):
    """The tie groups as `(Q, bits + 1)` int64 arrays: b, g, n, r and t of the module's symbols."""

    before: Counts
    relevant_before: Counts
    items: Counts
    relevant: Counts
    within: Counts


@dataclass(frozen=True)
class Histogram:
    """Number of items at each distance from each query.

    Attributes:
        counts: ``(Q, bits + 1, levels)`` int64. ``[q, d, 0]`` counts the items at distance d that are not relevant, and
            ``[q, d, s]`` those of relevance s: 1 if relevance is binary, the number of shared labels if it is graded.

    Example:
        >>> one = Histogram(np.array([[[1, 0], [0, 2]]]))
        >>> (one + one).counts.tolist()
        [[[2, 0], [0, 4]]]
    """

    counts: Counts

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram over the items of both."""
        if self.counts.shape[:2] != other.counts.shape[:2]:
            mine, theirs = self.counts.shape, other.counts.shape
            raise LengthsDiffer(
                f"A histogram of {mine[0]} queries and {mine[1] - 1} bits cannot be added to one of {theirs[0]} queries and "
                f"{theirs[1] - 1} bits. Count the same queries with codes of the same length in every silo."
            )
        levels = max(self.counts.shape[2], other.counts.shape[2])
        summed = np.zeros((*self.counts.shape[:2], levels), np.int64)
        for part in (self, other):
            summed[:, :, : part.counts.shape[2]] += part.counts
        return Histogram(summed)

    @property
    def bits(self) -> int:
        """The code length."""
        return int(self.counts.shape[1]) - 1

    @cached_property
    def items(self) -> Counts:
        """Number of items at each distance, ``(Q, bits + 1)`` int64."""
        return np.asarray(self.counts.sum(2))

    @cached_property
    def relevant(self) -> Counts:
        """Number of relevant items at each distance, ``(Q, bits + 1)`` int64."""
        return np.asarray(self.counts[:, :, 1:].sum(2))

    @cached_property
    def relevant_in_all(self) -> Counts:
        """R, the number of relevant items per query, ``(Q,)`` int64."""
        return np.asarray(self.relevant.sum(1))

    @cached_property
    def database(self) -> int:
        """The number of items in the database."""
        return int(self.items.sum(1).max(initial=0))

    @cached_property
    def harmonic(self) -> Precise:
        """Harmonic numbers from 0 to the number of items, in extended precision, because their differences lose digits."""
        return np.concatenate([[0], np.cumsum(1 / np.arange(1, self.database + 1, dtype=np.longdouble))])

    def all_tied(self) -> Histogram:
        """Return the histogram with all items at one distance, whose expected values are those of random codes."""
        return Histogram(self.counts.sum(1, keepdims=True))

    def auc(self) -> Values:
        """Return the area under the ROC curve per query, ``(Q,)``; NaN unless there are relevant and other items.

        It is the probability that a relevant item is nearer than another item. Ties count one half, so random codes have
        0.5, however many items there are.

        Source: Hanley and McNeil, "The Meaning and Use of the Area under a ROC Curve", Radiology 143, 1982.

        Example:
            >>> Histogram(np.array([[[1, 1], [2, 0]], [[0, 0], [3, 1]], [[3, 0], [0, 0]]])).auc().tolist()
            [0.8333333333333334, 0.5, nan]
        """
        others = self.items - self.relevant
        farther = others.sum(1, keepdims=True) - np.cumsum(others, 1) + others / 2
        pairs = self.relevant_in_all * others.sum(1)
        return np.where(pairs > 0, divided((self.relevant * farther).sum(1), pairs), np.nan)

    def groups(self, cutoff: int | None) -> Groups:
        """Return the tie groups, cut after ``cutoff`` items (None: not cut)."""
        before = np.cumsum(self.items, 1) - self.items
        relevant_before = np.cumsum(self.relevant, 1) - self.relevant
        room = (self.database if cutoff is None else cutoff) - before
        return Groups(before, relevant_before, self.items, self.relevant, np.clip(room, 0, self.items))


def histogram(
    query_words: Packed,
    database_words: Packed,
    relevance: Relevance | Pairs,
    bits: int,
    *,
    graded: bool = False,
    threads: int | None = None,
) -> Histogram:
    """Count the items at each distance from each query, from packed codes ``(Q, W)`` and ``(N, W)`` of an unsigned type.

    Items are counted as relevant or not or, if graded, by their number of shared labels. By default, as many threads count
    as the process may use.

    Raises:
        UserError: If codes and relevance do not fit together.
    """
    queries, database = to_words(query_words, bits), to_words(database_words, bits)
    check_sizes(queries, database, relevance)
    labels = relevance.unlabeled if isinstance(relevance, Pairs) else relevance
    counts = _count(queries, database, labels, bits, labels.most_shared() if graded else None, threads)

    def apart(query_rows: Rows, item_rows: Rows) -> Counts:
        """Return the distance of each pair of a query and an item."""
        return np.asarray(np.bitwise_count(queries[query_rows] ^ database[item_rows]).sum(1, dtype=np.int64))

    return corrected(counts, relevance, apart)


def corrected(counts: Counts, relevance: Relevance | Pairs, apart: Callable[[Rows, Rows], Counts]) -> Histogram:
    """Return counts in which partners of pairs are relevant, and items that queries leave out do not count.

    The given counts ``(Q, bits + 1, levels)`` are of all items by labels, and are changed. ``apart`` returns the distances
    of queries and items, given the rows of both.
    """
    if isinstance(relevance, Pairs):
        distances = apart(relevance.query_rows, relevance.database_rows)
        irrelevant = np.zeros_like(distances)
        np.subtract.at(counts, (relevance.query_rows, distances, irrelevant), 1)
        np.add.at(counts, (relevance.query_rows, distances, irrelevant + 1), 1)
    else:
        rows, shared = relevance.shared_with_left_out()
        distances = apart(*relevance.left_out_pairs())
        np.subtract.at(counts, (rows, distances, np.minimum(shared, counts.shape[2] - 1)), 1)
    return Histogram(counts)


def check_sizes(queries: Sized, database: Sized, relevance: Relevance | Pairs) -> None:
    """Check that codes or scores and relevance have the same numbers of queries and items.

    Raises:
        UserError: If the numbers differ or are 0.
    """
    if (len(queries), len(database)) != (relevance.queries, relevance.items):
        raise LengthsDiffer(
            f"There are {len(queries)} queries and {len(database)} items, and relevance of {relevance.queries} "
            f"queries and {relevance.items} items. Give both for the same queries and items."
        )
    if not len(queries) or not len(database):
        raise NothingUsable(
            f"{len(queries)} queries and {len(database)} items cannot be evaluated. Give at least one of each."
        )


def _count(
    queries: Words, database: Words, relevance: Relevance, bits: int, most_shared: int | None, threads: int | None
) -> Counts:
    labels = relevance.query_label_lists()
    planes = _planes(database, -(-bits // kernels.PLANES_AT_ONCE) * kernels.PLANES_AT_ONCE)
    label_planes = _planes(relevance.database_words, max(1, len(relevance.kept)))
    set_bits = np.unpackbits(queries.astype("<u8").view(np.uint8).reshape(len(queries), -1), axis=1, bitorder="little")
    flips = np.zeros((len(queries), planes.shape[1]), np.uint64)
    flips[:, :bits] = np.where(set_bits[:, :bits], ~np.uint64(0), np.uint64(0))
    graded, levels = most_shared is not None, max(1, most_shared or 1) + 1
    marked = not graded and bits <= MARKED_BITS
    distances = np.arange(min(bits, 127 if marked else 255) + 1)
    values = np.concatenate([distances, 128 + distances]) if marked else distances

    def count(rows: slice, level: int) -> Counts:
        """Return the counts of some queries. The compiled loop releases the interpreter's lock."""
        found = np.zeros((len(flips[rows]), 258), np.int64)
        kernels.count_bytes(planes, flips[rows], label_planes, labels[rows], level, graded, values, found)
        return found

    tasks = [
        (slice(start, start + QUERIES_AT_ONCE), level)
        for level in ([-1] if marked else range(levels))
        for start in range(0, len(queries), QUERIES_AT_ONCE)
    ]
    if len(queries) * len(database) >= WORTH_THREADS:
        with ThreadPoolExecutor(threads or available_cores()) as pool:
            found = list(pool.map(count, *zip(*tasks, strict=True)))
    else:
        found = list(starmap(count, tasks))
    counts = np.zeros((len(queries), bits + 1, levels), np.int64)
    for (rows, level), part in zip(tasks, found, strict=True):
        if marked:
            _put(counts[rows, :, 0], part[:, :128], part[:, 256])
            _put(counts[rows, :, 1], part[:, 128:256], part[:, 257])
        else:
            _put(counts[rows, :, level], part[:, :256], part[:, 257])
            counts[rows, 0, level] -= part[:, 256]
    # The codes of zeros that fill up the last block were counted at the distance of the query's set bits.
    filled_up = planes.shape[0] * kernels.BLOCK_ITEMS - len(database)
    counts[np.arange(len(queries)), set_bits.sum(1, dtype=np.int64), 0] -= filled_up
    return counts


def _put(counts: Counts, found: Counts, farthest: Counts) -> None:
    """Write counts by distance. Items at the greatest distance were counted at 0 and are moved to their place."""
    width = min(counts.shape[1], found.shape[1])
    counts[:, :width] = found[:, :width]
    counts[:, 0] -= farthest
    counts[:, -1] += farthest


def _planes(words: Words, bits: int) -> Words:
    blocks = -(-len(words) // kernels.BLOCK_ITEMS)
    planes = np.zeros((blocks, bits, kernels.LANES), np.uint64)
    kernels.bit_planes(np.ascontiguousarray(words), planes)
    return planes


def ranked_gains(
    query_words: Words, database_words: Words, relevance: Relevance | Pairs, bits: int, rows: Rows
) -> npt.NDArray[np.uint16]:
    """Return the relevance of the items to some queries in the order of distance, with ties in the order of the database.

    The words ``(Q, W)`` and ``(N, W)`` are as `to_words` returns them, and ``(B,)`` rows of them are the queries.

    Returns:
        ``(B, N)`` uint16, the number of shared labels (1 for a pair, 0 for an item that is not relevant); where a query
        leaves items out, as many values at the end are 0.
    """
    gains = marked_gains(relevance, rows)
    ranked = np.empty_like(gains)
    kernels.order_gains(np.ascontiguousarray(query_words[rows]), database_words, bits, gains, ranked)
    return without_left_out(ranked)


def divided(values: npt.NDArray[np.generic], by: npt.NDArray[np.generic]) -> Values:
    """Return the quotient, and 0 where the divisor is 0."""
    quotient = np.zeros(np.broadcast_shapes(values.shape, by.shape), np.longdouble)
    np.divide(values, by, out=quotient, where=by != 0)
    return quotient.astype(np.float64)


def precision_sums(counts: Histogram, groups: Groups) -> tuple[Precise, Precise, Precise]:
    """Return each group's part of the sum of precisions at the relevant items: expected, best and worst.

    Expected: ``(r / n) sum_{s=1..t} (1 + g + (s - 1) (r - 1) / (n - 1)) / (b + s)``. The j-th relevant item at position p
    adds ``(g + j) / (b + p)``, with p = j at best and p = n - r + j at worst. The three are ``(Q, bits + 1)`` long doubles.
    """
    before, relevant_before, items, relevant, within = groups
    harmonic = counts.harmonic

    def total(start: Counts, terms: Counts) -> Precise:
        """Return the sum of (g + j) / (start + j) over j = 1..terms."""
        return np.asarray(terms + (relevant_before - start) * (harmonic[start + terms] - harmonic[start]))

    share = relevant / np.maximum(items, 1).astype(np.longdouble)
    slope = (relevant - 1) / np.maximum(items - 1, 1).astype(np.longdouble) * (items > 1)
    span = harmonic[before + within] - harmonic[before]
    expected = share * (slope * within + (1 + relevant_before - slope * (before + 1)) * span)
    best = total(before, np.minimum(relevant, within))
    others = items - relevant
    worst = total(before + others, np.maximum(within - others, 0))
    return expected, best, worst


def average_precision(counts: Histogram) -> TieValues:
    """Return the average precision over the whole database; 0 for a query without relevant items.

    Example:
        >>> tied = Histogram(np.array([[[1, 1]]]))
        >>> [float(value[0]) for value in average_precision(tied)]
        [0.75, 1.0, 0.5]
    """
    sums = precision_sums(counts, counts.groups(None))
    return TieValues(*(divided(part.sum(1), counts.relevant_in_all) for part in sums))


def precision_recall(counts: Histogram) -> tuple[Values, Values]:
    """Return the precision and the recall within each radius from 0 to the code length, as means over the queries.

    Ties have no influence. A query without items within the radius has the precision 0, and one without relevant items
    the recall 0.

    Example:
        >>> precision, recall = precision_recall(Histogram(np.array([[[0, 1], [1, 1]]])))
        >>> precision.round(2).tolist(), recall.tolist()
        ([1.0, 0.67], [0.5, 1.0])
    """
    items, relevant = np.cumsum(counts.items, 1), np.cumsum(counts.relevant, 1)
    return divided(relevant, items).mean(0), divided(relevant, counts.relevant_in_all[:, None]).mean(0)
