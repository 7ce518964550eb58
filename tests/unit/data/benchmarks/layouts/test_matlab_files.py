"""Which file is read when several could be meant."""

from __future__ import annotations

import pytest

from silohash.types import UserError
from tests.unit.data.benchmarks.arrays import check, dcmh, items, read, ucch


def test_files_of_one_name_in_two_folders_are_not_chosen_between(tmp_path):
    some = items()
    dcmh(tmp_path / "a", some)
    dcmh(tmp_path / "b", some)
    with pytest.raises(UserError, match=r"more than once: a/mirflickr25k-iall\.mat, b/mirflickr25k-iall\.mat"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")
    check(read(tmp_path / "a", "mirflickr25k", "dcmh-mat"), some)


def test_companions_come_from_the_folder_of_the_features(tmp_path):
    some = items()
    ucch(tmp_path / "ucch", some)
    dcmh(tmp_path / "dcmh", some)
    (tmp_path / "ucch" / "mirflickr25k-yall.mat").unlink()
    with pytest.raises(
        UserError, match=r"mirflickr25k-yall.mat is missing in .*ucch\. It must come from the same folder"
    ):
        read(tmp_path, "mirflickr25k", "ucch-mat")


def test_shuffled_and_plain_files_are_not_mixed(tmp_path):
    some = items()
    ucch(tmp_path, some, "-rand")
    (tmp_path / "mirflickr25k-lall-rand.mat").rename(tmp_path / "mirflickr25k-lall.mat")
    with pytest.raises(
        UserError, match=r"iall-vgg-rand.mat and mirflickr25k-lall.mat have their rows in different orders"
    ):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    ucch(tmp_path, some)
    with pytest.raises(UserError, match=r"the same items in different orders\. Set rand = no"):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    check(read(tmp_path, "mirflickr25k", "ucch-mat", rand="no"), some, features=True)
