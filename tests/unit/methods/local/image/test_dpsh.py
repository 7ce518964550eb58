"""DPSH: its loss against explicit loops in float64, its gradient, its stored outputs, its edges."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.local.base import SiloState
from silohash.methods.local.image.dpsh import CARD, DPSH, DPSHParams
from silohash.methods.local.losses import pair_likelihood, pair_weights, similarity
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
)
from tests.unit.methods.local.synthetic import BAND


def paper(**more: object) -> DPSH:
    return DPSH(DPSHParams(**{**DPSH.presets["paper"], **more}))


def paper_loss(state: SiloState, codes: torch.Tensor, rows: torch.Tensor, eta: float) -> float:
    """Return the objective for a batch, with loops, divided by N and B."""
    stored, known = state.buffers["image"], state.buffers["labels"]
    loss = 0.0
    for place, i in enumerate(rows.tolist()):
        for j in range(len(stored)):
            theta = 0.5 * sum(float(codes[place, k] * stored[j, k]) for k in range(BITS))
            alike = float((known[i] * known[j]).sum() > 0)
            loss += math.log1p(math.exp(-abs(theta))) + max(theta, 0.0) - alike * theta
        for k in range(BITS):
            value = float(codes[place, k])
            loss += eta * (value - (1.0 if value >= 0 else -1.0)) ** 2
    return loss / (len(stored) * len(rows))


@pytest.mark.parametrize("eta", [10.0, 0.3])
def test_paper_preset_is_the_objective_divided_by_items_and_batch(eta: float) -> None:
    method, data = paper(quantization_weight=eta), silo_data(12)
    _, state = ready(method, data)
    double(state)
    rows, codes = torch.tensor([7, 0, 3, 11]), draw(4, BITS, seed=5)
    codes[0, 0] = 0.0
    terms = method.terms(IMAGE, outputs_with(codes), data.batch(rows), state)
    assert set(terms) == {"likelihood", "quantization"}
    assert float(total(terms)) == pytest.approx(paper_loss(state, codes, rows, eta), rel=1e-10)


def test_gradient_of_the_paper_preset_is_the_analytic_one() -> None:
    """The gradient is dJ/du_i = 1/2 sum_j (sigma(theta_ij) - s_ij) u_j + 2 eta (u_i - b_i)."""
    method, data = paper(quantization_weight=0.6), silo_data(15)
    _, state = ready(method, data)
    double(state)
    codes = draw(15, BITS, seed=3).requires_grad_()
    total(method.terms(IMAGE, outputs_with(codes), data.batch(torch.arange(15)), state)).backward()
    with torch.no_grad():
        stored, known = state.buffers["image"], state.buffers["labels"]
        alike = ((known @ known.T) > 0).double()
        expected = 0.5 * (torch.sigmoid(0.5 * codes @ stored.T) - alike) @ stored + 1.2 * (codes - codes.sign())
    torch.testing.assert_close(codes.grad * 15 * 15, expected)


@pytest.mark.parametrize("kind", ["any", "graded"])
def test_recommended_preset_takes_means(kind: str) -> None:
    method, data = DPSH(DPSHParams(similarity=kind)), silo_data(20)
    _, state = ready(method, data)
    rows, codes = torch.arange(5, 15), draw(10, BITS).float()
    terms = method.terms(IMAGE, outputs_with(codes), data.batch(rows), state)
    known = state.buffers["labels"]
    alike = similarity(known[rows], known, graded=kind == "graded")
    assert float(state.buffers["share"]) == pytest.approx(
        float(similarity(known, known, graded=kind == "graded").mean())
    )
    likelihood = pair_likelihood(codes, state.buffers["image"], alike)
    likelihood = likelihood * pair_weights(alike, float(state.buffers["share"]))
    assert float(terms["likelihood"][1]) == pytest.approx(float(likelihood.mean()), rel=1e-5)
    assert terms["quantization"][0] == 0.1
    assert float(terms["quantization"][1]) == pytest.approx(float((codes - codes.sign()).square().mean()), rel=1e-5)


def test_each_modality_is_compared_with_itself() -> None:
    method, data = paper(), silo_data(10)
    model, state = ready(method, data)
    assert [(step.name, step.parameters) for step in method.steps(model)] == [
        ("image", ("image.",)),
        ("text", ("text.",)),
    ]
    codes, known = draw(10, BITS).float(), state.buffers["labels"]
    terms = method.terms(TEXT, Outputs({}, {}, {"text": codes}), data.batch(torch.arange(10)), state)
    expected = pair_likelihood(codes, state.buffers["text"], similarity(known, known, graded=False)).mean()
    assert float(terms["likelihood"][1]) == pytest.approx(float(expected), rel=1e-5)


def test_items_without_a_picture_are_left_out() -> None:
    whole, has_image = silo_data(10), torch.arange(10) > 3
    data = replace(whole, has_image=has_image, image=whole.image * has_image.unsqueeze(1))
    method = paper()
    _, state = ready(method, data)
    codes, batch, known = draw(10, BITS).float(), data.batch(torch.arange(10)), data.labels[4:]
    terms = method.terms(IMAGE, outputs_with(codes), batch, state)
    expected = pair_likelihood(codes[4:], state.buffers["image"][4:], similarity(known, known, graded=False)).mean()
    assert float(terms["likelihood"][1]) == pytest.approx(float(expected), rel=1e-5)
    assert float(terms["quantization"][1]) == pytest.approx(
        float((codes[4:] - codes[4:].sign()).square().sum() / 36), rel=1e-5
    )
    assert method.terms(IMAGE, outputs_with(codes[:4]), data.batch(torch.arange(4)), state) == {}


def test_outputs_of_a_batch_are_stored_and_anchors_are_drawn_each_epoch() -> None:
    method, data = DPSH(DPSHParams(anchors=6)), silo_data(40)
    model, state = ready(method, data)
    first = state.buffers["anchors"]
    method.record(IMAGE, outputs_with(torch.full((2, BITS), 9.0)), data.batch(torch.tensor([2, 5])), state)
    assert (state.buffers["image"] == 9).all(1).nonzero().flatten().tolist() == [2, 5]
    method.end_epoch(model, data, state)
    assert len(first.unique()) == len(state.buffers["anchors"].unique()) == 6
    assert not torch.equal(first, state.buffers["anchors"])
    for limit in (40, 41):
        _, state = ready(DPSH(DPSHParams(anchors=limit)), data)
        assert state.buffers["anchors"].tolist() == list(range(40))


def test_a_batch_is_compared_with_the_anchors_alone() -> None:
    method, data = paper(anchors=3), silo_data(12)
    _, state = ready(method, data)
    codes, anchors, known = draw(12, BITS).float(), state.buffers["anchors"], data.labels
    terms = method.terms(IMAGE, outputs_with(codes), data.batch(torch.arange(12)), state)
    alike = similarity(known, known[anchors], graded=False)
    expected = pair_likelihood(codes, state.buffers["image"][anchors], alike).mean()
    assert float(terms["likelihood"][1]) == pytest.approx(float(expected), rel=1e-5)
    assert float(terms["quantization"][1]) == pytest.approx(float((codes - codes.sign()).square().sum() / 36), rel=1e-5)


@pytest.mark.parametrize(("gap", "warned"), [(0.9e-4, True), (1.1e-4, False), (-1.1e-4, False)])
def test_warns_of_a_collapse_at_ln_2_and_not_otherwise(gap: float, warned: bool) -> None:
    assert bool(paper().warnings({"likelihood": math.log(2) + gap})) == warned
    assert paper().warnings({}) == []
    assert DPSH(DPSHParams()).warnings({"likelihood": math.log(2)}) == []


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("quantization_weight", 0, True),
        ("quantization_weight", -0.1, False),
        ("anchors", 1, True),
        ("anchors", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(DPSHParams, name, value) == accepted


def test_defaults_and_presets() -> None:
    assert DPSHParams().model_dump() == {
        "quantization_weight": 0.1, "similarity": "any", "class_balance": True, "normalization": "mean", "anchors": 1024,
    }  # fmt: skip
    assert DPSH.presets == {
        "recommended": {},
        "paper": {
            "quantization_weight": 10.0, "class_balance": False, "normalization": "paper",
            "anchors": 1_000_000,
        },
    }  # fmt: skip
    assert (CARD.key, CARD.year, CARD.supervised, DPSH.traits.needs_labels) == ("dpsh", 2016, True, True)


@pytest.mark.whole_run
def test_synthetic_archive() -> None:
    assert image_precision("dpsh", 24, epochs=10) == pytest.approx(0.625, abs=BAND)
