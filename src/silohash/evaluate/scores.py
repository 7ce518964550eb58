"""Rankings by a score of each query with each item, in place of a distance between codes.

Scores take any value, so a histogram over them would have a column per value. The measures depend only on how many items
come before the relevant ones or are tied with them, so items between two relevant scores are counted together. A query with
r different scores of relevant items has 2 r + 1 columns, and the measures are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from silohash.base.errors import NotFinite
from silohash.base.types import Rows, Task
from silohash.evaluate.relevance import LEFT_OUT, Pairs, Relevance, marked_gains, without_left_out
from silohash.evaluate.ties import Histogram, check_sizes

BLOCK_CELLS = 1 << 24
"""Number of scores that are counted at once."""

NO_WORDS = np.zeros((0, 1), np.uint64)
"""In place of the codes of queries where there are scores."""


@dataclass(frozen=True)
class Scores:
    """The scores of queries with items, ``(Q, N)`` floats; higher is better."""

    values: npt.NDArray[np.floating]

    def __post_init__(self) -> None:
        if np.isnan(self.values).any():
            raise NotFinite("Some scores are not a number. Train the model again with a lower learning rate.")

    def __len__(self) -> int:
        """Return the number of items."""
        return int(self.values.shape[1])

    def take(self, queries: Rows, items: Rows) -> Scores:
        """Return the scores of some queries with some items."""
        return Scores(self.values[np.ix_(queries, items)])


class PairScores(Protocol):
    """Scores of queries with items by the models of a run."""

    def of_model(self, task: Task, name: str, queries: Rows, database: Rows) -> Scores:
        """Return the scores that one model, "global" or that of a silo, gives to queries with items, both archive rows."""
        ...


BEST = 10
"""Number of items with the highest scores that candidates should hold."""


def best_scored(scores: Scores) -> Pairs:
    """Return the `BEST` items with the highest scores as the relevant items of each query, or all if there are fewer."""
    queries, items = scores.values.shape
    count = min(BEST, items)
    best = np.argpartition(-scores.values, count - 1, axis=1)[:, :count]
    return Pairs(queries, items, np.repeat(np.arange(queries), count), best.ravel())


def score_histogram(scores: Scores, relevance: Relevance | Pairs, *, graded: bool = False) -> Histogram:
    """Count the items before, at and after each score of a relevant item; see the module and `ties.histogram`.

    Raises:
        UserError: If scores and relevance do not fit together.
    """
    check_sizes(scores.values, scores.values.T, relevance)
    levels = 1 + (relevance.most_shared() if graded and isinstance(relevance, Relevance) else 1)
    parts = []
    step = max(1, BLOCK_CELLS // len(scores))
    for start in range(0, relevance.queries, step):
        rows = np.arange(start, min(start + step, relevance.queries))
        parts += [
            _counted(row[gain != LEFT_OUT], np.minimum(gain[gain != LEFT_OUT], levels - 1), levels)
            for row, gain in zip(scores.values[rows], marked_gains(relevance, rows), strict=True)
        ]
    counts = np.zeros((len(parts), max(len(part) for part in parts), levels), np.int64)
    for row, part in enumerate(parts):
        counts[row, : len(part)] = part
    return Histogram(counts)


def _counted(values: npt.NDArray[np.floating], gains: npt.NDArray[np.uint16], levels: int) -> npt.NDArray[np.int64]:
    """Return the counts of one query by place in the ranking and relevance, ``(2 r + 1, levels)``."""
    relevant = np.unique(values[gains > 0])
    above = len(relevant) - np.searchsorted(relevant, values, side="right")
    tied = np.searchsorted(relevant, values, side="left") < len(relevant) - above
    place = 2 * above + np.where(tied, 1, 0)
    # an item before the first relevant score is at 0, and one at the k-th relevant score, from 0, at 2 k + 1
    cells = np.bincount(place * levels + gains, minlength=(2 * len(relevant) + 1) * levels)
    return np.asarray(cells.reshape(-1, levels))


def score_gains(scores: Scores, relevance: Relevance | Pairs, rows: Rows) -> npt.NDArray[np.uint16]:
    """Return the relevance of the items to some queries in the order of their scores. See `ties.ranked_gains`."""
    order = np.argsort(-scores.values[rows], axis=1, kind="stable")
    return without_left_out(np.take_along_axis(marked_gains(relevance, rows), order, axis=1))
