"""SePH: distributions against explicit loops, the gradient against finite differences, the regression, the figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.base.errors import UnsuitableMethod
from silohash.methods.local.base import outputs_of
from silohash.methods.local.closed_form import seph
from silohash.methods.local.closed_form.seph import (
    SePH,
    SePHParams,
    code_similarities,
    curvature_root,
    divergence,
    divergence_gradient,
    fit_bits,
    label_distribution,
    learn_codes,
    sum_over_pairs,
)
from silohash.models.specs import ModelSpec, TowerSpec
from tests.runs import model_spec, silo_data
from tests.unit.methods.local.synthetic import BAND, IMAGE_WIDTH, TEXT_WIDTH, figures, synthetic

LABELS = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two items, so that five items fill three of them."""
    monkeypatch.setattr(seph, "BLOCK_ROWS", 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_are_a_distribution_over_pairs(dtype: torch.dtype) -> None:
    found = label_distribution(LABELS.to(dtype))
    assert found.dtype == dtype
    root = math.sqrt(0.5)
    expected = torch.zeros(5, 5, dtype=dtype)
    expected[0, 1] = expected[1, 0] = expected[1, 2] = expected[2, 1] = root / (4 * root)
    torch.testing.assert_close(found, expected)
    assert found.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("labels", [torch.eye(4), torch.zeros(4, 2)])
def test_without_common_labels_all_pairs_are_equally_probable(labels: torch.Tensor) -> None:
    found = label_distribution(labels)
    assert found[0, 1].item() == pytest.approx(1 / 12)
    assert found.sum().item() == pytest.approx(1.0)
    assert label_distribution(torch.ones(1, 2)).tolist() == [[0.0]]


def test_code_similarities_fall_with_the_hamming_distance() -> None:
    codes = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]], dtype=torch.float64)
    expected = [[0.0, 1 / 2, 1 / 4], [1 / 2, 0.0, 1 / 3], [1 / 4, 1 / 3, 0.0]]
    (found,) = code_similarities(codes)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_similarities_hold_each_pair_once() -> None:
    codes = drawn(5, 3)
    whole = torch.zeros(5, 5, dtype=torch.float64)
    for i in range(5):
        for j in range(5):
            whole[i, j] = 1 / (1 + (codes[i] - codes[j]).square().sum() / 4) if i != j else 0.0
    found = code_similarities(codes)
    for start, block in zip((0, 2, 4), found, strict=True):
        torch.testing.assert_close(block, whole[start : start + 2, start:])
    assert sum(map(sum_over_pairs, found)) == pytest.approx(whole.sum().item())


@pytest.mark.usefixtures("small_blocks")
def test_the_divergence_is_that_of_a_loop() -> None:
    target, codes, weight = label_distribution(LABELS.double()), drawn(5, 3), 0.7
    whole = sum(float(1 / (1 + (codes[i] - codes[j]).square().sum() / 4)) for i in range(5) for j in range(5) if i != j)
    expected = weight * sum((abs(float(v)) - 1.0) ** 2 for v in codes.flatten()) / 15
    for i in range(5):
        for j in range(5):
            if i != j:
                p, q = float(target[i, j]), float(1 / (1 + (codes[i] - codes[j]).square().sum() / 4)) / whole
                expected += p * math.log(p / q) if p else 0.0
    assert divergence(target, codes, weight) == pytest.approx(expected)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_the_gradient_is_that_of_finite_differences(weight: float) -> None:
    target, codes = label_distribution(LABELS.double()), drawn(5, 3, seed=1)
    found = divergence_gradient(target, codes, weight)
    for i in range(5):
        for k in range(3):
            values = []
            for step in (1e-5, -1e-5):
                moved = codes.clone()
                moved[i, k] += step
                values.append(divergence(target, moved, weight))
            assert found[i, k].item() == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-8)


def test_pairs_are_computed_in_the_precision_of_the_target() -> None:
    labels, codes = (drawn(300, 6, seed=2) > 1.0), drawn(300, 8)
    exact, single = label_distribution(labels.double()), label_distribution(labels.float())
    assert divergence(single, codes, 0.3) == pytest.approx(divergence(exact, codes, 0.3), rel=1e-5)
    for factor in (1.0, 4.0):
        wanted = divergence_gradient(exact * factor, codes, 0.3)
        found = divergence_gradient(single, codes, 0.3, factor)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-8)


def test_a_single_item_has_no_divergence() -> None:
    target, codes = label_distribution(torch.ones(1, 2)), drawn(1, 4)
    assert divergence(target, codes, 0.0) == 0.0
    assert divergence_gradient(target, codes, 0.0).tolist() == [[0.0] * 4]


def test_codes_of_equal_labels_come_together() -> None:
    labels = torch.eye(4).repeat_interleave(10, dim=0)
    target = label_distribution(labels)
    with seeds.torch_globally(0, "codes"):
        codes, value = learn_codes(target, 8, weight=0.01, iterations=400)
        start, first = learn_codes(target, 8, weight=0.01, iterations=1)
    assert value == pytest.approx(divergence(target, codes, 0.01))
    assert value < 0.5 * first
    assert codes.mean(0).abs().max() < 1e-9
    distances = 4 - (torch.sign(codes) @ torch.sign(codes).T) / 2
    same = target > 0
    different = ~same & ~torch.eye(40, dtype=torch.bool)
    assert distances[same].mean() < 0.5
    assert distances[different].mean() > 3.0
    assert start.abs().max() < 1.0


def test_the_regression_is_at_its_minimum() -> None:
    features, kernel = drawn(30, 4).abs(), torch.eye(4, dtype=torch.float64) + 0.1
    targets = (drawn(30, 2, seed=3) > 0).double()
    weights = fit_bits(features, targets, kernel, 0.01)

    def value(given: torch.Tensor) -> float:
        found = 0.0
        for k in range(2):
            for i in range(30):
                z = float(features[i] @ given[:, k])
                found += math.log1p(math.exp(z)) - float(targets[i, k]) * z
            found += 0.01 * float(given[:, k] @ kernel @ given[:, k])
        return found

    lowest = value(weights)
    for seed in range(10):
        assert value(weights + 0.05 * drawn(4, 2, seed=seed)) > lowest
    gradient = features.T @ (torch.sigmoid(features @ weights) - targets) + 0.02 * kernel @ weights
    assert gradient.abs().max() < 1e-3


def test_the_regression_is_at_its_minimum_for_a_nearly_singular_kernel() -> None:
    points = drawn(60, 2)
    similar = torch.exp(-torch.cdist(points, points).square() / 4.0)
    features, kernel = similar[:, :20], similar[:20, :20]
    targets = (drawn(60, 3, seed=3) > 0).double()
    weights = fit_bits(features, targets, kernel, 0.01)
    assert weights.shape == (20, 3)
    slope = features.T @ (torch.sigmoid(features @ weights) - targets) + 0.02 * kernel @ weights
    assert slope.abs().max() < 1e-4


def test_the_curvature_of_the_regression_is_bounded() -> None:
    features, kernel = drawn(30, 4).abs(), torch.eye(4, dtype=torch.float64) + 0.1
    root = curvature_root(features, kernel, 0.3)
    torch.testing.assert_close(root, root.triu())
    torch.testing.assert_close(root.T @ root, features.T @ features / 4 + 0.6 * kernel, rtol=1e-6, atol=1e-6)


def test_equal_anchors_do_not_stop_the_regression() -> None:
    features = torch.tensor([[1.0, 1.0, 0.5], [0.5, 0.5, 1.0], [0.8, 0.8, 0.2]], dtype=torch.float64)
    kernel = torch.tensor([[1.0, 1.0, 0.4], [1.0, 1.0, 0.4], [0.4, 0.4, 1.0]], dtype=torch.float64)
    weights = fit_bits(features, torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64), kernel, 0.01)
    assert torch.isfinite(weights).all()
    assert ((features @ weights) > 0).flatten().tolist() == [True, False, True]


def test_fewer_items_than_anchors_leave_anchors_unused() -> None:
    method, data = SePH(SePHParams(anchors=20, iterations=20)), silo_data(9)
    model = method.build(model_spec(), 8)
    method.fit(model, data)
    state = model.state_dict()
    assert state["image.backbone.anchors"].shape == (20, 16)
    assert not state["image.hash.weight"][:, 9:].any()
    assert not state["image.backbone.anchors"][9:].any()
    anchors = {tuple(row) for row in state["image.backbone.anchors"][:9].tolist()}
    assert anchors == {tuple(row) for row in data.image.tolist()}
    mean = (data.image[:, None].double() - data.image.double()).square().sum(2).mean()
    assert state["image.backbone.width"].item() == pytest.approx(mean.item(), rel=1e-5)


def test_codes_are_learned_on_a_sample() -> None:
    method, data = SePH(SePHParams(anchors=50, sample=12, iterations=5)), silo_data(40)
    model = method.build(model_spec(), 8)
    method.fit(model, data)
    used = model.state_dict()["text.backbone.anchors"].abs().sum(1) > 0
    assert used.sum() == 12
    assert not SePH.traits.codes_comparable


def test_a_published_network_is_refused() -> None:
    spec = ModelSpec({"image": TowerSpec("network", (3, 8, 8), settings={"width": 4})}, 2)
    with pytest.raises(UnsuitableMethod, match=r"model\.image"):
        SePH(SePHParams()).build(spec, 8)


@pytest.mark.whole_run
def test_figures_on_the_synthetic_archive() -> None:
    spec = ModelSpec({"image": TowerSpec("mlp", (IMAGE_WIDTH,)), "text": TowerSpec("mlp", (TEXT_WIDTH,))}, 12)
    method, split = SePH(SePHParams(sample=600, iterations=250)), synthetic()
    with seeds.torch_globally(0, "training"):
        model = method.build(spec, 16)
        method.fit(model, split.train.silo())
    found = figures(outputs_of(model, split.query.silo()), outputs_of(model, split.database.silo()))
    assert found == pytest.approx((0.475, 0.479), abs=BAND)
