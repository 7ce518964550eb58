"""SSAH: its losses by loops, which network each step trains, its live adversary, its text scales."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from silohash.base import seeds
from silohash.methods.local.base import SiloState, signs
from silohash.methods.local.supervised.ssah import (
    CARD,
    SSAH,
    WINDOWS,
    SSAHNet,
    SSAHParams,
    deception_loss,
    judge_loss,
    scaled_text,
)
from silohash.models.specs import TowerSpec
from silohash.models.towers import HashNet
from tests.runs import model_spec, silo_data
from tests.unit.methods.federated.helpers import accepts

BITS = 8


def ready(data, **params: object) -> tuple[SSAH, SSAHNet, SiloState]:
    """Return a method, a model and its state at the start of a phase."""
    method = SSAH(SSAHParams(**params))
    with seeds.torch_globally(0, "weights"):
        model = method.build(model_spec(image=data.image is not None, text=data.text is not None), BITS)
    assert isinstance(model, SSAHNet)
    state = SiloState()
    method.init_state(model, data, state)
    return method, model.eval(), state


def taken(method: SSAH, model: SSAHNet, state: SiloState, data, name: str, rows: torch.Tensor):
    """Return the terms of a step, and the outputs that they are computed from."""
    (step,) = (step for step in method.steps(model) if step.name == name)
    batch = data.batch(rows)
    outputs = model(batch, step.modalities)
    return method.terms(step, outputs, batch, state), outputs


def nll(theta: float, alike: float) -> float:
    return max(theta, 0.0) + math.log1p(math.exp(-abs(theta))) - alike * theta


@pytest.mark.parametrize("name", ["labels", "image", "text"])
@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_terms_by_loops(name: str, preset: str) -> None:
    data = silo_data(12)
    labels = data.labels.clone()
    labels[3] = 0
    data = replace(data, labels=labels)
    method, model, state = ready(data, **{**SSAH.presets[preset], "width": 16})
    rows = torch.tensor([5, 3, 0, 9])
    with torch.no_grad():
        terms, outputs = taken(method, model, state, data, name, rows)
    feature = outputs.extra["label_feature"] if name == "labels" else outputs.feature[name]
    code = outputs.extra["label_code"] if name == "labels" else outputs.code[name]
    predicted = outputs.extra["label_labels" if name == "labels" else f"{name}_labels"]
    share = float(state.buffers["share"])
    totals = {"features": 0.0, "codes": 0.0, "quantization": 0.0, "labels": 0.0}
    for place, i in enumerate(rows.tolist()):
        for j in range(12):
            shared, sizes = float(labels[i] @ labels[j]), float(labels[i].sum() * labels[j].sum())
            alike = float(shared > 0) if preset == "paper" else (shared / math.sqrt(sizes) if sizes else 0.0)
            weight = 1.0 if preset == "paper" else alike * 0.5 / share + (1 - alike) * 0.5 / (1 - share)
            theta = 0.5 * float(feature[place] @ state.buffers["label_feature"][j])
            gamma = 0.5 * float(code[place] @ state.buffers["label_code"][j])
            totals["features"] += weight * nll(theta, alike)
            totals["codes"] += weight * nll(gamma, alike)
        totals["quantization"] += float((state.buffers["code"][i] - code[place]).square().sum())
        totals["labels"] += float((torch.sigmoid(predicted[place]) - labels[i]).square().sum())
    divisors = {"features": 48, "codes": 48, "quantization": 4 * BITS, "labels": 4 * 6}
    expected = {n: total / (48 if preset == "paper" else divisors[n]) for n, total in totals.items()}
    if name != "labels":
        judged = torch.sigmoid(outputs.extra[f"{name}_deceives"])
        expected["deception"] = -float(judged.square().sum()) / (48 if preset == "paper" else 4)
    assert {n: float(value) for n, (_, value) in terms.items()} == pytest.approx(expected, rel=1e-4)
    weights = {"features": 0.1, "codes": 1.0, "quantization": 0.1, "labels": 1.0, "deception": 0.1}
    if preset == "paper":
        weights = {"features": 1.0, "codes": 1.0, "quantization": 1e-4, "labels": 1e-4, "deception": 1.0}
    assert {n: weight for n, (weight, _) in terms.items()} == {n: weights[n] for n in expected}


def test_the_discriminators_compare_features_of_the_same_items() -> None:
    data = replace(silo_data(12), has_text=torch.arange(12) != 2)
    method, model, state = ready(data)
    rows = torch.tensor([1, 2, 7])
    with torch.no_grad():
        terms, outputs = taken(method, model, state, data, "judges", rows)
    losses = []
    for modality, held in (("image", [0, 1, 2]), ("text", [0, 2])):
        judge = model.get_submodule(f"judges.{modality}")
        of_labels = judge(outputs.extra["label_feature"][held]).detach()
        of_others = judge(outputs.feature[modality][held]).detach()
        assert of_others.shape == (len(held),)
        losses.append(judge_loss(of_labels, of_others, "squared").mean())
    assert float(terms["judgment"][1]) == pytest.approx(float(sum(losses)) / 2, rel=1e-5)
    assert terms["judgment"][0] == 1.0


def test_adversarial_losses_at_known_logits() -> None:
    zero, large = torch.zeros(1), torch.full((1,), 50.0)
    assert float(judge_loss(zero, zero, "squared")) == pytest.approx(0.25)
    assert float(judge_loss(zero, zero, "cross_entropy")) == pytest.approx(math.log(2))
    assert float(deception_loss(zero, "squared")) == pytest.approx(-0.25)
    assert float(deception_loss(zero, "cross_entropy")) == pytest.approx(math.log(2))
    for kind in ("squared", "cross_entropy"):
        assert float(judge_loss(large, -large, kind)) == pytest.approx(0.0, abs=1e-6)
        assert float(judge_loss(-large, large, kind)) == pytest.approx(1.0 if kind == "squared" else 50.0)
        assert float(deception_loss(large, kind)) < float(deception_loss(-large, kind))
    assert float(deception_loss(large, "squared")) == -1.0


def gradients(method: SSAH, model: SSAHNet, state: SiloState, data, name: str, keep: str = "") -> set[str]:
    """Return the first parts of the names of the parameters with a gradient after a step."""
    model.zero_grad()
    terms, _ = taken(method, model, state, data, name, torch.arange(len(data)))
    sum(value for term, (_, value) in terms.items() if keep in ("", term)).backward()
    moving = [n for n, p in model.named_parameters() if p.grad is not None and float(p.grad.abs().sum()) > 0]
    return {name.split(".")[0] for name in moving}


@pytest.mark.parametrize("adversary", ["squared", "cross_entropy"])
def test_the_adversarial_gradient_reaches_the_tower_and_the_judgment_does_not(adversary: str) -> None:
    data = silo_data(12)
    method, model, state = ready(data, adversary=adversary)
    assert gradients(method, model, state, data, "image", keep="deception") == {"image", "judges"}
    assert gradients(method, model, state, data, "text") == {"text", "judges"}
    assert gradients(method, model, state, data, "judges") == {"judges"}
    assert gradients(method, model, state, data, "labels") == {"labels"}
    method, model, state = ready(data, adversarial_weight=0.0)
    assert gradients(method, model, state, data, "image") == {"image"}


def test_steps_train_the_label_network_first_and_every_parameter_once() -> None:
    method, model, _ = ready(silo_data(4))
    first = [step.name for step in method.steps(model)][:5]
    assert first == ["labels", "labels1", "labels2", "labels3", "judges"]
    method, model, _ = ready(silo_data(4), label_steps=1)
    steps = method.steps(model)
    assert [step.name for step in steps] == ["labels", "judges", "image", "text"]
    for name, _ in model.named_parameters():
        assert sum(name.startswith(step.parameters) for step in steps) == 1
    method, model, _ = ready(silo_data(4, text=False), label_steps=1)
    assert [step.name for step in method.steps(model)] == ["labels", "judges", "image"]


def test_the_label_network_runs_only_where_it_is_needed() -> None:
    data = silo_data(4)
    _, model, _ = ready(data)
    batch = data.batch(torch.arange(4))
    assert "label_code" in model(batch, ()).extra
    assert model(batch, ()).code == {}
    assert "label_code" in model(batch).extra
    assert set(model(batch, ("image",)).extra) == {"image_labels", "image_deceives"}
    assert model(replace(batch, labels=None)).extra == {}
    one = silo_data(4, text=False)
    assert "label_code" in ready(one)[1](one.batch(torch.arange(4)), ("image",)).extra


def test_a_batch_with_texts_alone_trains_the_discriminator_of_texts() -> None:
    method, model, state = ready(silo_data(4))
    batch = replace(silo_data(4).batch(torch.arange(4)), image=None)
    [step] = (step for step in method.steps(model) if step.name == "judges")
    outputs = model(batch, step.modalities)
    assert set(method.terms(step, outputs, batch, state)) == {"judgment"}
    assert "text_judged" in outputs.extra
    assert "image_judged" not in outputs.extra


def test_stored_outputs_follow_the_steps() -> None:
    data = silo_data(10)
    method, model, state = ready(data)
    _, code, _ = model.get_submodule("labels")(data.labels)
    assert torch.equal(state.buffers["label_code"], code.detach())
    assert not state.buffers["label_code"].requires_grad
    everything = model(data.batch(torch.arange(10)))
    total = code + everything.code["image"] + everything.code["text"]
    assert torch.equal(state.buffers["code"], signs(total))
    rows = torch.tensor([2, 5])
    for name in ("labels", "image", "judges"):
        (step,) = (step for step in method.steps(model) if step.name == name)
        outputs = model(data.batch(rows), step.modalities)
        changed = replace(
            outputs, code={m: torch.full((2, BITS), 9.0) for m in outputs.code},
            extra={n: torch.full_like(v, 7.0) for n, v in outputs.extra.items()},
        )  # fmt: skip
        before = {n: b.clone() for n, b in state.buffers.items()}
        method.record(step, changed, data.batch(rows), state)
        moved = {n for n, b in state.buffers.items() if not torch.equal(b, before[n])}
        expected = {"labels": {"label_feature", "label_code"}, "image": {"image"}, "judges": set[str]()}
        assert moved == expected[name]
    method.end_epoch(model, data, state)
    assert (state.buffers["code"][rows] == 1).all()


def test_an_empty_batch_of_a_modality_has_no_terms() -> None:
    data = replace(silo_data(6), has_image=torch.zeros(6, dtype=torch.bool), has_text=torch.zeros(6, dtype=torch.bool))
    method, model, state = ready(data)
    for name in ("judges", "image", "text"):
        assert taken(method, model, state, data, name, torch.arange(6))[0] == {}
    assert taken(method, model, state, data, "labels", torch.arange(6))[0]


def test_averages_over_windows_are_part_of_the_text_tower_and_add_no_bits() -> None:
    spec = TowerSpec("mlp", (60,), hidden=7, dropout=0.1)
    layers = scaled_text(spec, 11)
    assert layers[0].windows == WINDOWS
    assert layers[1].weight.shape == (11, 6 * 60)
    assert layers(torch.rand(3, 60)).shape == (3, 7)
    data = silo_data(5)
    _, model, _ = ready(data, text_scales=True, width=11)
    _, plain, _ = ready(data)
    names = dict(model.named_parameters())
    assert "text.backbone.0.factors" in names
    assert "image.backbone.0.weight" in names
    assert isinstance(plain.get_submodule("text"), type(HashNet(model_spec(), BITS).get_submodule("text")))
    assert "text.backbone.0.factors" not in dict(plain.named_parameters())


def test_card_and_presets() -> None:
    assert (CARD.year, CARD.supervised, SSAH.traits.needs_labels) == (2018, True, True)
    assert set(SSAH.presets) == {"recommended", "paper"}
    params = SSAHParams(**SSAH.presets["paper"])
    assert (params.similarity, params.class_balance, params.adversary) == ("any", False, "squared")
    assert (params.width, params.anchors, params.text_scales, params.label_steps) == (4096, 1_000_000, True, 1)
    assert SSAH(params).warnings({}) == []


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        *((f"{name}_weight", value, value >= 0) for name in ("feature", "code", "quantization", "label", "adversarial")
          for value in (0, -0.1)),
        ("anchors", 1, True),
        ("anchors", 0, False),
        ("width", 1, True),
        ("width", 0, False),
        ("adversary", "none", False),
        ("label_steps", 0, False),
    ],
)  # fmt: skip
def test_bounds_of_parameters(name: str, value: object, accepted: bool) -> None:
    assert accepts(SSAHParams, name, value) == accepted
