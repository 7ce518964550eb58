"""CSQ: centers that all silos share, its losses against explicit loops in float64, items without a label."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.errors import SettingNeeded
from silohash.base.types import Outputs
from silohash.methods.local.class_codes import hash_centers, random_code
from silohash.methods.local.image.csq import CARD, CSQ, CSQParams, central_similarity, gaps, item_centers
from tests.runs import silo_data
from tests.unit.methods.federated.helpers import accepts, draw
from tests.unit.methods.local.image.helpers import (
    BITS,
    IMAGE,
    TEXT,
    double,
    image_precision,
    outputs_with,
    ready,
    total,
    without_labels,
)
from tests.unit.methods.local.synthetic import BAND


def test_the_center_of_an_item_is_the_majority_of_its_labels_and_ties_are_fixed() -> None:
    centers = torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1], [-1, -1, -1, -1]])
    ties = torch.tensor([-1.0, 1, -1, 1])
    labels = torch.tensor([[0.0, 1, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]])
    assert item_centers(labels, centers, ties).tolist() == [
        [1, -1, 1, -1],
        [1, 1, -1, -1],
        [1, -1, -1, -1],
        [-1, 1, -1, 1],
    ]


def test_central_similarity_equals_loops_and_is_finite_at_the_ends() -> None:
    codes, targets = draw(4, BITS).tanh(), draw(4, BITS, seed=1).sign()
    found = central_similarity(codes, targets)
    for i in range(4):
        for k in range(BITS):
            share, bit = (float(codes[i, k]) + 1) / 2, float(targets[i, k] > 0)
            expected = -bit * math.log(share) - (1 - bit) * math.log(1 - share)
            assert float(found[i, k]) == pytest.approx(expected)
    ends = torch.tensor([[-1.0, 1.0]], requires_grad=True)
    loss = central_similarity(ends, torch.ones(1, 2))
    loss.sum().backward()
    assert loss.tolist() == [[100.0, 0.0]]
    assert torch.isfinite(ends.grad).all()


def test_quantization_equals_loops() -> None:
    codes = draw(4, BITS).tanh()
    squared, smooth = gaps(codes, "squared"), gaps(codes, "log-cosh")
    for i in range(4):
        for k in range(BITS):
            gap = abs(float(codes[i, k])) - 1
            assert float(squared[i, k]) == pytest.approx(gap * gap)
            assert float(smooth[i, k]) == pytest.approx(math.log(math.cosh(gap)), abs=1e-12)


@pytest.mark.parametrize("preset", ["recommended", "paper", "authors_code"])
def test_terms_equal_loops_over_items_with_a_label(preset: str) -> None:
    params = CSQParams(**CSQ.presets[preset])
    method, data = CSQ(params), without_labels(7, 0, 4)
    _, state = ready(method, data)
    double(state)
    codes, targets = (
        draw(7, BITS).tanh(),
        item_centers(data.labels.double(), *map(state.buffers.get, ("centers", "ties"))),
    )
    rows = [1, 2, 3, 5, 6]
    center = sum(-math.log((1 + float(targets[i, k] * codes[i, k])) / 2) for i in rows for k in range(BITS)) / 40
    drift = [1 - abs(float(codes[i, k])) for i in rows for k in range(BITS)]
    quantization = sum(math.log(math.cosh(gap)) if preset == "paper" else gap * gap for gap in drift) / 40
    batch = replace(data.batch(torch.arange(7)), labels=data.labels.double())
    terms = method.terms(IMAGE, outputs_with(codes), batch, state)
    assert float(terms["center"][1]) == pytest.approx(center)
    assert float(terms["quantization"][1]) == pytest.approx(quantization)
    assert float(total(terms)) == pytest.approx(center + params.quantization_weight * quantization)


def test_items_without_a_label_do_not_train() -> None:
    method, data = CSQ(CSQParams()), without_labels(5, *range(5))
    _, state = ready(method, data)
    codes = draw(5, BITS).tanh().float().requires_grad_()
    loss = total(method.terms(IMAGE, outputs_with(codes), data.batch(torch.arange(5)), state))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert not codes.grad.any()


def test_items_without_a_picture_are_left_out() -> None:
    data = replace(silo_data(6), has_image=torch.arange(6) > 1)
    method = CSQ(CSQParams())
    _, state = ready(method, data)
    codes = draw(6, BITS).tanh().float()
    found = method.terms(IMAGE, outputs_with(codes), data.batch(torch.arange(6)), state)
    expected = method.terms(IMAGE, outputs_with(codes[2:]), data.batch(torch.arange(2, 6)), state)
    assert {n: float(v) for n, (_, v) in found.items()} == {n: float(v) for n, (_, v) in expected.items()}
    assert method.terms(IMAGE, outputs_with(codes[:2]), data.batch(torch.arange(2)), state) == {}


def test_centers_and_ties_are_the_same_in_all_silos_and_after_reloading() -> None:
    method, data = CSQ(CSQParams()), silo_data(20)
    other = replace(data.take(torch.arange(5)), name="other", labels=data.labels[:5].roll(1, dims=1))
    _, state = ready(method, data)
    _, elsewhere = ready(CSQ(CSQParams()), other)
    hash_centers.cache_clear()
    random_code.cache_clear()
    _, reloaded = ready(CSQ(CSQParams()), data)
    for name in ("centers", "ties"):
        assert torch.equal(state.buffers[name], elsewhere.buffers[name])
        assert torch.equal(state.buffers[name], reloaded.buffers[name])
    assert np.array_equal(state.buffers["centers"], hash_centers(6, BITS, seed=data.federation.seed))
    assert np.array_equal(state.buffers["ties"], random_code(BITS, seed=data.federation.seed))
    _, reseeded = ready(method, replace(data, federation=replace(data.federation, seed=9)))
    assert not torch.equal(state.buffers["centers"], reseeded.buffers["centers"])
    assert not torch.equal(state.buffers["ties"], reseeded.buffers["ties"])


def test_each_modality_trains_alone_with_the_same_centers() -> None:
    method, data = CSQ(CSQParams()), silo_data(6)
    model, state = ready(method, data)
    assert model.relaxation == "tanh"
    assert [step.name for step in method.steps(model)] == ["image", "text"]
    codes, batch = draw(6, BITS).tanh().float(), data.batch(torch.arange(6))
    of_texts = method.terms(TEXT, Outputs({}, {}, {"text": codes}), batch, state)
    of_images = method.terms(IMAGE, outputs_with(codes), batch, state)
    assert {n: float(v) for n, (_, v) in of_texts.items()} == {n: float(v) for n, (_, v) in of_images.items()}


def test_the_seed_of_the_federation_is_required() -> None:
    with pytest.raises(SettingNeeded, match=r"csq.*hospital") as error:
        ready(CSQ(CSQParams()), replace(silo_data(5), name="hospital", federation=None))
    assert str(error.value).endswith("Set SiloData.federation, or choose another local method.")


@pytest.mark.parametrize(("value", "accepted"), [(0, True), (-0.1, False)])
def test_bounds_of_parameters(value: float, accepted: bool) -> None:
    assert accepts(CSQParams, "quantization_weight", value) == accepted


def test_defaults_and_presets() -> None:
    assert CSQParams().model_dump() == {"quantization_weight": 0.1, "quantization": "squared"}
    assert CSQ.presets == {
        "recommended": {},
        "paper": {"quantization_weight": 0.05, "quantization": "log-cosh"},
        "authors_code": {"quantization_weight": 0.05},
    }
    assert CSQParams.without_effect == {"quantization": {"quantization_weight": (0.0,)}}
    assert (CARD.key, CARD.year, CARD.supervised, CSQ.traits.needs_labels) == ("csq", 2020, True, True)


@pytest.mark.whole_run
def test_synthetic_archive() -> None:
    assert image_precision("csq", 24, epochs=10) == pytest.approx(0.666, abs=BAND)
