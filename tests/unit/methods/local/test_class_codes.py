"""Class codes and hash centers: orthogonal rows where there are enough, and distant words otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.methods.local import class_codes as module
from silohash.methods.local.class_codes import (
    class_codes,
    hadamard_matrix,
    hash_centers,
    most_separated,
    paley,
    random_code,
    separated_words,
)


def products(codes: np.ndarray) -> np.ndarray:
    """Return the inner products of different codes."""
    found = codes.astype(int) @ codes.T.astype(int)
    return found[~np.eye(len(codes), dtype=bool)]


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


@pytest.mark.parametrize("size", [4, 8, 12, 20, 24, 48])
def test_paley_matrices_are_hadamard_matrices_of_squares(size: int) -> None:
    matrix, prime = paley(size).astype(int), size - 1
    assert np.array_equal(matrix @ matrix.T, size * np.eye(size, dtype=int))
    squares = {number * number % prime for number in range(1, prime)}
    for i in range(prime):
        for j in range(prime):
            expected = 1 if i == j or (i - j) % prime in squares else -1
            assert matrix[i + 1, j + 1] == expected
    assert (matrix[0] == 1).all()
    assert (matrix[1:, 0] == -1).all()


@pytest.mark.parametrize("size", [1, 2, 12, 16, 20, 24, 40, 44, 48, 80, 96, 192])
def test_hadamard_matrices_of_many_sizes(size: int) -> None:
    matrix = hadamard_matrix(size)
    assert matrix is not None
    assert set(np.unique(matrix)) <= {-1, 1}
    assert np.array_equal(matrix.astype(int) @ matrix.T, size * np.eye(size, dtype=int))


@pytest.mark.parametrize("size", [3, 6, 10, 18, 22, 28, 36, 52])
def test_sizes_without_a_matrix_of_these_constructions(size: int) -> None:
    assert hadamard_matrix(size) is None


@pytest.mark.parametrize("bits", [12, 16, 24, 48])
def test_hash_centers_are_orthogonal_up_to_the_length_and_opposite_up_to_its_double(bits: int) -> None:
    assert not products(hash_centers(bits, bits, seed=3)).any()
    centers = hash_centers(2 * bits, bits, seed=3)
    assert np.array_equal(centers[bits:], -centers[:bits])
    assert set(products(centers)) == {0, -bits}
    assert np.array_equal(hash_centers(bits + 1, bits, seed=3), centers[: bits + 1])
    assert products(hash_centers(2 * bits + 1, bits, seed=3)).any()


def test_no_bit_is_constant_over_orthogonal_hash_centers() -> None:
    for seed in range(5):
        assert (np.abs(hash_centers(12, 12, seed=seed).sum(axis=0)) < 12).all()


@pytest.mark.parametrize(
    ("classes", "bits", "distance"), [(80, 12, 4), (80, 24, 8), (100, 16, 6), (6, 10, 6), (200, 64, 24)]
)
def test_more_hash_centers_keep_a_distance(classes: int, bits: int, distance: int) -> None:
    centers = hash_centers(classes, bits, seed=0)
    assert centers.shape == (classes, bits)
    assert (bits - products(centers).max()) / 2 >= distance
    assert np.abs(centers.mean(axis=0)).max() < 0.3


def test_hash_centers_beyond_the_length_are_balanced_where_this_costs_no_distance() -> None:
    assert not hash_centers(80, 24, seed=0).sum(axis=1).any()
    assert not hash_centers(6, 10, seed=0).sum(axis=1).any()
    assert hash_centers(80, 12, seed=0).sum(axis=1).any()


def test_more_classes_than_words_share_hash_centers() -> None:
    assert len(np.unique(hash_centers(256, 8, seed=0), axis=0)) == 256
    words, counts = np.unique(hash_centers(300, 8, seed=0), axis=0, return_counts=True)
    assert len(words) == 256
    assert counts.max() == 2


def separated_by_loops(words: np.ndarray, distance: int) -> list[int]:
    """Return the numbers of the words that a greedy choice takes."""
    chosen: list[int] = []
    for number, word in enumerate(words):
        if all((word != words[other]).sum() >= distance for other in chosen):
            chosen.append(number)
    return chosen


@pytest.mark.parametrize("block", [1, 7, 1024])
def test_separated_words_equal_a_greedy_choice_with_loops(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    words = np.random.default_rng(0).choice(np.asarray([-1, 1], np.int8), (200, 9))
    for distance in (1, 3, 4):
        expected = separated_by_loops(words, distance)
        assert np.array_equal(separated_words(words, distance, most=200), words[expected])
        assert np.array_equal(separated_words(words, distance, most=5), words[expected[:5]])


def test_the_largest_distance_with_enough_words_is_found() -> None:
    words = np.random.default_rng(0).choice(np.asarray([-1, 1], np.int8), (200, 9))
    for count in (2, 8, 50, 200):
        distance, chosen = most_separated(words, count, most=200)
        reached = [d for d in range(1, 5) if len(separated_by_loops(words, d)) >= count]
        assert distance == max(reached, default=0)
        assert len(chosen) == (len(separated_by_loops(words, distance)) if reached else 200)


def test_hash_centers_and_ties_follow_from_the_seed_and_cannot_be_changed() -> None:
    for make in (lambda seed: hash_centers(10, 12, seed=seed), lambda seed: hash_centers(50, 12, seed=seed)):
        assert make(5) is make(5)
        assert not np.array_equal(make(5), make(6))
        with pytest.raises(ValueError, match="read-only"):
            make(5)[0, 0] = 1
    ties = random_code(48, seed=5)
    assert (ties.shape, ties.dtype, set(ties.tolist())) == ((48,), np.int8, {-1, 1})
    assert ties is random_code(48, seed=5)
    assert not np.array_equal(ties, random_code(48, seed=6))
    with pytest.raises(ValueError, match="read-only"):
        ties[0] = 1
