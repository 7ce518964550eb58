"""Cuts of classes by shares, and nested prefixes."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.data.partition.base import Partition, partition
from silohash.data.partition.cuts import cut
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
    archive = made_up_archive(100).with_splits({"query": np.arange(5), "database": np.arange(20, 90)})
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
