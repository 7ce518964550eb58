"""Conditions on the values of columns."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import OutOfRange, WrongForm
from silohash.search.filters import MOST_CONDITIONS, Column, Condition, conditions_of, labeled

VALUES = [
    "1900",
    "1899.5",
    "2001-05-17",
    "2001-05",
    "2001",
    "Louvre",
    "Orsay, Paris",
    "007",
    "2001-05-17T23:30:00+02:00",
]
COLUMN = Column.of(enumerate(VALUES))


def found(text):
    mask = COLUMN.passing(Condition.of(text), len(VALUES))
    return [VALUES[row] for row in np.flatnonzero(mask)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=Louvre", ["Louvre"]),
        ("x=\u00a0Louvre\u200b", ["Louvre"]),
        ('x=Louvre,"Orsay, Paris"', ["Louvre", "Orsay, Paris"]),
        ("x=1900.0", ["1900"]),
        ("x=7", []),
        ("x=007", ["007"]),
        ("x=2001-05", ["2001-05-17", "2001-05", "2001-05-17T23:30:00+02:00"]),
        ("x=2001-05-17", ["2001-05-17", "2001-05-17T23:30:00+02:00"]),
        ("x>=2001-05-17", ["2001-05-17", "2001-05-17T23:30:00+02:00"]),
        ("x>2001-05-17T21:29:59", ["2001-05-17T23:30:00+02:00"]),
        ("x<2001-05", ["1900"]),
        ("x<=2001-05", ["1900", "2001-05-17", "2001-05", "2001-05-17T23:30:00+02:00"]),
        ("x>1899.5", ["1900", "2001"]),
        ("x<1900", ["1899.5"]),
        ("x<=1900", ["1900", "1899.5"]),
        ("x > 1900", ["2001-05-17", "2001-05", "2001", "2001-05-17T23:30:00+02:00"]),
    ],
)
def test_values_that_meet_a_condition(text, expected):
    assert found(text) == expected
    if "=" in text and not set("<>") & set(text):
        others = [value for value in VALUES if value not in expected]
        assert found(text.replace("=", "!=", 1)) == others


def test_items_without_a_value_are_not_equal_to_any():
    column = Column.of([(0, "a"), (2, "b")])
    assert column.passing(Condition.of("x!=a"), 4).tolist() == [False, True, True, True]
    assert column.passing(Condition.of("x=a,b"), 4).tolist() == [True, False, True, False]


def test_labels_are_equal_as_texts():
    column = Column(("2001", "2001-05", "1.0"), np.arange(3), np.arange(3, dtype=np.int32), exact=True)
    assert column.passing(Condition.of("labels=2001,1"), 3).tolist() == [True, False, False]


def test_counts_are_those_of_items_that_pass():
    column = Column.of([(0, "a"), (0, "b"), (1, "a"), (3, "c")])
    assert column.counts(np.array([True, True, True, False])) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    "text", ["", "museum", "=Louvre", "museum=", "museum=a,,b", "year>=", "year>=old", "year<1,2", "date<2001-13"]
)
def test_what_is_not_a_condition_is_refused(text):
    with pytest.raises(WrongForm):
        conditions_of(text)


def test_conditions_can_be_given_in_several_forms():
    condition = Condition("museum", "=", ('a "b", c',))
    assert conditions_of(str(condition)) == conditions_of([condition]) == conditions_of(condition) == (condition,)
    assert conditions_of("year == 1900") == (Condition("year", "=", ("1900",)),)
    assert labeled("cat") == labeled(["cat"]) == (Condition("labels", "=", ("cat",)),)
    assert labeled(None) == ()
    with pytest.raises(OutOfRange):
        conditions_of(["a=b"] * (MOST_CONDITIONS + 1))
