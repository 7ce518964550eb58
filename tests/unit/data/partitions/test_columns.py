"""Silos by the values of a column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.base.errors import RepeatedValue, SettingNeeded, TooFew, UnknownName, UserError, WrongType
from silohash.data.partitions.base import partition
from silohash.data.partitions.columns import folder_names, remark_on_values, silos_of_values
from tests.archives import made_up_archive


def of_places(*values: str):
    return replace(made_up_archive(len(values)), columns={"place": np.array(values)})


def test_values_that_are_left_go_to_the_silo_that_holds_the_fewest_items():
    archive = of_places(*"aaaaa", *"bbbb", *"ccc", *"dd", "e")
    names, silo_of = silos_of_values(archive, "place", None, 2)
    # a (5) and b (4) get silos; c goes to b (4 + 3 = 7), d to a (5 + 2 = 7), e to the first of the two.
    assert names == ["a", "b"]
    assert [int(silo_of[archive.columns["place"] == value][0]) for value in "abcde"] == [0, 1, 1, 0, 0]
    assert silos_of_values(archive, "place", None, None)[0] == list("abcde")


def test_values_that_two_systems_typed_are_one_silo():
    archive = of_places(
        "Z\u00fcrich", "Zu\u0308rich", "Z\u00fcrich\u200b", "2", "2.0", "2.0", "\u00a0bern ", "Bern", ""
    )
    names, silo_of = silos_of_values(archive, "place", None, None)
    assert names == ["2.0", "Z\u00fcrich", "none", "Bern", "bern-2"]
    assert silo_of.tolist() == [1, 1, 1, 0, 0, 0, 4, 3, 2]
    groups = {"one": ["Zu\u0308rich", "2"], "two": ["*"]}
    assert silos_of_values(archive, "place", groups, None)[1].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    with pytest.raises(UserError, match=r'"2" more than once|"2\.0" more than once'):
        silos_of_values(archive, "place", {"one": ["2"], "two": ["2.0", "*"]}, None)
    assert remark_on_values(archive, "place") == (
        'These values of column "place" look similar but are different: "Bern" and "bern". Write them the same way if they '
        'mean the same. Some items (1) have no value in column "place" and are one group.'
    )
    said = replace(archive, card=replace(archive.card, warnings=(remark_on_values(archive, "place"),)))
    assert remark_on_values(said, "place") == remark_on_values(of_places("a", "nan"), "place")
    assert remark_on_values(archive, None) == remark_on_values(of_places("a", "b"), "place") == ""


def test_values_of_a_group_share_its_silo():
    archive = of_places("x", "y", "z", "x")
    names, silo_of = silos_of_values(archive, "place", {"one": ["z"], "two": ["*"]}, 2)
    assert names == ["one", "two"]
    assert silo_of.tolist() == [1, 1, 0, 1]
    assert silos_of_values(archive, "place", {"one": ["x", "y"], "two": ["z"]}, None)[1].tolist() == [0, 0, 1, 0]


def test_a_column_gives_a_silo_a_value_and_spreads_the_rest():
    archive = made_up_archive(1000)
    each = partition(archive, "column", None, 0, column="place")
    assert sorted(silo.name for silo in each.silos) == ["center", "east-west", "north", "sea", "south"]
    for silo in each.silos:
        assert len(np.unique(archive.columns["place"][silo.rows])) == 1
    three = partition(archive, "column", 3, 0, column="place")
    assert [silo.name for silo in three.silos] == ["north", "south", "east-west"]
    assert set(archive.columns["place"][three.silos[2].rows]) == {"east/west", "center", "sea"}


def test_groups_of_values():
    archive = made_up_archive(1000)
    groups = {"land": ["north", "south"], "water": ["sea"], "other": ["*"]}
    made = partition(archive, "column", 3, 0, column="place", groups=groups)
    held = {silo.name: set(archive.columns["place"][silo.rows]) for silo in made.silos}
    assert held == {"land": {"north", "south"}, "water": {"sea"}, "other": {"east/west", "center"}}


@pytest.mark.parametrize(
    ("groups", "kind", "message"),
    [
        ({"a": ["north"], "b": ["sea"]}, SettingNeeded, r"3.*center"),
        ({"a": ["nort", "*"]}, UnknownName, r'"nort" \(did you mean "north"\?\)'),
        ({"a": ["north"], "b": ["north", "*"]}, RepeatedValue, None),
        ({"a": "north"}, WrongType, None),
    ],
)
def test_groups_that_do_not_add_up(groups, kind: type[UserError], message: str | None):
    with pytest.raises(kind, match=message):
        partition(made_up_archive(300), "column", None, 0, column="place", groups=groups)


def test_folder_names_are_safe_and_unique():
    assert folder_names(["../up", "A", "a", "", "x" * 90]) == ["up", "A", "a-2", "none", "x" * 60]


def test_a_column_is_not_drawn_again_for_a_minimum():
    archive = made_up_archive(400)
    with pytest.raises(TooFew, match="`groups`") as error:
        partition(archive, "column", 3, 0, column="place", minimum=179)
    assert "draws" not in str(error.value)
    smallest = min(
        len(silo.split(archive, "train")) for silo in partition(archive, "column", 3, 0, column="place").silos
    )
    assert f"set minimum = {smallest}" in str(error.value)


@pytest.mark.parametrize("groups", [{}, ["north"], "north"])
def test_groups_that_name_no_silo_are_refused(groups):
    with pytest.raises(WrongType):
        silos_of_values(of_places("north", "south"), "place", groups, None)
