"""Curves: precision and recall by radius, and precision by the number of items looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from silohash.evaluate.cutoffs import hits
from silohash.evaluate.ties import Histogram, Values, divided


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision and recall of all items within each radius, as means over the queries; ties do not touch them.

    Attributes:
        radius_bits: ``(bits + 1,)`` int64, 0 to the codes' length.
        precision: ``(bits + 1,)``; a query that finds nothing within the radius counts as 0.
        recall: ``(bits + 1,)``; a query without relevant items counts as 0.
        items: ``(bits + 1,)``, how many items are within the radius.
    """

    radius_bits: np.ndarray
    precision: Values
    recall: Values
    items: Values


def precision_recall(counts: Histogram) -> PrecisionRecall:
    """Returns precision and recall by radius.

    Example:
        >>> curve = precision_recall(Histogram(np.array([[[0, 1], [1, 1]]])))
        >>> curve.precision.round(2).tolist(), curve.recall.tolist()
        ([1.0, 0.67], [0.5, 1.0])
    """
    items, relevant = np.cumsum(counts.items, 1), np.cumsum(counts.relevant, 1)
    return PrecisionRecall(
        radius_bits=np.arange(counts.bits + 1),
        precision=divided(relevant, items).mean(0),
        recall=divided(relevant, counts.relevant_in_all[:, None]).mean(0),
        items=items.mean(0),
    )


def precision_by_cutoff(counts: Histogram, cutoffs: Sequence[int]) -> Values:
    """Returns the mean expected precision of the first k items for each k, ``(len(cutoffs),)`` float64."""
    return np.array([hits(counts, cutoff).expected.mean() / cutoff for cutoff in cutoffs])
