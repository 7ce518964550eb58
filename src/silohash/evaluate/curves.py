"""Precision and recall by radius."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silohash.evaluate.ties import Histogram, Values, divided


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision and recall of the items within each radius, as means over the queries. Ties have no influence.

    Attributes:
        radius_bits: ``(bits + 1,)`` int64, from 0 to the code length.
        precision: ``(bits + 1,)``. A query without items within the radius counts as 0.
        recall: ``(bits + 1,)``. A query without relevant items counts as 0.
        items: ``(bits + 1,)`` number of items within the radius.
    """

    radius_bits: np.ndarray
    precision: Values
    recall: Values
    items: Values


def precision_recall(counts: Histogram) -> PrecisionRecall:
    """Return precision and recall by radius.

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
