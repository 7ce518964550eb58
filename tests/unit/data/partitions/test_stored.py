"""Rows as runs in text, and back."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.data.partitions import stored
from silohash.data.partitions.stored import as_runs, from_runs


@pytest.mark.parametrize(
    ("rows", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 2], "0 2"), ([0, 1, 2, 5, 7, 8], "0-2 5 7-8"), ([4, 9, 10], "4 9-10")],
)
def test_rows_come_back(rows: list[int], text: str) -> None:
    assert as_runs(np.array(rows, np.int64)) == text
    found = from_runs(text, len(rows))
    assert found.dtype == np.int64
    assert found.tolist() == rows


@pytest.mark.parametrize(
    ("text", "items", "says"),
    [
        ("0-2", 2, "differs from its items"),
        ("0-2", 4, "differs from its items"),
        ("5-3", 0, "differs from its items"),
        ("0-1-2", 3, "differs from its items"),
        ("3 2", 2, "not sorted"),
        ("2 2", 2, "not sorted"),
        ("a", 1, "invalid literal"),
        ("-3", 1, "invalid literal"),
        ("0-999999999999999", 10**15, "more than 1,073,741,824"),
    ],
)
def test_other_texts_are_refused(text: str, items: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_runs(text, items)


def test_the_largest_number_of_items_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MOST_ITEMS", 3)
    assert from_runs("0-2", 3).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="4 items, more than 3"):
        from_runs("0-3", 4)
