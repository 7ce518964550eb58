from __future__ import annotations

import numpy as np
import pytest

from silohash.features.base import add_statistics
from silohash.features.given import GivenFeatures
from silohash.types import UserError
from tests.archives import drawn_pictures

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
    np.testing.assert_array_equal(np.flatnonzero(features.missing(column, ALL)), np.arange(10, 20))
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
    ("value", "message"),
    [
        (
            "two parrots",
            r"trained on precomputed image features with 6 columns, and the query is a text\. Pass a \.npy vector",
        ),
        (drawn_pictures(1).picture(0), "the query is a picture"),
        (np.zeros(7), "these have 7"),
    ],
)
def test_queries_of_the_wrong_kind(value, message):
    with pytest.raises(UserError, match=message):
        fitted(vectors()).encode_one(value)


def test_columns_of_the_wrong_kind():
    with pytest.raises(UserError, match=r"does not (have|hold) any"):
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
    with pytest.raises(UserError, match=r'kind "given" needs feature vectors'):
        GivenFeatures.make("given", "image", column, {})
    assert GivenFeatures.make("given", "image", vectors(), {}).shape == (6,)
