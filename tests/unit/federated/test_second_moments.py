"""Second moments against explicit loops, and the regression against least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.federated import second_moments as module
from silohash.federated.second_moments import SecondMoments, mean_deviation, ridge_weights, second_moments

VECTORS = np.asarray([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]], np.float32)
LABELS = np.asarray([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.float32)


def items(count: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    vectors = generator.normal(loc=2.0, size=(count, width)).astype(np.float32)
    return vectors, (generator.random((count, classes)) < 0.3).astype(np.float32)


def test_sums_by_hand() -> None:
    found = second_moments(VECTORS, LABELS)
    assert float(found.count) == 3.0
    assert found.vector_sum.tolist() == [4.0, 1.5]
    assert found.vector_products.tolist() == [[10.0, 3.5], [3.5, 5.25]]
    assert found.label_sum.tolist() == [1.0, 1.0, 1.0]
    assert found.cross_products.tolist() == [[1.0, 3.0, 1.0], [2.0, 0.5, 2.0]]
    assert float(found.several_labels) == 1.0
    assert found.mean().tolist() == [4 / 3, 0.5]
    assert found.label_shares().tolist() == [1 / 3, 1 / 3, 1 / 3]


@pytest.mark.parametrize("rows", [1, 3, 10, 11])
def test_blocks_cover_every_row_once(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(module, "BLOCK_ROWS", rows)
    vectors, labels = items(10, 4, 3)
    found = second_moments(vectors, labels)
    products, cross = np.zeros((4, 4)), np.zeros((4, 3))
    for x, y in zip(vectors.astype(np.float64), labels.astype(np.float64), strict=True):
        products += np.outer(x, x)
        cross += np.outer(x, y)
    np.testing.assert_allclose(found.vector_products, products, rtol=1e-12)
    np.testing.assert_allclose(found.cross_products, cross, rtol=1e-12)
    np.testing.assert_allclose(found.vector_sum, vectors.astype(np.float64).sum(0), rtol=1e-12)
    assert found.label_sum.tolist() == labels.sum(0).tolist()


def test_sums_are_float64_and_precise_for_float32_vectors() -> None:
    vectors = np.full((5000, 1), 0.1, np.float32)
    found = second_moments(vectors, np.ones((5000, 1), np.float32))
    assert all(array.dtype == np.float64 for array in found.to_sums("x").values())
    assert float(found.vector_products[0, 0]) == pytest.approx(5000 * float(np.float32(0.1)) ** 2, rel=1e-12)


def test_a_message_holds_the_upper_triangle_only() -> None:
    given = second_moments(*items(9, 5, 3))
    sums = given.to_sums("text")
    assert sums["text/vector_products"].shape == (15,)
    assert {name: array.shape for name, array in sums.items() if name != "text/vector_products"} == {
        "text/count": (), "text/vector_sum": (5,), "text/label_sum": (3,), "text/cross_products": (5, 3),
        "text/several_labels": (),
    }  # fmt: skip
    back = SecondMoments.from_sums({**sums, "image/count": np.asarray(1.0)}, "text")
    assert all(np.array_equal(getattr(back, name), getattr(given, name)) for name in vars(given))


def test_an_empty_silo_sends_zeros() -> None:
    found = second_moments(np.zeros((0, 4), np.float32), np.zeros((0, 2), np.float32))
    assert not any(array.any() for array in found.to_sums("image").values())
    assert not found.mean().any()
    assert not found.label_shares().any()
    assert not ridge_weights(found, 0.3).any()
    assert mean_deviation(found, np.ones((4, 3))) == 0.0


def test_means_and_deviation_of_a_single_item() -> None:
    found = second_moments(VECTORS[:1], LABELS[:1])
    assert found.mean().tolist() == [1.0, 2.0]
    assert found.label_shares().tolist() == [1.0, 0.0, 1.0]
    shifted = replace(found, vector_sum=np.zeros(2))  # as if the mean were zero
    assert mean_deviation(shifted, np.asarray([[3.0], [0.0]])) == 3.0


def test_centered_sums() -> None:
    vectors, labels = items(20, 4, 3)
    found = second_moments(vectors, labels)
    x = vectors.astype(np.float64) - vectors.astype(np.float64).mean(0)
    y = labels.astype(np.float64) - labels.astype(np.float64).mean(0)
    np.testing.assert_allclose(found.scatter(), x.T @ x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.centered_cross_products(), x.T @ y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("penalty", [1e-3, 0.3, 5.0])
def test_ridge_regression_is_least_squares_with_added_rows(penalty: float) -> None:
    vectors, labels = items(30, 5, 3)
    x, y = vectors.astype(np.float64), labels.astype(np.float64)
    x, y = x - x.mean(0), y - y.mean(0)
    strength = penalty * (x**2).sum() / 5
    rows = np.concatenate([x, np.sqrt(strength) * np.eye(5)]), np.concatenate([y, np.zeros((5, 3))])
    expected = np.linalg.lstsq(*rows, rcond=None)[0]
    np.testing.assert_allclose(ridge_weights(second_moments(vectors, labels), penalty), expected, rtol=1e-7, atol=1e-9)


def test_more_dimensions_than_items_can_be_solved() -> None:
    found = ridge_weights(second_moments(*items(4, 12, 3)), 0.3)
    assert found.shape == (12, 3)
    assert np.isfinite(found).all()
    assert found.any()


def test_deviation_of_projected_vectors() -> None:
    vectors, labels = items(25, 4, 2)
    projection = np.random.default_rng(1).normal(size=(4, 6))
    expected = (vectors.astype(np.float64) @ projection).std(0).mean()
    assert mean_deviation(second_moments(vectors, labels), projection) == pytest.approx(expected, rel=1e-9)
