"""Vectors of items and tokens: their sums over silos, padding, and what is restored."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.features.base import add_statistics
from silohash.features.token_vectors import BLOCK_ITEMS, TokenVectors

COUNT, TOKENS, WIDTH = BLOCK_ITEMS + 40, 3, 4
ALL = np.arange(COUNT)


def rows_of_vectors() -> np.ndarray:
    """Return items with one to three tokens, of which the others are zero."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(COUNT, 1 + TOKENS, WIDTH)) * [1, 5, 0.1, 2] + [0, 50, 9, -7]
    vectors[:, 0] += 100
    vectors[:, 1, 3] = 4.0
    for item in range(COUNT):
        vectors[item, 2 + item % 3 :] = 0
    return vectors.reshape(COUNT, -1).astype(np.float32)


def fitted(column: np.ndarray) -> TokenVectors:
    made = TokenVectors.make("text", column.shape[1], TOKENS)
    return made.fitted(made.statistics(column, ALL))


def test_items_and_tokens_are_standardized_apart() -> None:
    column = rows_of_vectors()
    features, vectors = fitted(column), column.reshape(COUNT, 1 + TOKENS, WIDTH).astype(np.float64)
    found = features.transform(column, ALL)
    items, present = vectors[:, 0], vectors[:, 1:].any(2)
    np.testing.assert_allclose(found[:, 0], (items - items.mean(0)) / items.std(0), atol=1e-4)
    tokens = vectors[:, 1:][present]
    assert len(tokens) < COUNT * TOKENS
    np.testing.assert_allclose(found[:, 1:][present], (tokens - tokens.mean(0)) / tokens.std(0), atol=1e-4)
    assert not found[:, 1:][~present].any()
    assert (found.dtype, found.shape) == (np.float32, (COUNT, *features.shape))
    assert (features.shape, features.width, features.modality) == ((4, 4), 16, "text")


def test_sums_by_hand() -> None:
    column = np.array([[1, 2, 3, 4, 0, 0], [5, 6, 0, 0, 0, 0], [9, 9, 9, 9, 9, 9]], np.float32)
    sums = TokenVectors.make("image", 6, 2).statistics(column, np.array([0, 1]))
    expected = {
        "count": [2, 2], "sum": [6, 8], "sum_squares": [26, 40],
        "token_count": [1, 1], "token_sum": [3, 4], "token_sum_squares": [9, 16],
    }  # fmt: skip
    assert {name: array.tolist() for name, array in sums.items()} == expected


def test_sums_of_silos_give_the_pooled_fit() -> None:
    column = rows_of_vectors()
    made = TokenVectors.make("text", column.shape[1], TOKENS)
    federated = made.fitted(add_statistics([made.statistics(column, ALL[start::3]) for start in range(3)]))
    np.testing.assert_allclose(federated.transform(column, ALL), fitted(column).transform(column, ALL), atol=1e-5)


def test_one_item_is_that_of_many() -> None:
    column = rows_of_vectors()
    features = fitted(column)
    np.testing.assert_array_equal(features.encode_one(column[7]), features.transform(column, ALL)[7:8])


def test_round_trip_through_the_state() -> None:
    column = rows_of_vectors()
    features = fitted(column)
    about = {"modality": "text", "width": column.shape[1], **features.settings()}
    restored = TokenVectors.from_state(dict(features.summed or {}), about)
    np.testing.assert_array_equal(restored.transform(column, ALL), features.transform(column, ALL))
    unfitted = TokenVectors.from_state({}, about)
    assert (unfitted.summed, unfitted.shape) == (None, features.shape)
    with pytest.raises(ValueError, match='the array "token_sum" is missing'):
        TokenVectors.from_state({n: a for n, a in (features.summed or {}).items() if n != "token_sum"}, about)
