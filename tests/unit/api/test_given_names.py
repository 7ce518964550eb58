"""Names of labels and items."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.api.given_names import check_exact, check_kinds, is_missing, name_of
from silohash.base.types import UserError


def test_missing_values():
    pandas = pytest.importorskip("pandas")
    assert all(map(is_missing, [None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT]))
    assert not any(map(is_missing, [0, "", "nan", np.inf, False, []]))


def test_names_are_texts_or_whole_numbers():
    assert [name_of("labels", value) for value in ("cat", " cat\n", np.str_("cat"))] == ["cat"] * 3
    assert [name_of("labels", value) for value in (2, 2.0, np.int8(2), np.float16(2))] == [2] * 4
    assert name_of("labels", "cafe\u0301") == "caf\u00e9"
    assert name_of("labels", "boat\u200b") == name_of("labels", "boat\u00a0") == "boat"
    assert name_of("labels", "2") == name_of("labels", "2.0") == "2"


@pytest.mark.parametrize(
    "value", [0.5, np.inf, True, np.True_, b"cat", 1j, (1,), "", "  ", "nan", "None", "<NA>", "NULL", "N/A"]
)
def test_other_names_are_refused(value):
    with pytest.raises(UserError, match=r"The labels hold .* Give a text or a whole number"):
        name_of("labels", value)


def test_a_text_and_a_number_are_never_the_same_name():
    check_kinds("ids", {"1", "a"}, {"2"})
    check_kinds("ids", {1, 2}, set())
    with pytest.raises(UserError, match='texts, such as "1", and numbers, such as 1'):
        check_kinds("ids", {"1"}, {1})


def test_floats_that_cannot_hold_every_whole_number_are_refused():
    for kind, most in ((np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)):
        check_exact("ids", np.array([1, most, np.nan], kind))
        with pytest.raises(UserError, match="which are rounded"):
            check_exact("ids", np.array([1, 2 * most], kind))
    check_exact("ids", np.array([2**60]))
