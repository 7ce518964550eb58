"""Cuts of classes by shares, and nested prefixes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.data.partition.base import Partition, partition
from silohash.data.partition.cuts import check_count, counted_rows, cut, nested, strata_of
from silohash.data.partition.kinds import Classes
from silohash.types import UserError
from tests.archives import made_up_archive


def silo_of(made: Partition, count: int) -> np.ndarray:
    found = np.full(count, -1)
    for number, silo in enumerate(made.silos):
        found[silo.rows] = number
    return found


def test_iid_cuts_every_split_evenly():
    archive = made_up_archive(403)
    made = partition(archive, "iid", 4, 0)
    for name in ("query", "train"):
        sizes = [len(silo.split(archive, name)) for silo in made.silos]
        assert max(sizes) - min(sizes) <= 1
    assert max(map(len, (s.rows for s in made.silos))) - min(map(len, (s.rows for s in made.silos))) <= 3


def test_nested_silos_contain_each_other_and_the_last_holds_all():
    archive = made_up_archive(500)
    made = partition(archive, "nested", 3, 0)
    assert not made.disjoint
    assert made.params["fractions"] == [0.6, 0.8, 1.0]
    assert [len(silo.rows) for silo in made.silos] == [300, 400, 500]
    for small, large in zip(made.silos, made.silos[1:], strict=False):
        assert np.isin(small.rows, large.rows).all()
    assert len(partition(archive, "nested", None, 0, fractions=[0.5, 1.0])) == 2


@pytest.mark.parametrize("fractions", [[1.0, 0.6], [0.5, 0.9], [], "all", [0.0, 1.0], [0.5, "x"]])
def test_fractions_that_lose_items_are_refused(fractions):
    with pytest.raises(UserError, match="fractions"):
        partition(made_up_archive(50), "nested", None, 0, fractions=fractions)


def test_rows_outside_every_split_are_kept():
    archive = replace(made_up_archive(100), splits={"query": np.arange(5), "database": np.arange(20, 90)})
    made = partition(archive, "iid", 3, 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([silo.rows for silo in made.silos])), np.arange(100))


def test_classes_of_one_item_do_not_all_go_to_the_same_silo():
    classes = Classes(np.arange(400), 400)
    silo_of = cut(classes, np.zeros(400, np.int64), np.full((400, 4), 0.25), np.random.default_rng(0))
    assert np.bincount(silo_of, minlength=4).min() > 60


def test_a_cut_is_off_by_less_than_one_item_and_gives_nothing_for_no_share():
    shares = np.array([[0.0, 0.31, 0.0, 0.44, 0.25, 0.0]])
    for count in (1, 7, 50, 333):
        silo_of = cut(
            Classes(np.zeros(count, np.int64), 1), np.zeros(count, np.int64), shares, np.random.default_rng(1)
        )
        sizes = np.bincount(silo_of, minlength=6)
        assert (np.abs(sizes - shares[0] * count) < 1).all()
        assert (sizes[[0, 2, 5]] == 0).all()


def test_a_nested_silo_holds_its_share_of_each_split_rounded_up():
    archive = replace(made_up_archive(7), splits={"query": np.arange(3), "database": np.arange(3, 7)})
    parts, fractions = nested(archive, None, [0.5, 1.0], 0)
    assert fractions == [0.5, 1.0]
    assert [len(np.intersect1d(parts[0], archive.split(name))) for name in ("query", "database")] == [2, 2]
    assert nested(archive, 1, None, 0)[1] == [1.0]
    assert nested(archive, 5, None, 0)[1] == [0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_stratum_encodes_the_splits_of_an_item():
    archive = replace(
        made_up_archive(5), splits={"query": np.array([0]), "database": np.array([1, 2]), "train": np.array([2, 3])}
    )
    assert strata_of(archive).tolist() == [1, 2, 6, 4, 0]


def test_training_items_are_counted_or_all_where_there_are_none():
    archive = made_up_archive(4)
    assert counted_rows(replace(archive, splits={"train": np.array([1, 3])})).tolist() == [False, True, False, True]
    assert counted_rows(replace(archive, splits={"train": np.array([], int)})).all()
    assert counted_rows(replace(archive, splits={})).all()


def test_as_many_silos_as_items_are_allowed_and_one_more_is_not():
    assert check_count(5, 5) == 5
    with pytest.raises(UserError, match="silos is 6, and there are 5 items"):
        check_count(6, 5)


def test_items_of_a_stratum_are_cut_by_themselves():
    strata = np.repeat([0, 1], 40)
    shares = np.array([[0.25, 0.75]])
    silo_of = cut(Classes(np.zeros(80, np.int64), 1), strata, shares, np.random.default_rng(0))
    assert [np.bincount(silo_of[strata == stratum]).tolist() for stratum in (0, 1)] == [[10, 30], [10, 30]]


def test_shares_need_not_sum_to_one():
    nothing = np.zeros(40, np.int64)
    silo_of = cut(Classes(nothing, 1), nothing, np.array([[1.0, 3.0]]), np.random.default_rng(0))
    assert np.bincount(silo_of).tolist() == [10, 30]


def test_fractions_may_be_given_with_their_number_and_nothing_else():
    archive = made_up_archive(20)
    assert nested(archive, 2, [0.5, 1.0], 0)[1] == [0.5, 1.0]
    assert nested(archive, 2, None, 0)[1] == [0.6, 1.0]
    with pytest.raises(UserError, match="Set silos = 2"):
        nested(archive, 3, [0.5, 1.0], 0)
    with pytest.raises(UserError, match="fractions is 5; it must be growing shares"):
        nested(archive, None, 5, 0)
