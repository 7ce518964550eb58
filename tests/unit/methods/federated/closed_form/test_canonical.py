"""Canonical correlations and rotations equal their definitions, computed from the items in float64."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.methods.federated.closed_form.canonical import (
    canonical_maps,
    inverse_root,
    mean_deviation_of,
    pair_moments,
    random_rotation,
    rotated,
    rotation,
    rotation_sums,
)

RANDOM = np.random.default_rng(0)
LATENT = RANDOM.normal(size=(200, 3)) * [3.0, 2.0, 1.0]
IMAGE = LATENT @ RANDOM.normal(size=(3, 6)) + 0.5 * RANDOM.normal(size=(200, 6)) + 4.0
TEXT = LATENT @ RANDOM.normal(size=(3, 5)) + 0.5 * RANDOM.normal(size=(200, 5)) - 1.0


def test_moments_of_parts_add_up_to_those_of_all_pairs() -> None:
    whole = pair_moments(IMAGE, TEXT).to_sums("pairs")
    parts = [
        pair_moments(IMAGE[rows], TEXT[rows]).to_sums("pairs") for rows in (slice(0, 0), slice(0, 60), slice(60, 200))
    ]
    for name, array in whole.items():
        np.testing.assert_allclose(sum(part[name] for part in parts), array, rtol=1e-12)
    stacked = np.concatenate([IMAGE, TEXT], axis=1)
    moments = pair_moments(IMAGE, TEXT)
    np.testing.assert_allclose(moments.scatter() / 200, np.cov(stacked.T, bias=True), rtol=1e-9, atol=1e-12)
    assert moments.label_sum.shape == (0,)


def test_the_inverse_root_of_a_penalized_covariance() -> None:
    covariance = np.cov(IMAGE.T)
    found = inverse_root(covariance, 0.5)
    penalized = covariance + 0.5 * np.trace(covariance) / 6 * np.eye(6)
    np.testing.assert_allclose(found @ penalized @ found, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(found, found.T)
    assert not inverse_root(np.zeros((3, 3)), 0.5).any()


@pytest.mark.parametrize("penalty", [1e-9, 1.0])
def test_variables_have_the_correlations_of_the_definition(penalty: float) -> None:
    moments = pair_moments(IMAGE, TEXT)
    maps = canonical_maps(moments, 6, components=4, penalty=penalty, power=0.0)
    assert (maps["image"].shape, maps["text"].shape) == ((6, 4), (5, 4))
    x, y = IMAGE - IMAGE.mean(0), TEXT - TEXT.mean(0)
    first, second = x.T @ x / 200, y.T @ y / 200
    first += penalty * np.trace(first) / 6 * np.eye(6)
    second += penalty * np.trace(second) / 5 * np.eye(5)
    np.testing.assert_allclose(maps["image"].T @ first @ maps["image"], np.eye(4), atol=1e-8)
    np.testing.assert_allclose(maps["text"].T @ second @ maps["text"], np.eye(4), atol=1e-8)
    # the squared correlations are the eigenvalues of C_xx^-1 C_xy C_yy^-1 C_yx
    cross = x.T @ y / 200
    squares = np.linalg.eigvals(np.linalg.solve(first, cross) @ np.linalg.solve(second, cross.T)).real
    correlations = np.sqrt(np.sort(squares)[::-1][:4])
    np.testing.assert_allclose(maps["image"].T @ cross @ maps["text"], np.diag(correlations), atol=1e-7)
    weighted = canonical_maps(moments, 6, components=4, penalty=penalty, power=2.0)
    for modality, values in weighted.items():
        np.testing.assert_allclose(values, maps[modality] * correlations**2, atol=1e-7)


def test_there_are_no_more_variables_than_dimensions() -> None:
    maps = canonical_maps(pair_moments(IMAGE, TEXT), 6, components=32, penalty=1.0, power=1.0)
    assert (maps["image"].shape, maps["text"].shape) == ((6, 5), (5, 5))


def test_equal_vectors_have_no_variables() -> None:
    maps = canonical_maps(pair_moments(np.ones((4, 3)), TEXT[:4]), 3, components=2, penalty=1.0, power=1.0)
    assert not maps["image"].any()
    assert not maps["text"].any()


def test_the_mean_deviation_of_projected_vectors() -> None:
    projection = RANDOM.normal(size=(6, 3))
    expected = (IMAGE @ projection).std(0).mean()
    assert mean_deviation_of(projection, np.cov(IMAGE.T, bias=True)) == pytest.approx(expected)


def test_the_first_rotation_is_that_of_the_seed() -> None:
    first = random_rotation(3, 8, 5)
    assert first.shape == (3, 8)
    np.testing.assert_allclose(first @ first.T, np.eye(3), atol=1e-12)
    assert np.array_equal(first, random_rotation(3, 8, 5))
    assert not np.allclose(first, random_rotation(3, 8, 6))


def test_sums_of_rotation_count_items_alike_and_leave_out_rows_of_zeros() -> None:
    image = np.array([[3.0, -4.0], [0.0, 0.0]], np.float32)
    text = np.array([[-2.0, 0.0]], np.float32)
    expected = np.outer([0.6, -0.8], [1, -1]) + np.outer([-1.0, 0.0], [-1, 1])
    np.testing.assert_allclose(rotation_sums({"image": image, "text": text}), expected, rtol=1e-7)
    assert not np.any(rotation_sums({}))


def test_a_rotation_brings_outputs_closest_to_their_signs() -> None:
    values = RANDOM.normal(size=(100, 4)) * [4.0, 1.0, 0.5, 0.1]
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    signs = np.where(values >= 0, 1.0, -1.0)
    found = rotation(rotation_sums({"image": values}))
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    distance = ((unit @ found - signs) ** 2).sum()
    for seed in range(20):
        other = np.linalg.qr(found + 0.05 * np.random.default_rng(seed).normal(size=(4, 4)))[0]
        other *= np.sign(np.diag(other.T @ found))
        assert ((unit @ other - signs) ** 2).sum() > distance
    assert distance < ((unit - signs) ** 2).sum()


def test_a_rotated_hash_layer_gives_rotated_outputs() -> None:
    params = {
        "text.hash.weight": RANDOM.normal(size=(4, 7)).astype(np.float32),
        "text.hash.bias": RANDOM.normal(size=4).astype(np.float32),
    }
    turn, features = random_rotation(4, 4, 0), RANDOM.normal(size=(10, 7))
    changed = rotated(params, "text", turn)
    before = features @ params["text.hash.weight"].T + params["text.hash.bias"]
    after = features @ changed["text.hash.weight"].T + changed["text.hash.bias"]
    np.testing.assert_allclose(after, before @ turn, rtol=1e-4, atol=1e-5)
    assert {name: array.dtype for name, array in changed.items()} == dict.fromkeys(params, np.dtype("float32"))
