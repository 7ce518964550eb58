"""Measures of a ranking whose order is known, as when ties keep the order of the database."""

import numpy as np
import numpy.typing as npt

from silohash.evaluate.cutoffs import Denominator, Gain, discount_sums, gains_of
from silohash.evaluate.ties import Values, divided

Gains = npt.NDArray[np.uint16]
"""Relevance of each query's items in ranked order, ``(Q, N)``; above 0 is relevant."""


def average_precision(gains: Gains, cutoff: int | None, denominator: Denominator) -> Values:
    """Return the average precision, ``(Q,)`` float64; see `cutoffs.average_precision_at` for the denominators.

    Without a cutoff all denominators are equal.
    """
    relevant = gains > 0
    found = np.cumsum(relevant, 1, dtype=np.int32)
    in_all = found[:, -1]
    limit = gains.shape[1] if cutoff is None else min(cutoff, gains.shape[1])
    if denominator == "first-k-relevant":
        counted = relevant & (found <= limit)
    else:
        counted = relevant & (np.arange(gains.shape[1]) < limit)
    total = (counted * found / np.arange(1, gains.shape[1] + 1)).sum(1)
    if denominator == "all":
        return divided(total, in_all)
    return divided(total, found[:, limit - 1] if denominator == "retrieved" else np.minimum(in_all, limit))


def hits(gains: Gains, cutoff: int | None) -> Values:
    """Return the number of relevant items among the first ``cutoff``, ``(Q,)`` float64."""
    return np.asarray((gains[:, :cutoff] > 0).sum(1), np.float64)


def first_rank(gains: Gains) -> Values:
    """Return the rank of the first relevant item, ``(Q,)`` float64; see `cutoffs.first_rank`."""
    relevant = gains > 0
    return np.asarray(np.where(relevant.any(1), relevant.argmax(1) + 1.0, gains.shape[1] + 1.0), np.float64)


def ndcg(gains: Gains, cutoff: int | None, gain: Gain) -> Values:
    """Return the normalized discounted cumulative gain, ``(Q,)`` float64; see `cutoffs.ndcg`."""
    worth = gains_of(int(gains.max(initial=0)) + 1, gain)
    discount = np.diff(discount_sums(gains.shape[1]))[:cutoff]
    ideal = np.sort(gains, 1)[:, ::-1]
    found, most = (np.asarray(worth[ranking[:, :cutoff]] @ discount) for ranking in (gains, ideal))
    return divided(found, most)
