"""Random hyperplanes: sides of planes given by hand, angles against the share of differing bits, and the pooled codes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.methods.local.closed_form import base
from silohash.methods.local.closed_form.hyperplanes import HyperplaneParams, Hyperplanes
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from tests.unit.methods.local.synthetic import IMAGE_WIDTH, TEXT_WIDTH, synthetic

NORMALS = np.array([[1.0, 0.0], [1.0, -1.0], [0.0, -2.0]])
VECTORS = np.array([[1.0, 1.0], [3.0, 1.0], [5.0, 7.0]])


def spec(**widths: int) -> ModelSpec:
    return ModelSpec({modality: TowerSpec("mlp", (width,)) for modality, width in widths.items()}, 12)


def built(method: Hyperplanes, of: ModelSpec, bits: int, seed: int = 0) -> torch.nn.Module:
    with seeds.torch_globally(seed, "weights"):
        return method.build(of, bits)


def outputs(method: Hyperplanes) -> np.ndarray:
    """Return the outputs for `VECTORS` after the one exchange of a silo that has them."""
    start = {"image.hash.weight": NORMALS, "image.hash.bias": np.zeros(3)}
    views = base.Views({"image": VECTORS}, {"image": np.ones(3, bool)}, np.zeros((3, 0)))
    params = method.solve(method.begin(start), method.sums(views, {}, 0), 0).params
    assert method.exchanges(3) == 1
    return VECTORS @ params["image.hash.weight"].T + params["image.hash.bias"]


def test_outputs_are_products_with_the_normals_from_the_mean_or_from_the_origin() -> None:
    # the mean of the vectors is (3, 3)
    np.testing.assert_allclose(outputs(Hyperplanes(HyperplaneParams())), [[-2, 0, 4], [0, 2, 4], [2, -2, -8]])
    paper = Hyperplanes(HyperplaneParams(**Hyperplanes.presets["paper"]))
    np.testing.assert_allclose(outputs(paper), [[1, 0, -2], [3, 2, -2], [5, -2, -14]])


def test_bits_differ_as_often_as_the_angle_says() -> None:
    model = built(Hyperplanes(HyperplaneParams()), spec(image=2), 20_000)
    normals = params_of(model)["image.hash.weight"]
    for angle in (0.1, 0.5, 0.9):
        first, second = np.array([1.0, 0.0]), np.array([np.cos(angle * np.pi), np.sin(angle * np.pi)])
        assert ((normals @ first >= 0) != (normals @ second >= 0)).mean() == pytest.approx(angle, abs=0.02)
    assert normals.mean() == pytest.approx(0, abs=0.02)
    assert normals.std() == pytest.approx(1, abs=0.02)
    assert not params_of(model)["image.hash.bias"].any()


def test_normals_follow_from_the_seed_and_differ_between_modalities() -> None:
    first, again, other = (
        params_of(built(Hyperplanes(HyperplaneParams()), spec(image=4, text=4), 8, seed=seed)) for seed in (0, 0, 1)
    )
    assert np.array_equal(first["text.hash.weight"], again["text.hash.weight"])
    assert not np.array_equal(first["text.hash.weight"], other["text.hash.weight"])
    assert not np.array_equal(first["text.hash.weight"], first["image.hash.weight"])


def test_only_models_of_two_modalities_are_remarked_on() -> None:
    method = Hyperplanes(HyperplaneParams())
    assert not method.traits.modalities_comparable
    assert len(method.remarks(spec(image=4, text=5), 8)) == 1
    assert not method.remarks(spec(image=4), 8)


@pytest.mark.parametrize("center", [True, False])
def test_silos_that_divide_the_items_have_the_codes_of_the_pooled_items(center: bool) -> None:
    method, archive = Hyperplanes(HyperplaneParams(center=center)), synthetic()
    model = built(method, spec(image=IMAGE_WIDTH, text=TEXT_WIDTH), 12)
    views, start = base.views_of(model, archive.train.silo()), params_of(model)
    parts = [views.take(rows) for rows in np.array_split(np.random.default_rng(0).permutation(1500), 7)]
    shared = method.solve(method.begin(start), base.total(method.sums(part, {}, 0) for part in parts), 0).params
    method.fit(model, archive.train.silo())
    for name, array in params_of(model).items():
        np.testing.assert_allclose(shared[name], array, rtol=1e-4, atol=1e-5)
