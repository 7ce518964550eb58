"""Honest figures of retrieval by codes, with exact ties: relevance, histograms, and the measures, by name.

A measure is a `silohash.evaluate.kinds.MeasureKind`: a closed form over the histogram of distances.
"""

from silohash.base.registry import Registry

MEASURES = Registry(
    family="measure",
    group="silohash.measures",
    table={
        "mAP": "silohash.evaluate.kinds:MEAN_AVERAGE_PRECISION",
        "P": "silohash.evaluate.kinds:PRECISION",
        "R": "silohash.evaluate.kinds:RECALL",
        "nDCG": "silohash.evaluate.kinds:DISCOUNTED_GAIN",
        "Success": "silohash.evaluate.kinds:SUCCESS",
        "MedR": "silohash.evaluate.kinds:MEDIAN_RANK",
        "RSum": "silohash.evaluate.kinds:RECALL_SUM",
    },
)
