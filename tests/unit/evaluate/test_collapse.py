"""The use of codes: shares of distinct codes, mutual information from counts of pairs, and what counts as collapsed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from silohash.evaluate.collapse import CodeCounts, CodeUse


def counts_of(places: np.ndarray, inputs: int | None = None) -> CodeCounts:
    distinct = len({tuple(row) for row in places.tolist()})
    values = places.astype(float)
    return CodeCounts(np.array([len(places), inputs or len(places), distinct], float), values.T @ values)


def plain_information(first: np.ndarray, second: np.ndarray) -> float:
    total = 0.0
    for a, b in product((0, 1), repeat=2):
        both = np.mean((first == a) & (second == b))
        if both:
            total += both * np.log2(both / (np.mean(first == a) * np.mean(second == b)))
    return total


def test_mutual_information_equals_that_of_plain_loops() -> None:
    generator = np.random.default_rng(0)
    places = generator.random((300, 5)) < [0.5, 0.3, 0.9, 0.5, 0.0]
    places[:, 3] = np.where(generator.random(300) < 0.8, places[:, 0], places[:, 3])
    largest = [
        max(plain_information(places[:, bit], places[:, other]) for other in range(5) if other != bit)
        for bit in range(5)
    ]
    found = CodeUse.learned(counts_of(places))
    assert found.repeated == pytest.approx(np.mean(largest))
    assert found.repeated > 0.1


def test_counts_of_silos_add_up_to_those_of_all_items() -> None:
    places = np.random.default_rng(1).random((200, 9)) < 0.4
    parts = [counts_of(part) for part in (places[:60], places[60:])]
    summed = CodeUse.learned(CodeCounts(*(np.add(*each) for each in zip(*parts, strict=True))))
    assert summed.repeated == pytest.approx(CodeUse.learned(counts_of(places)).repeated)


def test_copies_of_bits_and_equal_codes_have_collapsed() -> None:
    free = np.random.default_rng(2).random((2000, 16)) < 0.5
    assert not CodeUse.learned(counts_of(free)).collapsed
    copied = CodeUse.learned(counts_of(np.hstack([free, ~free])))
    assert copied.repeated == pytest.approx(1, abs=0.01)
    assert copied.collapsed
    few = CodeUse.learned(counts_of(free[np.arange(2000) % 900]))
    assert few.distinct == pytest.approx(0.45, abs=0.01)
    assert few.collapsed
    assert not CodeUse.learned(counts_of(free[np.arange(2000) % 900], inputs=900)).collapsed
    assert CodeUse.learned(counts_of(np.zeros((50, 8), bool))) == CodeUse(distinct=0.02, repeated=0.0)
