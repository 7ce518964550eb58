"""MESDCH: its loss by loops, what each network is compared with, items that lack something, its layers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from silohash.base import seeds
from silohash.base.types import Outputs
from silohash.methods.local.base import SiloState, signs
from silohash.methods.local.supervised.mesdch import (
    CARD,
    MESDCH,
    WINDOWS,
    MESDCHNet,
    MESDCHParams,
    divergence,
    semantic_layers,
)
from tests.runs import model_spec, silo_data
from tests.unit.methods.federated.helpers import accepts

BITS = 8


def ready(data, **params: object) -> tuple[MESDCH, MESDCHNet, SiloState]:
    """Return a method, a model and its state at the start of a phase."""
    method = MESDCH(MESDCHParams(**params))
    with seeds.torch_globally(0, "weights"):
        model = method.build(model_spec(image=data.image is not None, text=data.text is not None), BITS)
    assert isinstance(model, MESDCHNet)
    state = SiloState()
    method.init_state(model, data, state)
    return method, model.eval(), state


@torch.no_grad()
def taken(method: MESDCH, model: MESDCHNet, state: SiloState, data, name: str, rows: torch.Tensor):
    """Return the terms of a step, and the codes that they are computed from."""
    (step,) = (step for step in method.steps(model) if step.name == name)
    batch = data.batch(rows)
    outputs = model(batch, step.modalities)
    codes = outputs.extra["labels"] if name == "labels" else outputs.code[name]
    return method.terms(step, outputs, batch, state), codes


def loss_of(code: torch.Tensor, other: torch.Tensor, similar: float, offset: float, slope: float) -> float:
    lengths = math.sqrt(float(code @ code) * float(other @ other))
    cosine = float(code @ other) / lengths if lengths else 0.0
    found = max(cosine, 0.0)
    return (similar - found) * math.log((offset + similar) / (offset + found)) - slope * similar * min(cosine, 0.0)


@pytest.mark.parametrize("name", ["labels", "image", "text"])
@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_terms_by_loops(name: str, preset: str) -> None:
    data = silo_data(12)
    labels, has_text = data.labels.clone(), torch.arange(12) % 4 > 0
    labels[3] = 0
    data = replace(data, labels=labels, has_text=has_text, text=data.text * has_text.unsqueeze(1))
    method, model, state = ready(data, **{**MESDCH.presets[preset], "width": 16})
    rows = torch.tensor([5, 3, 1, 9])
    terms, codes = taken(method, model, state, data, name, rows)
    params = method.params
    weights = {"labels": {"labels": 1.9, "image": 1.0, "text": 0.3}, "image": {"labels": 1.0, "image": 1.9},
               "text": {"labels": 1.0, "text": 1.9}}[name]  # fmt: skip
    expected, drift = {}, 0.0
    for other in weights:
        values = []
        for place, i in enumerate(rows.tolist()):
            for j in range(12):
                sizes = float(labels[i].sum() * labels[j].sum())
                similar = float(labels[i] @ labels[j]) / math.sqrt(sizes) if sizes else 0.0
                if other != "text" or has_text[j]:
                    stored = state.buffers[other][j]
                    values.append(loss_of(codes[place], stored, similar, params.offset, params.slope))
        expected[f"to_{other}"] = sum(values) / len(values)
    for place, i in enumerate(rows.tolist()):
        drift += float((state.buffers["code"][i] - codes[place]).square().sum()) / (4 * BITS)
    expected["quantization"] = drift
    assert {n: float(value) for n, (_, value) in terms.items()} == pytest.approx(expected, rel=1e-4, abs=1e-6)
    factors = {f"to_{other}": weight for other, weight in weights.items()}
    assert {n: weight for n, (weight, _) in terms.items()} == {**factors, "quantization": 0.9}


def test_divergence_at_known_cosines() -> None:
    codes = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    others = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    similar = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.5]])
    found = divergence(codes, others, similar, offset=0.5, slope=2.0)
    assert found[0].tolist() == pytest.approx([0.0, 0.0, math.log(3) + 2.0])
    assert found[1].tolist() == pytest.approx([0.0, 0.0, 0.5 * math.log(2)])
    assert divergence(codes, others, similar, offset=0.5, slope=0.0)[0, 2] == pytest.approx(math.log(3))
    assert (divergence(codes, others, similar, offset=1e-5, slope=0.0) >= 0).all()


@pytest.mark.parametrize(("slope", "attracted"), [(0.0, False), (1.0, True)])
def test_similar_items_with_a_negative_cosine_attract_each_other_with_a_slope(slope: float, attracted: bool) -> None:
    codes = torch.tensor([[-1.0, 0.1]], requires_grad=True)
    loss = divergence(codes, torch.tensor([[1.0, 0.0]]), torch.ones(1, 1), offset=0.1, slope=slope)
    (gradient,) = torch.autograd.grad(loss.sum(), codes)
    assert (float(gradient.abs().sum()) > 0) is attracted
    if attracted:
        with torch.no_grad():
            moved = codes - 0.05 * gradient
        after = divergence(moved, torch.tensor([[1.0, 0.0]]), torch.ones(1, 1), offset=0.1, slope=slope)
        assert float(after) < float(loss.detach())


@pytest.mark.parametrize("name", ["labels", "image"])
@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_items_without_labels_have_finite_gradients(name: str, preset: str) -> None:
    data = silo_data(10)
    data = replace(data, labels=torch.zeros_like(data.labels))
    method, model, state = ready(data, **{**MESDCH.presets[preset], "width": 16})
    (step,) = (step for step in method.steps(model) if step.name == name)
    batch = data.batch(torch.arange(10))
    terms = method.terms(step, model(batch, step.modalities), batch, state)
    sum(weight * value for weight, value in terms.values()).backward()
    gradients = [p.grad for n, p in model.named_parameters() if n.startswith(f"{name}.") and p.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_stored_codes_follow_the_steps_and_their_sum_is_the_target() -> None:
    data = silo_data(10)
    method, model, state = ready(data)
    with torch.no_grad():
        everything, of_labels = model(data.batch(torch.arange(10))), model.label_codes(data.labels)
    assert torch.equal(state.buffers["labels"], of_labels)
    assert torch.equal(state.buffers["code"], signs(of_labels + everything.code["image"] + everything.code["text"]))
    rows, nines = torch.tensor([2, 5]), torch.full((2, BITS), 9.0)
    for step in method.steps(model):
        before = {n: b.clone() for n, b in state.buffers.items()}
        method.record(step, Outputs({}, {}, dict.fromkeys(step.modalities, nines), extra={"labels": nines}),
                      data.batch(rows), state)  # fmt: skip
        assert {n for n, b in state.buffers.items() if not torch.equal(b, before[n])} == {step.name}
        assert torch.equal(state.buffers[step.name][rows], nines)
    method.end_epoch(model, data, state)
    assert (state.buffers["code"][rows] == 1).all()


def test_steps_and_one_modality() -> None:
    method, model, _ = ready(silo_data(4))
    assert [(step.name, step.modalities) for step in method.steps(model)] == [
        ("labels", ()), ("image", ("image",)), ("text", ("text",)),
    ]  # fmt: skip
    data = silo_data(4, image=False)
    method, model, state = ready(data)
    assert [step.name for step in method.steps(model)] == ["labels", "text"]
    terms, _ = taken(method, model, state, data, "labels", torch.arange(4))
    assert set(terms) == {"to_labels", "to_text", "quantization"}
    lacking = replace(data, has_text=torch.zeros(4, dtype=torch.bool))
    assert taken(method, model, state, lacking, "text", torch.arange(4))[0] == {}
    method.init_state(model, lacking, state)
    terms, _ = taken(method, model, state, lacking, "labels", torch.arange(4))
    assert float(terms["to_text"][1]) == 0.0


def test_the_label_network_runs_in_its_own_step_only() -> None:
    data = silo_data(4)
    _, model, _ = ready(data)
    batch = data.batch(torch.arange(4))
    assert set(model(batch, ()).extra) == {"labels"}
    assert model(batch, ()).code == {}
    assert model(batch, ("image",)).extra == {}
    assert model(batch).extra == {}


def test_layers_average_over_windows_that_fit() -> None:
    layers = semantic_layers(30, 11, 7, scales=True)
    assert layers[0].windows == WINDOWS
    assert layers[1].weight.shape == (11, 6 * 30)
    assert layers(torch.rand(2, 30)).shape == (2, 7)
    assert semantic_layers(30, 11, 7, scales=False)[1].weight.shape == (11, 30)
    _, scaled, _ = ready(silo_data(4), scales=True, width=11)
    _, plain, _ = ready(silo_data(4))
    names = dict(scaled.named_parameters())
    assert names["text.backbone.1.weight"].shape[0] == 11
    assert len(names["labels.0.0.factors"]) == 4
    assert "text.backbone.1.weight" not in dict(plain.named_parameters())


def test_card_and_presets() -> None:
    assert (CARD.year, CARD.supervised, MESDCH.traits.needs_labels) == (2022, True, True)
    assert set(MESDCH.presets) == {"recommended", "paper"}
    paper = MESDCHParams(**MESDCH.presets["paper"])
    assert (paper.slope, paper.offset, paper.anchors, paper.width, paper.scales) == (0.0, 1e-5, 1_000_000, 4096, True)
    assert MESDCH(paper).warnings({}) == []


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        *((f"{name}_weight", value, value >= 0) for name in ("same", "label", "image", "text", "quantization")
          for value in (0, -0.1)),
        ("slope", 0, True),
        ("slope", -0.1, False),
        ("offset", 0, False),
        ("offset", 1e-9, True),
        ("anchors", 1, True),
        ("anchors", 0, False),
        ("width", 1, True),
        ("width", 0, False),
    ],
)  # fmt: skip
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(MESDCHParams, name, value) == accepted
