"""Recall@K and rSum: the figures of retrieval between pictures and their captions.

A query finds its pair if any of its partners is among the first K items (a picture has several captions). Partners that
stand at the same distance as other items are found with the probability that a random order of the ties gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silohash.evaluate.cutoffs import success
from silohash.evaluate.relevance import Pairs
from silohash.evaluate.ties import Histogram, TieValues, histogram

CUTOFFS = (1, 5, 10)


def recall_at(counts: Histogram, cutoff: int) -> TieValues:
    """Returns for each query the probability that a partner is among the first ``cutoff`` items, each ``(Q,)``."""
    return success(counts, cutoff)


@dataclass(frozen=True)
class RecallSum:
    """Recall@K both ways in percent, and their sum (600 at most with three cutoffs).

    Attributes:
        image_to_text: cutoff -> percent of pictures that find one of their captions.
        text_to_image: cutoff -> percent of captions that find their picture.
        total: rSum.
        best: rSum if every tie fell well.
        worst: rSum if every tie fell badly.
    """

    image_to_text: dict[int, float]
    text_to_image: dict[int, float]
    total: float
    best: float
    worst: float


def recall_sum(
    image_words: npt.NDArray[np.generic],
    text_words: npt.NDArray[np.generic],
    image_groups: npt.NDArray[np.generic],
    text_groups: npt.NDArray[np.generic],
    bits: int,
    *,
    cutoffs: Sequence[int] = CUTOFFS,
) -> RecallSum:
    """Returns Recall@K from pictures to captions and back.

    Args:
        image_words: ``(I, W)`` packed codes of the pictures.
        text_words: ``(T, W)`` packed codes of the captions.
        image_groups: ``(I,)`` names of the pictures.
        text_groups: ``(T,)`` for each caption the name of its picture.
        bits: length of the codes.
        cutoffs: the Ks.
    """
    there = histogram(image_words, text_words, Pairs.of_groups(image_groups, text_groups), bits)
    back = histogram(text_words, image_words, Pairs.of_groups(text_groups, image_groups), bits)
    percent = {
        (way, cutoff): [100 * float(np.mean(value)) for value in recall_at(counts, cutoff)]
        for way, counts in (("i2t", there), ("t2i", back))
        for cutoff in cutoffs
    }
    total, best, worst = (sum(values[at] for values in percent.values()) for at in range(3))
    return RecallSum(
        {cutoff: percent["i2t", cutoff][0] for cutoff in cutoffs},
        {cutoff: percent["t2i", cutoff][0] for cutoff in cutoffs},
        total,
        best,
        worst,
    )
