"""Second moments against explicit loops, and the regression against least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.methods.federated import second_moments as module
from silohash.methods.federated.second_moments import (
    PENALTIES,
    SecondMoments,
    cross_validation_error,
    mean_deviation,
    ridge_weights,
    second_moments,
)

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
    }  # fmt: skip
    back = SecondMoments.from_sums({**sums, "image/count": np.asarray(1.0)}, "text")
    assert all(np.array_equal(getattr(back, name), getattr(given, name)) for name in vars(given))


def test_an_empty_silo_sends_zeros() -> None:
    found = second_moments(np.zeros((0, 4), np.float32), np.zeros((0, 2), np.float32))
    assert not any(array.any() for array in found.to_sums("image").values())
    assert not found.mean().any()
    assert not found.label_shares().any()
    assert not ridge_weights(found).any()
    assert not ridge_weights(found, (3, 1), penalties=[0.3]).any()
    assert mean_deviation(np.ones((4, 3)), found.scatter(), float(found.count)) == 0.0


def test_means_and_deviation_of_a_single_item() -> None:
    found = second_moments(VECTORS[:1], LABELS[:1])
    assert found.mean().tolist() == [1.0, 2.0]
    assert found.label_shares().tolist() == [1.0, 0.0, 1.0]
    shifted = replace(found, vector_sum=np.zeros(2))  # as if the mean were zero
    assert mean_deviation(np.asarray([[3.0], [0.0]]), shifted.scatter(), float(shifted.count)) == 3.0


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
    found = ridge_weights(second_moments(vectors, labels), penalties=[penalty])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_each_block_has_its_own_penalty_by_its_mean_scatter() -> None:
    vectors, labels = items(30, 5, 3)
    x, y = vectors.astype(np.float64) * [1.0, 2.0, 10.0, 20.0, 30.0], labels.astype(np.float64)
    x, y = x - x.mean(0), y - y.mean(0)
    diagonal = np.repeat([0.3 * (x[:, :2] ** 2).sum() / 2, 0.3 * (x[:, 2:] ** 2).sum() / 3], (2, 3))
    expected = np.linalg.solve(x.T @ x + np.diag(diagonal), x.T @ y)
    found = ridge_weights(second_moments(x, labels), (2, 3), penalties=[0.3])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("penalties", [(0.3,), PENALTIES])
def test_the_scale_of_a_block_does_not_matter(penalties: tuple[float, ...]) -> None:
    vectors, labels = items(30, 5, 3)
    x = vectors.astype(np.float64)
    first = x @ ridge_weights(second_moments(x, labels), (2, 3), penalties=penalties)
    scaled = x * [1.0, 1.0, 1e3, 1e3, 1e3]
    second = scaled @ ridge_weights(second_moments(scaled, labels), (2, 3), penalties=penalties)
    np.testing.assert_allclose(second, first, rtol=1e-7, atol=1e-9)
    alone = scaled @ ridge_weights(second_moments(scaled, labels), penalties=penalties)
    assert np.abs(alone - first).max() > 1e-3


@pytest.mark.parametrize("blocks", [(5, 0), (0, 5)])
def test_empty_blocks_change_nothing(blocks: tuple[int, ...]) -> None:
    moments = second_moments(*items(30, 5, 3))
    assert np.array_equal(ridge_weights(moments, blocks), ridge_weights(moments))


def test_a_block_of_equal_vectors_has_no_weights() -> None:
    vectors, labels = items(30, 5, 3)
    vectors[:, 3:] = 2.0
    found = ridge_weights(second_moments(vectors, labels), (3, 2), penalties=[0.3])
    assert not found[3:].any()
    expected = ridge_weights(second_moments(vectors[:, :3], labels), penalties=[0.3])
    np.testing.assert_allclose(found[:3], expected, rtol=1e-7)


def dense_error(x: np.ndarray, y: np.ndarray, penalty: float) -> float:
    """Return RSS / (n - df)^2 of a ridge regression with a mean, by its hat matrix."""
    count, width = x.shape
    centered = x - x.mean(0)
    scatter = centered.T @ centered
    strength = penalty * np.trace(scatter) / width
    hat = centered @ np.linalg.inv(scatter + strength * np.eye(width)) @ centered.T + np.full((count, count), 1 / count)
    residuals = y - hat @ y
    return float((residuals**2).sum() / (count - np.trace(hat)) ** 2)


def error_of(vectors: np.ndarray, labels: np.ndarray, penalty: float) -> float:
    """Return `cross_validation_error` for vectors in one block."""
    moments = second_moments(vectors, labels)
    scale = np.trace(moments.scatter()) / vectors.shape[1]
    values, basis = np.linalg.eigh(moments.scatter() / scale)
    rotated = basis.T @ moments.centered_cross_products() / scale**0.5
    centered = labels - labels.mean(0)
    return cross_validation_error(values, rotated, float((centered**2).sum()), len(vectors), penalty)


@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(("count", "width"), [(30, 5), (8, 12)])
def test_error_is_generalized_cross_validation(count: int, width: int, penalty: float) -> None:
    vectors, labels = (values.astype(np.float64) for values in items(count, width, 3))
    assert error_of(vectors, labels, penalty) == pytest.approx(dense_error(vectors, labels, penalty), rel=1e-9)


def test_no_more_items_than_parameters_have_an_infinite_error() -> None:
    assert cross_validation_error(np.ones(3), np.ones((3, 2)), 9.0, 1.0, 0.3) == np.inf
    assert cross_validation_error(np.zeros(3), np.zeros((3, 2)), 1.0, 1.0, 0.3) == np.inf
    assert cross_validation_error(np.zeros(3), np.zeros((3, 2)), 1.0, 3.0, 0.3) == 0.25


@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
def test_the_smallest_penalty_with_nearly_the_smallest_error_is_chosen(noise: float) -> None:
    generator = np.random.default_rng(3)
    vectors = generator.normal(size=(40, 20)) * np.linspace(0.2, 2, 20)
    labels = (vectors[:, :3] + noise * generator.normal(size=(40, 3)) > 0).astype(np.float64)
    errors = [dense_error(vectors, labels, penalty) for penalty in PENALTIES]
    best = PENALTIES[int(np.argmax(np.asarray(errors) <= 1.05 * min(errors)))]
    moments = second_moments(vectors, labels)
    assert np.array_equal(ridge_weights(moments), ridge_weights(moments, penalties=[best]))
    assert not np.array_equal(ridge_weights(moments), ridge_weights(moments, penalties=[2 * best]))
    assert best == {0.01: 0.1, 30.0: 10.0}.get(noise, best)


def test_more_dimensions_than_items_can_be_solved() -> None:
    found = ridge_weights(second_moments(*items(4, 12, 3)), penalties=[0.3])
    assert found.shape == (12, 3)
    assert np.isfinite(found).all()
    assert found.any()


def test_deviation_of_projected_vectors() -> None:
    vectors, labels = items(25, 4, 2)
    projection = np.random.default_rng(1).normal(size=(4, 6))
    expected = (vectors.astype(np.float64) @ projection).std(0).mean()
    scatter = second_moments(vectors, labels).scatter()
    assert mean_deviation(projection, scatter, count=25.0) == pytest.approx(expected, rel=1e-9)
