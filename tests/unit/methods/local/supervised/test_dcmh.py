"""DCMH: every formula against explicit loops in float64, its gradient, its collapse, its edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Outputs, Step
from silohash.methods.local.base import SiloState, signs
from silohash.methods.local.losses import pair_contrast, pair_likelihood, pair_weights, similarity
from silohash.methods.local.supervised.dcmh import CARD, DCMH, DCMHParams
from silohash.methods.traits import EpochRules
from tests.runs import model_spec, silo_data
from tests.unit.methods.federated.helpers import accepts

IMAGE = Step("image", ("image.",), ("image",))
TEXT = Step("text", ("text.",), ("text",))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def labels(count: int, seed: int = 0) -> torch.Tensor:
    """Return multi-hot labels of five classes; the first row has none."""
    drawn = torch.from_numpy((np.random.default_rng(seed).random((count, 5)) < 0.3).astype(np.float64))
    drawn[0] = 0.0
    return drawn


def paper(**more: object) -> DCMH:
    return DCMH(DCMHParams(**{**DCMH.presets["paper"], **more}))


def ready(method: DCMH, data, bits: int = 8) -> tuple[torch.nn.Module, SiloState]:
    """Return a model and its state at the start of a phase."""
    torch.manual_seed(0)
    model = method.build(model_spec(image=data.image is not None, text=data.text is not None), bits)
    state = SiloState()
    method.init_state(model, data, state)
    return model, state


def paper_loss(state: SiloState, codes: torch.Tensor, rows: torch.Tensor, gamma: float, eta: float) -> float:
    """Return equation (2) for a batch of the image network, with loops, divided by N and B."""
    count, bits = state.buffers["image"].shape
    known = state.buffers["labels"]
    total = 0.0
    for place, i in enumerate(rows.tolist()):
        for j in range(count):
            theta = 0.5 * sum(float(codes[place, k] * state.buffers["text"][j, k]) for k in range(bits))
            alike = float((known[i] * known[j]).sum() > 0)
            total += math.log1p(math.exp(-abs(theta))) + max(theta, 0.0) - alike * theta
        total += gamma * sum(float((state.buffers["code"][i, k] - codes[place, k]) ** 2) for k in range(bits))
    for k in range(bits):
        column = sum(float(state.buffers["image"][i, k]) for i in range(count) if i not in rows.tolist())
        total += eta * (column + sum(float(codes[place, k]) for place in range(len(rows)))) ** 2
    return total / (count * len(rows))


@pytest.mark.parametrize(("weight", "there"), [(0.0, False), (0.5, True)])
def test_pair_term_is_there_only_if_asked_for(weight: float, there: bool) -> None:
    method, data = DCMH(DCMHParams(pair_weight=weight)), silo_data(24)
    model, state = ready(method, data)
    batch = data.batch(torch.arange(12))
    assert ("pair" in method.terms(IMAGE, model(batch, ("image",)), batch, state)) is there


@pytest.mark.parametrize(("gamma", "eta"), [(1.0, 1.0), (0.3, 0.7)])
def test_paper_preset_is_equation_2_divided_by_items_and_batch(gamma: float, eta: float) -> None:
    method = paper(quantization_weight=gamma, balance_weight=eta)
    data = silo_data(12)
    _, state = ready(method, data)
    rows = torch.tensor([7, 0, 3, 11])
    codes = drawn(4, 8, seed=5).float()
    outputs = Outputs(feature={}, logit={"image": codes}, code={"image": codes})
    terms = method.terms(IMAGE, outputs, data.batch(rows), state)
    assert set(terms) == {"likelihood", "quantization", "balance"}
    total = sum(weight * float(value) for weight, value in terms.values())
    assert total == pytest.approx(paper_loss(state, codes.double(), rows, gamma, eta), rel=1e-5)


def test_gradient_of_the_paper_preset_is_the_analytic_one() -> None:
    """For all items in one batch: dJ/dF_i = 1/2 sum_j (sigma(theta_ij) - s_ij) G_j + 2 gamma (F_i - B_i) + 2 eta F'1."""
    gamma, eta = 0.6, 0.2
    method = paper(quantization_weight=gamma, balance_weight=eta)
    data = silo_data(15)
    _, state = ready(method, data)
    state.buffers = {n: b.double() if b.is_floating_point() else b for n, b in state.buffers.items()}
    codes = drawn(15, 8, seed=3).requires_grad_()
    outputs = Outputs(feature={}, logit={"image": codes}, code={"image": codes})
    terms = method.terms(IMAGE, outputs, data.batch(torch.arange(15)), state)
    sum(weight * value for weight, value in terms.values()).backward()
    with torch.no_grad():
        text, known = state.buffers["text"], state.buffers["labels"]
        alike = ((known @ known.T) > 0).double()
        expected = 0.5 * (torch.sigmoid(0.5 * codes @ text.T) - alike) @ text
        expected += 2 * gamma * (codes - state.buffers["code"]) + 2 * eta * codes.sum(0)
    assert torch.allclose(codes.grad * 15 * 15, expected, atol=1e-10)


def test_recommended_preset_takes_means() -> None:
    method, data = DCMH(DCMHParams()), silo_data(20)
    _, state = ready(method, data)
    rows = torch.arange(5, 15)
    codes = drawn(10, 8).float()
    terms = method.terms(TEXT, Outputs({}, {"text": codes}, {"text": codes}), data.batch(rows), state)
    known = state.buffers["labels"]
    alike = similarity(known[rows], known, graded=True)
    weights = pair_weights(alike, float(state.buffers["share"]))
    likelihood = (pair_likelihood(codes, state.buffers["image"], alike) * weights).mean()
    assert float(terms["likelihood"][1]) == pytest.approx(float(likelihood), rel=1e-5)
    assert float(terms["quantization"][1]) == pytest.approx(
        float((state.buffers["code"][rows] - codes).square().mean())
    )
    assert float(terms["balance"][1]) == pytest.approx(float(codes.mean(0).square().mean()))
    assert {name: weight for name, (weight, _) in terms.items()} == {
        "likelihood": 1.0, "quantization": method.params.quantization_weight, "balance": method.params.balance_weight,
    }  # fmt: skip


def test_presets_differ_as_documented() -> None:
    assert set(DCMH.presets) == {"recommended", "paper"}
    assert paper().params.similarity == "any"
    assert paper().params.normalization == "paper"
    assert not paper().params.class_balance
    assert DCMHParams() == DCMHParams(**DCMH.presets["recommended"])


def test_epochs_of_the_paper_preset_are_those_of_the_authors() -> None:
    assert DCMH(DCMHParams()).traits.epochs == EpochRules()
    assert paper().traits.epochs == EpochRules(fresh_optimizers=True, independent_batches=True)
    assert DCMH(DCMHParams(fresh_optimizers=True)).traits.epochs == EpochRules(fresh_optimizers=True)


def test_codes_aim_at_the_sign_of_both_networks_outputs() -> None:
    method, data = DCMH(DCMHParams()), silo_data(10)
    model, state = ready(method, data)
    model.eval()
    outputs = model(data.batch(torch.arange(10)))
    assert torch.equal(state.buffers["code"], signs(outputs.code["image"] + outputs.code["text"]))
    assert signs(torch.zeros(1)).item() == 1.0


def test_record_remembers_the_batch_and_end_epoch_renews_the_codes() -> None:
    method, data = DCMH(DCMHParams()), silo_data(10)
    model, state = ready(method, data)
    rows, codes = torch.tensor([2, 5]), torch.full((2, 8), 9.0)
    before = state.buffers["image"].clone()
    method.record(IMAGE, Outputs({}, {}, {"image": codes}), data.batch(rows), state)
    assert torch.equal(state.buffers["image"][rows], codes)
    rest = [0, 1, 3, 4, 6, 7, 8, 9]
    assert torch.equal(state.buffers["image"][rest], before[rest])
    method.end_epoch(model, data, state)
    assert (state.buffers["code"][rows] == 1).all()


def test_anchors_are_a_new_subset_of_limited_size_each_epoch() -> None:
    method, data = DCMH(DCMHParams(anchors=6)), silo_data(40)
    model, state = ready(method, data)
    first = state.buffers["anchors"].clone()
    method.end_epoch(model, data, state)
    assert len(first.unique()) == len(state.buffers["anchors"].unique()) == 6
    assert not torch.equal(first, state.buffers["anchors"])


def test_warns_of_a_collapse_at_ln_2_and_not_otherwise() -> None:
    assert "collapsed" in paper().warnings({"likelihood": math.log(2)})[0]
    assert paper().warnings({"likelihood": math.log(2) - 0.01}) == []
    assert paper().warnings({}) == []
    assert DCMH(DCMHParams()).warnings({"likelihood": math.log(2)}) == []


def test_one_modality_is_compared_with_itself() -> None:
    method, data = DCMH(DCMHParams()), silo_data(10, text=False)
    model, state = ready(method, data)
    assert [step.name for step in method.steps(model)] == ["image"]
    codes = drawn(10, 8).float()
    terms = method.terms(IMAGE, Outputs({}, {}, {"image": codes}), data.batch(torch.arange(10)), state)
    alike = similarity(data.labels, data.labels, graded=True)
    weights = pair_weights(alike, float(state.buffers["share"]))
    expected = (pair_likelihood(codes, state.buffers["image"], alike) * weights).mean()
    assert float(terms["likelihood"][1]) == pytest.approx(float(expected), rel=1e-5)


def test_items_without_the_modality_teach_nothing_and_are_compared_by_what_they_have() -> None:
    method, whole = DCMH(DCMHParams()), silo_data(10)
    has_text = torch.ones(10, dtype=torch.bool)
    has_text[:4] = False
    data = replace(whole, has_text=has_text, text=whole.text * has_text.unsqueeze(1))
    _, state = ready(method, data)
    assert (state.buffers["text"][:4] == 0).all()
    codes = drawn(10, 8).float()
    batch = data.batch(torch.arange(10))
    everything = method.terms(TEXT, Outputs({}, {}, {"text": codes}), batch, state)
    other = codes.clone()
    other[:4] = 100.0
    assert all(
        torch.equal(value, method.terms(TEXT, Outputs({}, {}, {"text": other}), batch, state)[name][1])
        for name, (_, value) in everything.items()
    )
    assert method.terms(TEXT, Outputs({}, {}, {"text": codes[:4]}), data.batch(torch.arange(4)), state) == {}
    remembered = torch.where(has_text.unsqueeze(1), state.buffers["text"], state.buffers["image"])
    alike = similarity(data.labels, data.labels, graded=True)
    weights = pair_weights(alike, float(state.buffers["share"]))
    expected = (pair_likelihood(codes, remembered, alike) * weights).mean()
    terms = method.terms(IMAGE, Outputs({}, {}, {"image": codes}), batch, state)
    assert float(terms["likelihood"][1]) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("preset", ["recommended", "paper"])
@pytest.mark.parametrize("case", ["one item", "one class", "no labels at all", "a class that nobody has"])
def test_gradients_are_finite(preset: str, case: str) -> None:
    method = DCMH(DCMHParams(**DCMH.presets[preset]))
    data = silo_data(1 if case == "one item" else 12, single=True)
    if case == "one class":
        data = replace(data, labels=torch.eye(6)[torch.zeros(12, dtype=torch.long)])
    elif case == "no labels at all":
        data = replace(data, labels=torch.zeros_like(data.labels))
    elif case == "a class that nobody has":
        data = replace(data, labels=torch.nn.functional.pad(data.labels, (0, 1)))
    model, state = ready(method, data)
    batch = data.batch(torch.arange(len(data)))
    for step in method.steps(model):
        terms = method.terms(step, model(batch, step.modalities), batch, state)
        sum(weight * value for weight, value in terms.values()).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised, DCMH.traits.needs_labels) == (2017, True, True)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("quantization_weight", 0, True),
        ("quantization_weight", -0.1, False),
        ("balance_weight", 0, True),
        ("balance_weight", -0.1, False),
        ("pair_weight", 0, True),
        ("pair_weight", -0.1, False),
        ("pair_temperature", 0.1, True),
        ("pair_temperature", 0, False),
        ("anchors", 1, True),
        ("anchors", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(DCMHParams, name, value) == accepted


def test_defaults_and_the_preset_of_the_paper() -> None:
    params = DCMHParams()
    assert (params.quantization_weight, params.balance_weight, params.pair_weight) == (0.1, 0.1, 0.0)
    assert (params.similarity, params.class_balance, params.normalization) == ("graded", True, "mean")
    assert (params.pair_temperature, params.anchors) == (0.2, 1024)
    assert DCMH.presets["paper"] == {
        "quantization_weight": 1.0, "balance_weight": 1.0, "similarity": "any", "class_balance": False,
        "normalization": "paper", "pair_weight": 0.0, "fresh_optimizers": True, "independent_batches": True,
        "anchors": 1_000_000,
    }  # fmt: skip


def test_a_pair_needs_another_item_and_carries_its_weight() -> None:
    method, data = DCMH(DCMHParams(pair_weight=0.3, pair_temperature=0.5)), silo_data(6)
    _, state = ready(method, data)
    codes = drawn(2, 8).float()
    for count in (1, 2):
        outputs = Outputs({}, {}, {"image": codes[:count]})
        terms = method.terms(IMAGE, outputs, data.batch(torch.arange(count)), state)
        assert ("pair" in terms) == (count == 2)
    weight, value = terms["pair"]
    assert weight == 0.3
    expected = pair_contrast(codes, state.buffers["text"][:2], 0.5).mean()
    assert float(value) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(("gap", "warned"), [(0.9e-4, True), (1.1e-4, False), (-1.1e-4, False)])
def test_a_collapse_is_within_a_narrow_band(gap: float, warned: bool) -> None:
    assert bool(paper().warnings({"likelihood": math.log(2) + gap})) == warned


def test_as_many_stored_items_as_the_limit_are_all_compared() -> None:
    for limit, expected in ((6, [0, 1, 2, 3, 4, 5]), (7, [0, 1, 2, 3, 4, 5])):
        _, state = ready(DCMH(DCMHParams(anchors=limit)), silo_data(6))
        assert state.buffers["anchors"].tolist() == expected


def test_items_of_the_other_modality_that_are_missing_are_recorded_as_zeros() -> None:
    method, data = DCMH(DCMHParams()), silo_data(3)
    _, state = ready(method, data)
    batch = replace(data, has_image=torch.tensor([True, False, True])).batch(torch.arange(3))
    method.record(IMAGE, Outputs({}, {}, {"image": torch.ones(3, 8)}), batch, state)
    assert state.buffers["image"].sum(1).tolist() == [8.0, 0.0, 8.0]
