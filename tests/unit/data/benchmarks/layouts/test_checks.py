"""Arrays that do not fit or are shuffled are named, with the file and the row."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import AmbiguousForm, FilesDiffer, NotFinite, OrderDiffers, OutOfRange
from silohash.data.benchmarks.layouts.checks import common_rows
from tests.unit.data.benchmarks.arrays import check, dcmh, items, pixels, read, save, ucch
from tests.unit.data.formats.matlab_files import cell, write_hdf5


def test_row_counts_that_disagree_are_named(tmp_path):
    some = items()
    dcmh(tmp_path, some)
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels[1:])
    with pytest.raises(FilesDiffer, match=r"numbers of rows differ: .*YAll is 30 x 14; .*LAll is 29 x 4"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels)
    save(tmp_path / "mirflickr25k-fall.mat", FAll=cell(some.names[2:]))
    with pytest.raises(FilesDiffer, match=r"FAll.*28.*1"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")


@pytest.mark.parametrize(("value", "seen"), [(2, "2"), (-1, "-1"), (np.nan, "nan")])
def test_labels_that_are_not_0_or_1_are_named(tmp_path, value, seen):
    some = items()
    wrong = some.labels.astype(np.float64)
    wrong[7, 1] = value
    ucch(tmp_path, some._replace(labels=wrong))
    with pytest.raises(OutOfRange, match=f"LAll.*{seen}.*7"):
        read(tmp_path, "mirflickr25k", "ucch-mat")


def test_features_with_nan_are_named(tmp_path):
    some = items()
    broken = some.features.copy()
    broken[[3, 8], 2] = np.nan, np.inf
    ucch(tmp_path, some._replace(features=broken))
    with pytest.raises(NotFinite, match=r"XAll.*2.*30.*3"):
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
    with pytest.raises(AmbiguousForm, match=r"ambiguous.*30.*30"):
        common_rows({"a": (30, 4), "b": (4, 30)})


@pytest.mark.parametrize("which", ["features", "tags", "labels"])
def test_a_shuffled_companion_is_named(tmp_path, which):
    some = items(count=300)
    order = np.random.default_rng(5).permutation(300)
    ucch(tmp_path, some._replace(**{which: getattr(some, which)[order]}))
    file = {"features": "iall-vgg.mat: XAll", "tags": "yall.mat: YAll", "labels": "lall.mat: LAll"}[which]
    with pytest.raises(OrderDiffers, match=f"mirflickr25k-{file}"):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    raw = read(tmp_path, "mirflickr25k", "ucch-mat", shuffled="accept")
    assert f"mirflickr25k-{file} are shuffled; accepted" in raw.notes["order of rows"]


def test_shuffled_pictures_are_named(tmp_path):
    some = items(count=800, size=8)
    dcmh(tmp_path, some._replace(pictures=some.pictures[::-1]))
    with pytest.raises(OrderDiffers, match=r"mirflickr25k-iall\.mat.*IAll"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")


def test_columns_that_say_nothing_of_each_other_are_a_note_only(tmp_path):
    draws = np.random.default_rng(0)
    labels = (draws.random((300, 4)) > 0.6).astype(np.uint8)
    ucch(
        tmp_path, items(count=300)._replace(features=draws.random((300, 8)), tags=draws.random((300, 9)), labels=labels)
    )
    assert "cannot be verified" in read(tmp_path, "mirflickr25k", "ucch-mat").notes["order of rows"]


def test_a_file_that_python_packed_of_matlabs_order_is_turned_upright(tmp_path):
    some = items(count=450, size=8)
    lying = some.pictures.transpose(0, 3, 2, 1)
    write_hdf5(tmp_path / "FLICKR-25K.mat", {"images": lying, "YAll": some.tags, "LAll": some.labels})
    raw = read(tmp_path, "mirflickr25k", "dcmh-merged")
    check(raw, some)
    assert "swapped, because the pictures lay on their side" in raw.notes["image: orientation"]
    assert "agree in the 450 rows" in raw.notes["order of rows"]
    kept = read(tmp_path, "mirflickr25k", "dcmh-merged", swap="no")
    assert np.array_equal(pixels(kept), some.pictures.transpose(0, 2, 1, 3))
    assert "see the option swap" in kept.notes["image: orientation"]
