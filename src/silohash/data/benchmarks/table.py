"""The table of the benchmarks whose files the user provides. Each one's facts are in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping

from silohash.data.benchmarks.coco import COCO
from silohash.data.benchmarks.dataset import Dataset
from silohash.data.benchmarks.fashion import FASHIONVC, SSENSE
from silohash.data.benchmarks.iapr import IAPR_TC12
from silohash.data.benchmarks.mirflickr import MIRFLICKR25K
from silohash.data.benchmarks.nus_wide import NUS_WIDE
from silohash.data.benchmarks.pascal import PASCAL_SENTENCE
from silohash.data.benchmarks.wikipedia import WIKIPEDIA

DATASETS: Mapping[str, Dataset] = {
    dataset.key: dataset
    for dataset in (MIRFLICKR25K, NUS_WIDE, IAPR_TC12, COCO, WIKIPEDIA, FASHIONVC, SSENSE, PASCAL_SENTENCE)
}
"""The benchmarks by key."""
