"""ITQ: its directions and rotation against the definitions on all items, and the pooled codes from sums over silos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.base.errors import UnsuitableFeatures
from silohash.base.types import ReadArrays
from silohash.methods.local.base import outputs_of
from silohash.methods.local.closed_form.base import Views, total, views_of
from silohash.methods.local.closed_form.itq import (
    ITQ,
    ITQParams,
    canonical_maps,
    first_rotation,
    inverse_root,
    rotation,
    sign_products,
)
from silohash.models.parameters import install, params_of
from silohash.models.specs import ModelSpec, TowerSpec
from tests.unit.methods.local.synthetic import BAND, IMAGE_WIDTH, TEXT_WIDTH, figures, synthetic

SPEC = ModelSpec({"image": TowerSpec("mlp", (IMAGE_WIDTH,)), "text": TowerSpec("mlp", (TEXT_WIDTH,))}, 12)
RANDOM = np.random.default_rng(0)
LATENT = RANDOM.normal(size=(200, 3)) * [3.0, 2.0, 1.0]
IMAGE = LATENT @ RANDOM.normal(size=(3, 6)) + 0.5 * RANDOM.normal(size=(200, 6)) + 4.0
TEXT = LATENT @ RANDOM.normal(size=(3, 5)) + 0.5 * RANDOM.normal(size=(200, 5)) - 1.0


def covariance_of(image: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Return the covariance of the stacked vectors of pairs."""
    return np.cov(np.concatenate([image, text], axis=1).T, bias=True)


def built(method: ITQ, bits: int, spec: ModelSpec = SPEC) -> torch.nn.Module:
    with seeds.torch_globally(0, "weights"):
        return method.build(spec, bits)


def solved(method: ITQ, params: ReadArrays, silos: Sequence[Views], bits: int) -> ReadArrays:
    """Return the parameters that the server computes from the sums of silos."""
    solution = method.begin(params)
    for exchange in range(method.exchanges(bits)):
        solution = method.solve(
            solution, total(method.sums(views, solution.sent, exchange) for views in silos), exchange
        )
    return solution.params


def made_up(**held: np.ndarray) -> Views:
    """Return 200 pairs, of which some may lack a modality."""
    there = {"image": np.ones(200, bool), "text": np.ones(200, bool), **held}
    vectors = {"image": IMAGE, "text": TEXT}
    return Views({m: v * there[m][:, None] for m, v in vectors.items()}, there, np.zeros((200, 0)))


def initial(bits: int, *widths: int) -> ReadArrays:
    """Return initial parameters of hash layers, without hidden layers."""
    drawn = np.random.default_rng(3)
    return {
        name: value
        for modality, width in zip(("image", "text"), widths, strict=False)
        for name, value in (
            (f"{modality}.hash.weight", drawn.normal(size=(bits, width))),
            (f"{modality}.hash.bias", drawn.normal(size=bits)),
        )
    }


def outputs(params: ReadArrays, modality: str, values: np.ndarray) -> np.ndarray:
    return values @ params[f"{modality}.hash.weight"].T + params[f"{modality}.hash.bias"]


def test_principal_directions_of_one_modality_are_rotated_as_in_the_paper() -> None:
    method, start = ITQ(ITQParams(iterations=20)), initial(4, 6)
    views = Views({"image": IMAGE}, {"image": np.ones(200, bool)}, np.zeros((200, 0)))
    found = outputs(solved(method, start, [views], 4), "image", IMAGE)
    x = IMAGE - IMAGE.mean(0)
    projected = x @ np.linalg.svd(x, full_matrices=False)[2][:4].T
    # the sign of an eigenvector is free, so that the first rotation is taken from the outputs without steps
    turned = outputs(solved(ITQ(ITQParams(iterations=0)), start, [views], 4), "image", IMAGE)
    turn = np.linalg.lstsq(projected, turned, rcond=None)[0]
    np.testing.assert_allclose(turn.T @ turn, np.eye(4), atol=1e-8)
    losses = []
    for _ in range(20):
        signs = np.where(projected @ turn >= 0, 1.0, -1.0)
        losses.append(((signs - projected @ turn) ** 2).sum())
        left, _, right = np.linalg.svd(signs.T @ projected)
        turn = right.T @ left.T
    np.testing.assert_allclose(found, projected @ turn, atol=1e-8)
    assert (np.diff(losses) <= 1e-9).all()
    assert losses[-1] < losses[0]


def test_canonical_directions_are_those_of_pairs_and_spread_over_more_bits() -> None:
    held = {"text": np.arange(200) < 150}
    method, start = ITQ(ITQParams(iterations=0)), initial(8, 6, 5)
    params = solved(method, start, [made_up(**held)], 8)
    image, text = IMAGE - IMAGE.mean(0), TEXT - TEXT[:150].mean(0)
    pairs = np.concatenate([image, text], axis=1)[:150]
    maps = canonical_maps(pairs.T @ pairs, 6, components=5, penalty=1.0, power=2.0)
    first = first_rotation(start, 5)
    np.testing.assert_allclose(first @ first.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(outputs(params, "image", IMAGE), image @ maps["image"] @ first, atol=1e-8)
    np.testing.assert_allclose(outputs(params, "text", TEXT), text @ maps["text"] @ first, atol=1e-8)


def test_principal_directions_of_one_space_are_common() -> None:
    method, start = ITQ(ITQParams(directions="principal", iterations=3)), initial(4, 6, 6)
    other = IMAGE[::-1] * 2.0
    held = {"image": np.ones(200, bool), "text": np.ones(200, bool)}
    params = solved(method, start, [Views({"image": IMAGE, "text": other}, held, np.zeros((200, 0)))], 4)
    assert np.array_equal(params["image.hash.weight"], params["text.hash.weight"])
    both = np.concatenate([IMAGE - IMAGE.mean(0), other - other.mean(0)])
    spanned = np.linalg.svd(both, full_matrices=False)[2][:4]
    weight = params["image.hash.weight"]
    np.testing.assert_allclose(weight @ spanned.T @ spanned, weight, atol=1e-8)


def test_images_and_texts_of_other_spaces_have_no_principal_directions() -> None:
    with pytest.raises(UnsuitableFeatures):
        solved(ITQ(ITQParams(directions="principal")), initial(4, 6, 5), [made_up()], 4)


@pytest.mark.parametrize("cuts", [[200, 400, 600, 800, 1000, 1200], [1]])
def test_sums_of_silos_give_the_model_of_the_pooled_items(cuts: list[int]) -> None:
    method, archive = ITQ(ITQParams(iterations=10)), synthetic()
    model = built(method, 12)
    views, start = views_of(model, archive.train.silo()), params_of(model)
    parts = [views.take(rows) for rows in np.split(np.random.default_rng(0).permutation(1500), cuts)]
    shared = solved(method, start, parts, 12)
    method.fit(model, archive.train.silo())
    for name, array in params_of(model).items():
        np.testing.assert_allclose(shared[name], array, rtol=1e-3, atol=1e-4)


@pytest.mark.whole_run
@pytest.mark.parametrize(("preset", "expected"), [("recommended", (0.494, 0.491)), ("paper", (0.430, 0.413))])
def test_figures_on_the_synthetic_archive(preset: str, expected: tuple[float, float]) -> None:
    method, split = ITQ(ITQParams(**ITQ.presets[preset])), synthetic()
    model = built(method, 16)
    method.fit(model, split.train.silo())
    found = figures(outputs_of(model, split.query.silo()), outputs_of(model, split.database.silo()))
    assert found == pytest.approx(expected, abs=BAND)


def test_a_modality_whose_vectors_are_all_equal_is_left_out() -> None:
    method, train = ITQ(ITQParams(iterations=2)), synthetic().train.silo()
    model = built(method, 8)
    start = params_of(model)
    method.fit(model, replace(train, text=torch.ones_like(train.text)))
    fitted = params_of(model)
    assert np.array_equal(fitted["text.hash.weight"], start["text.hash.weight"])
    alone = built(ITQ(ITQParams(directions="principal", iterations=2)), 8)
    install(alone, start)
    ITQ(ITQParams(directions="principal", iterations=2)).fit(alone, replace(train, text=torch.ones_like(train.text)))
    assert np.array_equal(fitted["image.hash.weight"], params_of(alone)["image.hash.weight"])
    assert not np.array_equal(fitted["image.hash.weight"], start["image.hash.weight"])


def test_sums_of_signs_leave_out_rows_without_the_modality() -> None:
    views = made_up(text=np.arange(200) < 1)
    received = {
        name: value
        for m, width in (("image", 6), ("text", 5))
        for name, value in (
            (f"{m}/mean", np.zeros(width)), (f"{m}/factor", np.ones(width)), (f"{m}/projection", np.eye(width)[:, :3]),
        )
    }  # fmt: skip
    image, text = IMAGE[:, :3], TEXT[:1, :3]
    expected = image.T @ np.where(image >= 0, 1, -1) + text.T @ np.where(text >= 0, 1, -1)
    np.testing.assert_allclose(sign_products(received, views)["rotation"], expected)


def test_a_rotation_brings_outputs_closest_to_their_signs() -> None:
    values = RANDOM.normal(size=(100, 4)) * [4.0, 1.0, 0.5, 0.1]
    signs = np.where(values >= 0, 1.0, -1.0)
    found = rotation(values.T @ signs)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    distance = ((values @ found - signs) ** 2).sum()
    for seed in range(20):
        other = np.linalg.qr(found + 0.05 * np.random.default_rng(seed).normal(size=(4, 4)))[0]
        other *= np.sign(np.diag(other.T @ found))
        assert ((values @ other - signs) ** 2).sum() > distance


def test_the_inverse_root_of_a_penalized_covariance() -> None:
    covariance = np.cov(IMAGE.T)
    found = inverse_root(covariance, 0.5)
    penalized = covariance + 0.5 * np.trace(covariance) / 6 * np.eye(6)
    np.testing.assert_allclose(found @ penalized @ found, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(found, found.T)
    assert not inverse_root(np.zeros((3, 3)), 0.5).any()


@pytest.mark.parametrize("penalty", [1e-9, 1.0])
def test_variables_have_the_correlations_of_the_definition(penalty: float) -> None:
    maps = canonical_maps(covariance_of(IMAGE, TEXT), 6, components=4, penalty=penalty, power=0.0)
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
    weighted = canonical_maps(covariance_of(IMAGE, TEXT), 6, components=4, penalty=penalty, power=2.0)
    for modality, values in weighted.items():
        np.testing.assert_allclose(values, maps[modality] * correlations**2, atol=1e-7)


def test_there_are_no_more_variables_than_dimensions() -> None:
    maps = canonical_maps(covariance_of(IMAGE, TEXT), 6, components=32, penalty=1.0, power=1.0)
    assert (maps["image"].shape, maps["text"].shape) == ((6, 5), (5, 5))


def test_equal_vectors_have_no_variables() -> None:
    maps = canonical_maps(covariance_of(np.ones((4, 3)), TEXT[:4]), 3, components=2, penalty=1.0, power=1.0)
    assert not maps["image"].any()
    assert not maps["text"].any()
