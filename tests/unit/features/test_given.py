from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import (
    ArchiveUnsuitable,
    ConflictingOptions,
    NotFinite,
    QueryUnsuitable,
    RevealsItems,
    UnsuitableFeatures,
    UserError,
    WrongType,
)
from silohash.features.base import add_statistics
from silohash.features.given import BLOCK_ITEMS, SHRINKAGE, GivenFeatures, TokenVectors, is_whitened, whitening
from tests.archives import drawn_pictures

OPTIONS = dict(GivenFeatures.options)
COUNT = 500
ALL = np.arange(COUNT)


def vectors(dtype: type = np.float32) -> np.ndarray:
    generator = np.random.default_rng(3)
    return (generator.normal(size=(COUNT, 6)) * [1, 5, 0.1, 20, 3, 1] + [0, 50, 90, -7, 60, 100]).astype(dtype)


def fitted(column: np.ndarray, rows: np.ndarray = ALL) -> GivenFeatures:
    features = GivenFeatures("image", column.shape[1])
    return features.fitted(features.statistics(column, rows))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.float64])
def test_standardised(dtype):
    column = np.abs(vectors()).astype(dtype)
    found = fitted(column).transform(column, ALL)
    reference = column.astype(np.float64)
    np.testing.assert_allclose(
        found, (reference - reference.mean(axis=0)) / np.maximum(reference.std(axis=0), 1e-12), atol=1e-4
    )
    assert found.dtype == np.float32


def test_vectors_of_equal_lengths_need_no_sums():
    column = vectors()
    column[4], column[5, 1] = np.nan, np.nan
    features = GivenFeatures.make("given", "image", column, OPTIONS | {"standardize": False, "equal_lengths": True})
    nothing = features.fitted(features.statistics(column, ALL[:0]))
    found = nothing.transform(column, ALL)
    there = np.arange(COUNT) != 4
    np.testing.assert_allclose(np.linalg.norm(found, axis=1)[there], np.sqrt(6), rtol=1e-6)
    clean = np.nan_to_num(column)
    np.testing.assert_allclose(
        found[there] * np.linalg.norm(clean, axis=1)[there, None], clean[there] * np.sqrt(6), rtol=1e-4
    )
    assert not found[4].any()
    again = GivenFeatures.from_state(*nothing.state())
    np.testing.assert_array_equal(again.transform(column, ALL), found)
    with pytest.raises(ConflictingOptions, match=r"features\.image\.standardize"):
        GivenFeatures.make("given", "image", column, OPTIONS | {"equal_lengths": True})


def test_silos_sums_give_the_pooled_fit():
    column = vectors()
    features = GivenFeatures("text", 6)
    parts = [features.statistics(column, ALL[start::3]) for start in range(3)]
    federated = features.fitted(add_statistics(parts)).transform(column, ALL)
    np.testing.assert_allclose(federated, fitted(column).transform(column, ALL), rtol=0, atol=1e-6)


def test_missing_rows_are_zero_and_left_out_of_the_sums():
    column = vectors()
    column[10:20] = np.nan
    column[30, 2] = np.nan
    column[31, 3] = np.inf
    features = fitted(column)
    found = features.transform(column, ALL)
    assert np.isfinite(found).all()
    assert (found[10:20] == 0).all()
    assert found[30, 2] == 0
    assert found[31, 3] == 0
    np.testing.assert_array_equal(features.summed["count"], [490, 490, 489, 489, 490, 490])
    np.testing.assert_allclose(features.summed["sum"][0], np.nansum(column[:, 0], dtype=np.float64))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1, -3e-9, np.nan])
def test_constant_columns_are_safe(value):
    column = np.column_stack([np.full(COUNT, value), vectors()]).astype(np.float32)
    features = fitted(column)
    assert (features.transform(column, ALL)[:, 0] == 0).all()
    assert (features.encode_one(np.full(7, 5.0, np.float32))[0, 0]) == 0


def test_a_query_is_encoded_as_the_archive_is():
    column = vectors()
    features = fitted(column)
    every = features.transform(column, ALL)
    np.testing.assert_array_equal(features.encode_one(column[7])[0], every[7])
    np.testing.assert_array_equal(features.encode_one(column[7:8])[0], every[7])


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (
            "two parrots",
            QueryUnsuitable,
            r"image.*6.*text",
        ),
        (drawn_pictures(1).picture(0), QueryUnsuitable, "the query is a picture"),
        (np.zeros(7), ArchiveUnsuitable, "7"),
        (np.array([np.nan] * 5 + [np.inf]), NotFinite, None),
    ],
)
def test_queries_of_the_wrong_kind(value, kind: type[UserError], message: str | None):
    with pytest.raises(kind, match=message):
        fitted(vectors()).encode_one(value)


def test_columns_of_the_wrong_kind():
    with pytest.raises(ArchiveUnsuitable, match=r"does not (have|hold) any"):
        fitted(vectors()).transform(np.array(["a", "b"]), np.arange(2))


def test_blocks_do_not_show(monkeypatch):
    column = vectors()
    whole = fitted(column).transform(column, ALL[::-1])
    monkeypatch.setattr("silohash.features.given.BLOCK_ROWS", 7)
    np.testing.assert_allclose(fitted(column).transform(column, ALL[::-1]), whole, atol=1e-6)


def test_transforming_needs_the_fit():
    with pytest.raises(RuntimeError, match="not fitted"):
        GivenFeatures("image", 6).transform(vectors(), ALL)


@pytest.mark.parametrize("column", [drawn_pictures(3), np.array(["a", "b"]), np.zeros(4, np.float32)])
def test_only_vectors_are_taken(column) -> None:
    with pytest.raises(UnsuitableFeatures, match="given"):
        GivenFeatures.make("given", "image", column, OPTIONS)
    assert GivenFeatures.make("given", "image", vectors(), OPTIONS).shape == (6,)


def correlated() -> np.ndarray:
    generator = np.random.default_rng(5)
    mixed = generator.normal(size=(COUNT, 4)) @ generator.normal(size=(4, 6))
    return (mixed + generator.normal(size=(COUNT, 6)) + 7.0).astype(np.float32)


def whitened(column: np.ndarray, silos: int = 1) -> GivenFeatures:
    features = GivenFeatures("image", column.shape[1], whiten=True)
    return features.fitted(add_statistics([features.statistics(column, ALL[start::silos]) for start in range(silos)]))


def test_whitened_columns_are_uncorrelated() -> None:
    column = correlated()
    plain, found = fitted(column).transform(column, ALL), whitened(column).transform(column, ALL)
    correlation = np.corrcoef(plain.astype(np.float64), rowvar=False)
    values, directions = np.linalg.eigh(correlation)
    expected = plain @ (directions / np.sqrt(values + SHRINKAGE)) @ directions.T
    np.testing.assert_allclose(found, expected, atol=1e-4)
    after = np.cov(found, rowvar=False, bias=True)
    np.testing.assert_allclose(after, (directions * (values / (values + SHRINKAGE))) @ directions.T, atol=1e-4)
    assert np.abs(correlation - np.eye(6)).max() > 0.3
    assert np.abs(after - np.diag(np.diag(after))).max() < 0.05
    assert found.dtype == np.float32


def test_silos_sums_give_the_pooled_whitening_and_no_products_are_stored() -> None:
    column = correlated()
    pooled, federated = whitened(column), whitened(column, silos=7)
    np.testing.assert_allclose(federated.transform(column, ALL), pooled.transform(column, ALL), atol=1e-5)
    assert set(federated.summed) == {"count", "sum", "sum_squares", "whitening"}


def test_rows_with_missing_numbers_are_left_out_of_the_correlations() -> None:
    column = correlated()
    holes = column.copy()
    holes[::5, 2] = np.nan
    kept = np.isfinite(holes).all(axis=1)
    features = GivenFeatures("image", 6, whiten=True)
    sums = features.statistics(holes, ALL)
    assert sums["rows"].tolist() == [kept.sum()]
    np.testing.assert_allclose(sums["row_sum"], column[kept].astype(np.float64).sum(axis=0))
    products = column[kept].astype(np.float64).T @ column[kept]
    np.testing.assert_allclose(sums["products"], products[np.triu_indices(6)])
    assert np.isfinite(features.fitted(sums).transform(holes, ALL)).all()


def test_constant_columns_stay_zero_under_whitening() -> None:
    column = correlated()
    column[:, 3] = 4.0
    found = whitened(column).transform(column, ALL)
    np.testing.assert_allclose(found[:, 3], 0.0, atol=1e-6)
    assert whitening(GivenFeatures("text", 2, whiten=True).statistics(np.zeros((0, 2)), ALL[:0])).tolist() == [
        [pytest.approx(10.0), 0.0], [0.0, pytest.approx(10.0)],
    ]  # fmt: skip


def test_a_whitened_featurizer_comes_back_from_its_state() -> None:
    column = correlated()
    features = whitened(column)
    restored = GivenFeatures.from_state(*features.state())
    np.testing.assert_array_equal(restored.transform(column, ALL), features.transform(column, ALL))
    assert "whiten" not in GivenFeatures("image", 6).state()[1]
    arrays, about = features.state()
    with pytest.raises(ValueError, match="whitening"):
        GivenFeatures.from_state({**arrays, "whitening": np.zeros((2, 2))}, about)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"whiten": True, "reveal_items": False}, RevealsItems, r"features\.text\.reveal_items"),
        ({"whiten": 1, "reveal_items": False}, WrongType, r"whiten.*1"),
        ({"whiten": False, "reveal_items": "no"}, WrongType, "reveal_items"),
    ],
)
def test_whitening_must_be_allowed(options: dict, kind: type[UserError], message: str) -> None:
    with pytest.raises(kind, match=message):
        is_whitened("text", OPTIONS | options)
    assert is_whitened("text", {"whiten": True, "reveal_items": True})
    assert not is_whitened("text", {"whiten": False, "reveal_items": True})


def test_vectors_can_stay_as_they_are() -> None:
    column = vectors()
    column[2, 1], column[3, 2] = np.nan, np.inf
    features = GivenFeatures.make("given", "image", column, OPTIONS | {"standardize": False})
    features = features.fitted(features.statistics(column, ALL))
    found = features.transform(column, ALL)
    assert (found[2, 1], found[3, 2]) == (0.0, 0.0)
    finite = np.isfinite(column)
    np.testing.assert_array_equal(found[finite], column[finite])
    assert found.dtype == np.float32
    arrays, about = features.state()
    assert np.array_equal(GivenFeatures.from_state(arrays, about).transform(column, ALL), found)
    assert "standardize" not in fitted(vectors()).state()[1]
    assert GivenFeatures.make("given", "image", column, OPTIONS).standardize


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"standardize": 0}, WrongType, r"standardize.*0"),
        (
            {"standardize": False, "whiten": True, "reveal_items": True},
            ConflictingOptions,
            r"features\.image\.standardize",
        ),
    ],
)
def test_standardize_is_checked(options: dict, kind: type[UserError], message: str) -> None:
    with pytest.raises(kind, match=message):
        GivenFeatures.make("given", "image", vectors(), OPTIONS | options)


ITEMS, TOKENS, WIDTH = BLOCK_ITEMS + 40, 3, 4
ALL_ITEMS = np.arange(ITEMS)


def rows_of_vectors() -> np.ndarray:
    """Return items with one to three tokens, of which the others are zero."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(ITEMS, 1 + TOKENS, WIDTH)) * [1, 5, 0.1, 2] + [0, 50, 9, -7]
    vectors[:, 0] += 100
    vectors[:, 1, 3] = 4.0
    for item in range(ITEMS):
        vectors[item, 2 + item % 3 :] = 0
    return vectors.reshape(ITEMS, -1).astype(np.float32)


def fitted_tokens(column: np.ndarray) -> TokenVectors:
    made = TokenVectors.make("text", column.shape[1], TOKENS)
    return made.fitted(made.statistics(column, ALL_ITEMS))


def test_items_and_tokens_are_standardized_apart() -> None:
    column = rows_of_vectors()
    features, vectors = fitted_tokens(column), column.reshape(ITEMS, 1 + TOKENS, WIDTH).astype(np.float64)
    found = features.transform(column, ALL_ITEMS)
    items, present = vectors[:, 0], vectors[:, 1:].any(2)
    np.testing.assert_allclose(found[:, 0], (items - items.mean(0)) / items.std(0), atol=1e-4)
    tokens = vectors[:, 1:][present]
    assert len(tokens) < ITEMS * TOKENS
    np.testing.assert_allclose(found[:, 1:][present], (tokens - tokens.mean(0)) / tokens.std(0), atol=1e-4)
    assert not found[:, 1:][~present].any()
    assert (found.dtype, found.shape) == (np.float32, (ITEMS, *features.shape))
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
    federated = made.fitted(add_statistics([made.statistics(column, ALL_ITEMS[start::3]) for start in range(3)]))
    np.testing.assert_allclose(
        federated.transform(column, ALL_ITEMS), fitted_tokens(column).transform(column, ALL_ITEMS), atol=1e-5
    )


def test_one_item_is_that_of_many() -> None:
    column = rows_of_vectors()
    features = fitted_tokens(column)
    np.testing.assert_array_equal(features.encode_one(column[7]), features.transform(column, ALL_ITEMS)[7:8])


def test_round_trip_through_the_state() -> None:
    column = rows_of_vectors()
    features = fitted_tokens(column)
    about = {"modality": "text", "width": column.shape[1], **features.settings()}
    restored = TokenVectors.from_state(dict(features.summed or {}), about)
    np.testing.assert_array_equal(restored.transform(column, ALL_ITEMS), features.transform(column, ALL_ITEMS))
    unfitted = TokenVectors.from_state({}, about)
    assert (unfitted.summed, unfitted.shape) == (None, features.shape)
    with pytest.raises(ValueError, match='the array "token_sum" is missing'):
        TokenVectors.from_state({n: a for n, a in (features.summed or {}).items() if n != "token_sum"}, about)
