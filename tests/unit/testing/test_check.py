"""Checks of a contract: named callables, and the error of one that fails."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.testing import Check, ContractError
from silohash.testing.check import first_difference, require, require_finite, same_arrays


def test_a_check_has_a_name_and_runs_once_per_call() -> None:
    done: list[int] = []
    check = Check("contrast-learns", lambda: done.append(1))
    assert str(check) == "contrast-learns"
    check()
    check()
    assert done == [1, 1]


def test_a_requirement_that_does_not_hold_is_an_assertion_error() -> None:
    require(True, "never shown")
    with pytest.raises(AssertionError, match="The loss should fall") as error:
        require(False, "The loss should fall.")
    assert error.type is ContractError


@pytest.mark.parametrize("value", [np.array([1.0, np.nan]), np.inf, None])
def test_values_that_are_not_finite_are_named(value: object) -> None:
    require_finite({"a": np.ones(2), "b": 3}, "The parameter")
    with pytest.raises(ContractError, match=r"^The parameter b is not finite\.$"):
        require_finite({"a": np.ones(2), "b": value}, "The parameter")


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"a": np.zeros(2), "b": np.ones(3)}, ""),
        ({"a": np.zeros(2), "b": np.full(3, 2.0)}, "b"),
        ({"a": np.full(2, -0.0), "b": np.ones(3)}, "a"),
        ({"a": np.zeros(2, np.float32), "b": np.ones(3)}, "a"),
        ({"b": np.ones(3)}, "a"),
        ({"a": np.zeros(2), "b": np.ones(3), "c": np.ones(1)}, "c"),
    ],
)
def test_arrays_are_compared_bit_for_bit(other: dict[str, np.ndarray], difference: str) -> None:
    arrays = {"a": np.zeros(2), "b": np.ones(3)}
    assert same_arrays(arrays, other) == (not difference)
    assert first_difference(arrays, other) == first_difference(other, arrays) == difference
