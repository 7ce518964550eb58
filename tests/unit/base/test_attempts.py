from __future__ import annotations

import pytest

from silohash.base.attempts import attempted


def test_the_value_or_another_one_in_place_of_an_expected_error() -> None:
    assert attempted(lambda: int("7"), ValueError, otherwise=None) == 7
    assert attempted(lambda: int("x"), TypeError, ValueError, otherwise=None) is None
    with pytest.raises(ZeroDivisionError):
        attempted(lambda: 1 / 0, ValueError, otherwise=None)
