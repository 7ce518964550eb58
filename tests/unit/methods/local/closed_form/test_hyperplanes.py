"""Random hyperplanes: sides of planes given by hand, angles against the share of differing bits, and the pooled codes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.methods.local.base import MethodParams
from silohash.methods.local.closed_form import base
from silohash.methods.local.closed_form.hyperplanes import Hyperplanes
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from tests.unit.methods.local.synthetic import IMAGE_WIDTH, TEXT_WIDTH, synthetic

METHOD = Hyperplanes(MethodParams())


def built(bits: int, seed: int = 0, **widths: int) -> torch.nn.Module:
    spec = ModelSpec({modality: TowerSpec("mlp", (width,)) for modality, width in widths.items()}, 12)
    with seeds.torch_globally(seed, "weights"):
        return METHOD.build(spec, bits)


def test_outputs_are_products_of_normals_and_centered_vectors() -> None:
    vectors = np.array([[1.0, 1.0], [3.0, 1.0], [5.0, 7.0]])  # their mean is (3, 3)
    start = {"image.hash.weight": np.array([[1.0, 0.0], [1.0, -1.0], [0.0, -2.0]]), "image.hash.bias": np.ones(3)}
    views = base.Views({"image": vectors}, {"image": np.ones(3, bool)}, np.zeros((3, 0)))
    params = METHOD.solve(METHOD.begin(start), METHOD.sums(views, {}, 0), 0).params
    outputs = vectors @ params["image.hash.weight"].T + params["image.hash.bias"]
    np.testing.assert_allclose(outputs, [[-2, 0, 4], [0, 2, 4], [2, -2, -8]], atol=1e-12)


def test_bits_differ_as_often_as_the_angle_says() -> None:
    normals = params_of(built(20_000, image=2))["image.hash.weight"]
    for share in (0.1, 0.5, 0.9):
        first, second = np.array([1.0, 0.0]), np.array([np.cos(share * np.pi), np.sin(share * np.pi)])
        assert ((normals @ first >= 0) != (normals @ second >= 0)).mean() == pytest.approx(share, abs=0.02)
    assert normals.mean() == pytest.approx(0, abs=0.02)
    assert normals.std() == pytest.approx(1, abs=0.02)


def test_normals_follow_from_the_seed_and_differ_between_modalities() -> None:
    first, again, other = (params_of(built(8, seed, image=4, text=4)) for seed in (0, 0, 1))
    assert np.array_equal(first["text.hash.weight"], again["text.hash.weight"])
    assert not np.array_equal(first["text.hash.weight"], other["text.hash.weight"])
    assert not np.array_equal(first["text.hash.weight"], first["image.hash.weight"])
    assert not METHOD.traits.modalities_comparable


def test_silos_that_divide_the_items_have_the_codes_of_the_pooled_items() -> None:
    archive, model = synthetic(), built(12, image=IMAGE_WIDTH, text=TEXT_WIDTH)
    views, start = base.views_of(model, archive.train.silo()), params_of(model)
    parts = [views.take(rows) for rows in np.array_split(np.random.default_rng(0).permutation(1500), 7)]
    shared = METHOD.solve(METHOD.begin(start), base.total(METHOD.sums(part, {}, 0) for part in parts), 0).params
    METHOD.fit(model, archive.train.silo())
    for name, array in params_of(model).items():
        np.testing.assert_allclose(shared[name], array, rtol=1e-4, atol=1e-5)


def test_a_modality_without_items_keeps_its_hyperplanes() -> None:
    start = params_of(built(4, image=3))
    views = base.Views({"image": np.zeros((2, 3))}, {"image": np.zeros(2, bool)}, np.zeros((2, 0)))
    assert METHOD.solve(METHOD.begin(start), METHOD.sums(views, {}, 0), 0).params == start
