"""Ids of items in any form."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.api.given_ids import given_ids, own_items, read_ids
from silohash.base.arrays import given
from silohash.base.types import UserError
from silohash.index.codes import Codes, pack


def own(queries, database):
    """Return the rows that each query leaves out."""
    found = own_items(given("query ids", queries), given("database ids", database))
    return [[row for row in rows if row >= 0] for rows in found.tolist()]


def test_all_items_with_the_querys_id_are_its_own():
    assert own(["a", "b", "c"], ["b", "a", "x", "b"]) == [[1], [0, 3], []]
    assert own([3, 3], np.array([1, 3], np.uint8)) == [[1], [1]]
    assert own(["a"], ["b"]) == [[]]
    assert own_items(None, None) is None


def test_ids_of_one_side_or_of_two_kinds_are_refused():
    with pytest.raises(UserError, match="Only the queries have ids"):
        own_items(given("query ids", ["a"]), None)
    with pytest.raises(UserError, match="Only the database has ids"):
        own_items(None, given("database ids", ["a"]))
    with pytest.raises(UserError, match="The ids are both texts"):
        own(["1"], [1])


def test_the_ids_of_codes_stand_in_for_those_that_are_not_given():
    codes = Codes(pack(np.ones((1, 8))), 8, np.array(["a"]), "image", "m")

    def names(*arguments):
        return [None if ids is None else list(ids.values) for ids in given_ids(*arguments)]

    assert names(codes, codes, None, None) == [["a"], ["a"]]
    assert names([[1] * 8], codes, None, None) == [None, None]
    assert names([[1] * 8], codes, ["x"], None) == [["x"], ["a"]]
    assert names(codes, codes, None, ["y"]) == [["a"], ["y"]]
    assert names(codes, [[1] * 8], ["x"], None) == [["x"], None]


def test_ids_in_every_form():
    pandas = pytest.importorskip("pandas")
    for texts in (["a", "b "], ("a", "b"), np.array(["a", "b"]), np.array([["a"], [" b"]]), pandas.Series(["a", "b"])):
        assert read_ids(given("ids", texts)) == ["a", "b"]
    for texts in (["a  b", "2.0", "c"], np.array(["a b ", "2", "c"]), np.array(["a b", "2.00", "\u200bc"])):
        assert read_ids(given("ids", texts)) == ["a b", "2", "c"]
    for numbers in ([1, 2], np.array([1, 2], np.uint8), np.array([1.0, 2.0]), pandas.Index([1, 2]), range(1, 3)):
        assert read_ids(given("ids", numbers)) == [1, 2]
    assert read_ids(given("ids", np.array(["e\u0301", "nana"]))) == ["\u00e9", "nana"]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (np.zeros((2, 2)), r"shape \(2, 2\)"),
        (["a", None], "a missing value"),
        (np.array([16777217, 33554432], np.float32), "which are rounded"),
        (np.array([1, np.nan]), "a missing value"),
        (np.array(["a", ""]), "hold ''"),
        (np.array(["a", "nan"]), "hold 'nan'"),
        ([True, False], "of type bool"),
        ([("a",)], "of type tuple"),
    ],
)
def test_other_ids_are_refused(ids, says):
    with pytest.raises(UserError, match=says):
        read_ids(given("query ids", ids))
