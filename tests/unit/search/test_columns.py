"""Columns of text, in the cells of a terminal."""

from __future__ import annotations

import pytest

from silohash.search.columns import aligned, cut, fitted_widths, padded


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [
        ("two parrots", 11, "two parrots"),
        ("two parrots", 10, "two parro…"),
        ("鸚鵡", 4, "鸚鵡"),
        ("鸚鵡", 3, "鸚…"),
        ("a鸚鵡", 4, "a鸚…"),
        ("", 0, ""),
    ],
)
def test_texts_are_cut_by_the_cells_they_take(text: str, cells: int, expected: str) -> None:
    assert cut(text, cells) == expected


def test_padding_counts_cells() -> None:
    assert padded("鸚", 4) == "鸚  "
    assert padded("7", 3, right=True) == "  7"
    assert padded("four", 4) == "four"


@pytest.mark.parametrize(
    ("natural", "weights", "cells", "expected"),
    [
        ([5, 20], {1: 1.0}, 27, [5, 20]),
        ([5, 20], {1: 1.0}, 26, [5, 19]),
        ([5, 40, 40], {1: 1.0, 2: 1.0}, 49, [5, 20, 20]),
        ([5, 60, 60], {1: 1.0, 2: 2.0}, 69, [5, 20, 40]),
        ([5, 10, 60], {1: 1.0, 2: 1.0}, 39, [5, 10, 20]),
        ([50, 9], {1: 1.0}, 10, [50, 6]),
        ([50, 3], {1: 1.0}, 10, [50, 3]),
    ],
)
def test_columns_are_cut_in_proportion(
    natural: list[int], weights: dict[int, float], cells: int, expected: list[int]
) -> None:
    assert fitted_widths(natural, weights, cells) == expected


def test_rows_are_aligned() -> None:
    rows = [("1", "north", "two parrots"), ("12", "鸚", "")]
    assert aligned(rows, numeric=1, weights={2: 1.0}, cells=80) == [" 1  north  two parrots", "12  鸚"]
    assert aligned(rows, numeric=1, weights={2: 1.0}, cells=20) == [" 1  north  two parr…", "12  鸚"]
    without = [("1", "", "two parrots"), ("12", "", "")]
    assert aligned(without, numeric=1, weights={2: 1.0}, cells=13) == [" 1  two parr…", "12"]
