"""Files whose rows are shuffled, and pictures that lie on their side."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.types import UserError
from tests.unit.data.benchmarks.arrays import check, dcmh, items, pixels, read, ucch
from tests.unit.data.formats.matlab_files import write_hdf5


@pytest.mark.parametrize("which", ["features", "tags", "labels"])
def test_a_shuffled_companion_is_named(tmp_path, which):
    some = items(count=300)
    order = np.random.default_rng(5).permutation(300)
    ucch(tmp_path, some._replace(**{which: getattr(some, which)[order]}))
    file = {"features": "iall-vgg.mat: XAll", "tags": "yall.mat: YAll", "labels": "lall.mat: LAll"}[which]
    with pytest.raises(UserError, match=f"rows of mirflickr25k-{file} do not match those of the other files"):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    raw = read(tmp_path, "mirflickr25k", "ucch-mat", shuffled="accept")
    assert f"mirflickr25k-{file} are shuffled; accepted" in raw.notes["order of rows"]


def test_shuffled_pictures_are_named(tmp_path):
    some = items(count=800, size=8)
    dcmh(tmp_path, some._replace(pictures=some.pictures[::-1]))
    with pytest.raises(UserError, match=r"rows of mirflickr25k-iall\.mat: IAll do not match"):
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
