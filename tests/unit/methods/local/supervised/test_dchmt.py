"""DCHMT: the choice between two units, each formula against explicit loops in float64, and the terms of a batch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.local.base import signs
from silohash.methods.local.losses import similarity
from silohash.methods.local.supervised.dchmt import (
    CARD,
    DCHMT,
    ChoiceLayer,
    DCHMTParams,
    balanced_mean,
    indecision,
    pulls,
    pushes,
    squared_distances,
)
from silohash.testing.inputs import Held, silo_data
from tests.unit.methods.federated.helpers import accepts, draw
from tests.unit.methods.local.helpers import ready


def test_relaxed_codes_are_differences_of_a_softmax_and_their_signs_the_arg_max() -> None:
    torch.manual_seed(0)
    layer = ChoiceLayer(5, 4).double()
    feature = draw(9, 5)
    units = torch.relu(layer.units(feature)).reshape(9, 2, 4)
    chances = units.softmax(1)
    codes = torch.tanh(layer(feature))
    torch.testing.assert_close(codes, chances[:, 0] - chances[:, 1])
    torch.testing.assert_close(0.5 * (1 + codes), chances[:, 0])
    assert torch.equal(signs(codes) > 0, units[:, 0] >= units[:, 1])


def test_distances_are_those_of_the_probabilities_of_all_units() -> None:
    codes, others = torch.tanh(draw(5, 6)), torch.tanh(draw(4, 6, seed=1))
    first, second = (torch.cat([0.5 * (1 + t), 0.5 * (1 - t)], 1) for t in (codes, others))
    expected = [[float((a - b).square().sum()) for b in second] for a in first]
    np.testing.assert_allclose(squared_distances(codes, others), expected, rtol=1e-9)
    corners = torch.tensor([[1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    assert squared_distances(corners, corners).tolist() == [[0.0, 6.0], [6.0, 0.0]]


def test_losses_of_pairs_against_loops() -> None:
    squared, similar = draw(6, 5).square(), torch.rand(6, 5, generator=torch.Generator().manual_seed(0)).double()
    near = [[float(similar[i, j] * squared[i, j]) for j in range(5)] for i in range(6)]
    far = [
        [(1 - float(similar[i, j])) * max(0.0, 1.2 - math.sqrt(squared[i, j])) ** 2 for j in range(5)] for i in range(6)
    ]
    pulled, pushed = pulls(squared, similar), pushes(squared, similar, 1.2)
    np.testing.assert_allclose(pulled, near, rtol=1e-9)
    np.testing.assert_allclose(pushed, far, rtol=1e-9)
    expected = 0.5 * (np.sum(near) / float(similar.sum()) + np.sum(far) / float((1 - similar).sum()))
    assert float(balanced_mean(pulled, pushed, similar)) == pytest.approx(expected)
    alike = torch.ones_like(similar)
    assert float(balanced_mean(pulled, torch.zeros_like(pushed), alike)) == pytest.approx(0.5 * float(pulled.mean()))


@pytest.mark.parametrize("alike", [0.0, 1.0])
def test_gradients_of_equal_codes_are_finite(alike: float) -> None:
    codes, similar = torch.full((3, 4), 0.5, requires_grad=True), torch.full((3, 3), alike)
    squared = squared_distances(codes, codes)
    balanced_mean(pulls(squared, similar), pushes(squared, similar, 2.0), similar).backward()
    assert torch.isfinite(codes.grad).all()


def test_indecision_by_hand() -> None:
    assert float(indecision(torch.tensor([[1.0, -1.0]]))) == 0.0
    assert float(indecision(torch.tensor([[0.0, 0.5]]))) == 0.875


@pytest.mark.parametrize(
    ("per_bit", "balanced", "graded"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_terms_of_a_batch(per_bit: bool, balanced: bool, graded: bool) -> None:
    params = DCHMTParams(
        per_bit=per_bit, class_balance=balanced, threshold=0.6, quantization_weight=0.2,
        similarity="graded" if graded else "any",
    )  # fmt: skip
    method, data = DCHMT(params), replace(silo_data(11), has_text=torch.arange(11) % 3 > 0)
    model, state = ready(method, data)
    batch = data.batch(torch.arange(11))
    terms = method.terms(method.steps(model)[0], outputs := model(batch), batch, state)
    image, text = outputs.code["image"], outputs.code["text"][batch.has_text]
    labels, fewer = batch.labels, batch.labels[batch.has_text]
    total = 0.0
    for one, other, of_one, of_other in ((image, image, labels, labels), (image, text, labels, fewer),
                                         (text, text, fewer, fewer)):  # fmt: skip
        squared, similar = squared_distances(one, other), similarity(of_one, of_other, graded=graded)
        pulled, pushed = pulls(squared, similar), pushes(squared, similar, math.sqrt(32 * 0.6))
        mean = balanced_mean(pulled, pushed, similar) if balanced else (pulled + pushed).mean()
        total += mean.item() / (32 if per_bit else 1)
    assert terms["similarity"][0] == 1.0
    assert float(terms["similarity"][1]) == pytest.approx(total, rel=1e-4)
    assert terms["quantization"][0] == 0.2
    assert float(terms["quantization"][1]) == pytest.approx(0.5 * float(indecision(image) + indecision(text)), rel=1e-5)


def test_one_modality_is_compared_with_itself_and_absent_items_have_no_terms() -> None:
    method, data = DCHMT(DCHMTParams()), silo_data(8, held=Held(image=False))
    model, state = ready(method, data)
    batch = data.batch(torch.arange(8))
    terms = method.terms(method.steps(model)[0], outputs := model(batch), batch, state)
    code, alike = outputs.code["text"], similarity(batch.labels, batch.labels, graded=True)
    squared = squared_distances(code, code) / 32
    expected = balanced_mean(pulls(squared, alike), pushes(squared, alike, math.sqrt(0.3)), alike)
    assert float(terms["similarity"][1]) == pytest.approx(float(expected), rel=1e-4)
    absent = replace(batch, has_text=torch.zeros(8, dtype=torch.bool))
    assert method.terms(method.steps(model)[0], Outputs({}, {}, outputs.code), absent, state) == {}


def test_rectified_units_are_part_of_the_hash_layer() -> None:
    plain, rectified = (ready(DCHMT(DCHMTParams(rectified=on)), silo_data(4))[0] for on in (False, True))
    assert dict(plain.named_parameters())["image.hash.weight"].shape == (16, 16)
    shapes = {name: tuple(p.shape) for name, p in rectified.named_parameters() if ".hash." in name}
    assert shapes == {f"{m}.hash.units.{part}": shape for m in ("image", "text")
                      for part, shape in (("weight", (32, 16)), ("bias", (32,)))}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("threshold", 1, True),
        ("threshold", 1.1, False),
        ("threshold", 0, False),
        ("quantization_weight", 0, True),
        ("quantization_weight", -0.1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(DCHMTParams, name, value) == accepted


def test_card_and_presets() -> None:
    assert (CARD.year, CARD.supervised, DCHMT.traits.needs_labels) == (2022, True, True)
    for preset, threshold in (("paper", 0.75), ("authors_code", 0.5)):
        params = DCHMTParams(**DCHMT.presets[preset])
        assert (params.threshold, params.quantization_weight) == (threshold, 0.001)
        assert (params.class_balance, params.rectified, params.per_bit) == (False, True, False)
        assert params.similarity == "any"
    assert DCHMTParams() == DCHMTParams(
        threshold=0.3, quantization_weight=0.001, similarity="graded", class_balance=True, rectified=False, per_bit=True
    )
    assert DCHMT(DCHMTParams()).warnings({}) == []
