"""Honest figures of retrieval by codes, with exact ties: relevance, histograms, and the measures, by name.

A measure is a subclass of `silohash.evaluate.kinds.MeasureKind`: a closed form over the histogram of distances.
"""

from __future__ import annotations

from silohash.base.registry import Registry

MEASURES = Registry(
    family="measure",
    group="silohash.measures",
    table={
        "mAP": "silohash.evaluate.kinds:MeanAveragePrecision",
        "P": "silohash.evaluate.kinds:Precision",
        "R": "silohash.evaluate.kinds:Recall",
        "nDCG": "silohash.evaluate.kinds:DiscountedGain",
        "Success": "silohash.evaluate.kinds:Success",
        "MedR": "silohash.evaluate.kinds:MedianRank",
        "RSum": "silohash.evaluate.kinds:RecallSum",
    },
)
