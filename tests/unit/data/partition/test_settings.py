"""Values of settings are accepted up to their bounds and refused beyond them."""

from __future__ import annotations

import math

import pytest

from silohash.data.partition.settings import choice, is_number, positive, share, whole
from silohash.types import UserError


@pytest.mark.parametrize(
    ("value", "expected"), [(1, True), (0.5, True), (True, False), (math.inf, False), ("1", False)]
)
def test_numbers_are_finite_and_not_booleans(value, expected):
    assert is_number(value) is expected


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (positive, [1e-9, 3], [0, -1, math.nan, True, "1"]),
        (share, [0, 1, 0.5], [-1e-9, 1.0001, math.nan, True, "half"]),
        (lambda settings, name: whole(settings, name, 2), [2, 7], [1, 2.0, True, None]),
        (lambda settings, name: choice(settings, name, ("near", "far")), ["near"], ["nea", None, 1]),
    ],
)
def test_bounds(check, good, bad):
    for value in good:
        assert check({"x": value}, "x") == value
    for value in bad:
        with pytest.raises(UserError, match=r"\[partition\] x is"):
            check({"x": value}, "x")
