"""Class codes: orthogonal rows where there are enough, and distant random codes otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.local import class_codes as module
from silohash.local.class_codes import class_codes, hadamard


def products(codes: np.ndarray) -> np.ndarray:
    """Return the inner products of different codes."""
    found = codes.astype(int) @ codes.T.astype(int)
    return found[~np.eye(len(codes), dtype=bool)]


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_hadamard_rows_are_orthogonal(size: int) -> None:
    matrix = hadamard(size).astype(int)
    assert matrix.shape == (size, size)
    assert np.array_equal(matrix @ matrix.T, size * np.eye(size, dtype=int))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("classes", "bits"), [(16, 16), (6, 16), (40, 16), (18, 24), (5, 48), (1, 8)])
def test_codes_are_signs_and_differ(classes: int, bits: int, exclusive: bool) -> None:
    codes = class_codes(classes, bits, exclusive=exclusive, seed=0)
    assert codes.shape == (classes, bits)
    assert codes.dtype == np.int8
    assert set(np.unique(codes)) == {-1, 1}
    assert len(np.unique(codes, axis=0)) == classes


def test_as_many_classes_as_bits_have_orthogonal_codes() -> None:
    assert not products(class_codes(16, 16, exclusive=False, seed=3)).any()
    assert not products(class_codes(16, 16, exclusive=True, seed=3)).any()


def test_twice_as_many_exclusive_classes_have_opposite_codes() -> None:
    codes = class_codes(32, 16, exclusive=True, seed=3)
    assert np.array_equal(codes[16:], -codes[:16])
    assert set(products(codes)) == {0, -16}
    assert 0 < np.abs(products(class_codes(32, 16, exclusive=False, seed=3))).max() < 16
    assert products(class_codes(33, 16, exclusive=True, seed=3)).any()


def test_no_opposite_codes_if_an_item_may_have_several_labels() -> None:
    several = products(class_codes(20, 12, exclusive=False, seed=1))
    exclusive = products(class_codes(20, 12, exclusive=True, seed=1))
    assert np.abs(several).max() < 12
    assert exclusive.max() <= np.abs(several).max()


def test_each_greedy_code_is_the_best_of_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = {}
    for candidates in (1, 512):
        monkeypatch.setattr(module, "CANDIDATES", candidates)
        class_codes.cache_clear()
        found = [np.abs(products(class_codes(20, 24, exclusive=False, seed=seed))).max() for seed in range(5)]
        largest[candidates] = float(np.mean(found))
    class_codes.cache_clear()
    assert largest[512] < 0.7 * largest[1]


def test_hadamard_codes_have_both_values_in_every_row_and_column() -> None:
    for seed in range(5):
        codes = class_codes(16, 16, exclusive=False, seed=seed).astype(int)
        assert (np.abs(codes.sum(axis=0)) < 16).all()
        assert (np.abs(codes.sum(axis=1)) < 16).all()


@pytest.mark.parametrize("bits", [16, 12])
def test_codes_follow_from_the_seed(bits: int) -> None:
    first, again, other = (class_codes(10, bits, exclusive=False, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("bits", [16, 12])
def test_codes_are_computed_once_and_cannot_be_changed(bits: int) -> None:
    first = class_codes(10, bits, exclusive=True, seed=4)
    assert class_codes(10, bits, exclusive=True, seed=4) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1
