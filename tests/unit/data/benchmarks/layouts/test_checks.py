"""Arrays that do not fit are named, with the file and the row."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.data.benchmarks.layouts.checks import common_rows
from silohash.types import UserError
from tests.unit.data.benchmarks.arrays import dcmh, items, read, save, ucch
from tests.unit.data.formats.matlab_files import cell


def test_row_counts_that_disagree_are_named(tmp_path):
    some = items()
    dcmh(tmp_path, some)
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels[1:])
    with pytest.raises(UserError, match=r"numbers of rows differ: .*YAll is 30 x 14; .*LAll is 29 x 4"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels)
    save(tmp_path / "mirflickr25k-fall.mat", FAll=cell(some.names[2:]))
    with pytest.raises(UserError, match=r"numbers of rows differ: .*FAll is 28 x 1"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")


@pytest.mark.parametrize(("value", "seen"), [(2, "2"), (-1, "-1"), (np.nan, "nan")])
def test_labels_that_are_not_0_or_1_are_named(tmp_path, value, seen):
    some = items()
    wrong = some.labels.astype(np.float64)
    wrong[7, 1] = value
    ucch(tmp_path, some._replace(labels=wrong))
    with pytest.raises(UserError, match=rf"LAll holds labels that are neither 0 nor 1: {seen} \(first in row 7\)"):
        read(tmp_path, "mirflickr25k", "ucch-mat")


def test_features_with_nan_are_named(tmp_path):
    some = items()
    broken = some.features.copy()
    broken[[3, 8], 2] = np.nan, np.inf
    ucch(tmp_path, some._replace(features=broken))
    with pytest.raises(UserError, match=r"XAll holds NaN or infinity in 2 of 30 rows \(first in row 3\)"):
        read(tmp_path, "mirflickr25k", "ucch-mat")


def test_classes_without_items_and_items_without_classes_are_noted(tmp_path):
    some = items()
    labels = np.hstack([some.labels, np.zeros((30, 2), np.uint8)])
    labels[4] = 0
    ucch(tmp_path, some._replace(labels=labels))
    raw = read(tmp_path, "mirflickr25k", "ucch-mat")
    assert raw.notes["classes without an item"] == "2: columns 4, 5"
    assert raw.notes["items without a label"] == "1"


def test_the_number_of_items_is_the_only_size_that_all_arrays_have():
    assert common_rows({"a": (30, 4), "b": (1, 30)}) == 30
    assert common_rows({"a": (1, 30), "b": (1, 7, 30)}) == 30  # a size of 1 is an axis without meaning
    assert common_rows({"a": (1, 4), "b": (1, 5)}) == 1
    with pytest.raises(UserError, match="ambiguous: a is 30 x 4; b is 4 x 30"):
        common_rows({"a": (30, 4), "b": (4, 30)})
