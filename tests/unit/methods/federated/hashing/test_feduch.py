"""FedUCH: the contrast between modalities and the distillation, compared with explicit loops."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import UnsuitableMethod
from silohash.methods.federated.base import ServerState, SiloContext
from silohash.methods.federated.hashing import feduch
from silohash.methods.federated.hashing.feduch import (
    CARD,
    FedUCH,
    FedUCHParams,
    bit_divergence,
    distillation,
    feature_widths,
    other_modality,
    soft_divergence,
)
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from tests.runs import prepared, run_loop, same_arrays, silo_data
from tests.unit.methods.federated.helpers import BITS, INFO, accepts, context_of, draw, fresh_server, traits_of


def trained_context(method: FedUCH, *, seed: int = 3, **columns: Any) -> tuple[ServerState, SiloContext]:
    """Return a server state and the context of a silo that keeps another model."""
    server = fresh_server(method)
    kept = {
        f"model/{n}": (a + 0.3 * draw(*a.shape, seed=seed).numpy()).astype(a.dtype) for n, a in server.params.items()
    }
    context = context_of(server, kept=kept, round=1)
    context.data = replace(context.data, **columns)
    return server, context


def softmax(values: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_the_soft_divergence_is_that_of_the_softmax_over_bits(temperature: float) -> None:
    codes, teacher = torch.tanh(draw(4, 5, seed=1)), torch.tanh(draw(4, 5, seed=2))
    expected = 0.0
    for i in range(4):
        wanted, found = (softmax([float(v) / temperature for v in values[i]]) for values in (teacher, codes))
        expected += sum(p * math.log(p / q) for p, q in zip(wanted, found, strict=True)) * temperature**2 / 4
    assert float(soft_divergence(codes, teacher, temperature)) == pytest.approx(expected, rel=1e-10)
    assert float(soft_divergence(codes + 0.3, codes, temperature)) == pytest.approx(0.0, abs=1e-12)


def test_the_bit_divergence_is_the_mean_over_items_and_bits() -> None:
    codes, teacher = torch.tanh(draw(4, 5, seed=1)), torch.tanh(draw(4, 5, seed=2))
    codes[0, 0], teacher[1, 1] = -1.0, 1.0
    expected = 0.0
    for i in range(4):
        for k in range(5):
            p, q = (min(max((1 + float(v[i, k])) / 2, 1e-4), 1 - 1e-4) for v in (teacher, codes))
            expected += (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))) / 20
    assert float(bit_divergence(codes, teacher)) == pytest.approx(expected, rel=1e-10)
    assert float(bit_divergence(teacher, teacher)) == 0.0


def test_the_three_forms_of_distillation() -> None:
    codes, teacher = torch.tanh(draw(4, 5, seed=1)), torch.tanh(draw(4, 5, seed=2))
    assert torch.equal(distillation(codes, teacher, kind="soft", temperature=2.0), soft_divergence(codes, teacher, 2.0))
    assert torch.equal(distillation(codes, teacher, kind="bernoulli"), bit_divergence(codes, teacher))
    expected = np.mean([[(float(a) - float(b)) ** 2 for a, b in zip(*rows, strict=True)]
                        for rows in zip(codes, teacher, strict=True)])  # fmt: skip
    assert float(distillation(codes, teacher, kind="mse")) == pytest.approx(expected)


def test_items_without_the_other_modality_are_compared_with_their_own() -> None:
    data = replace(silo_data(6), has_text=torch.tensor([True, True, False, True, False, True]))
    batch = data.batch(torch.tensor([4, 0, 2, 5]))
    frozen = {"image": draw(6, 3, seed=1), "text": draw(6, 3, seed=2)}
    found = other_modality(frozen, "image", batch)
    expected = torch.stack([frozen["image"][4], frozen["text"][0], frozen["image"][2], frozen["text"][5]])
    assert torch.equal(found, expected)
    assert torch.equal(other_modality({"image": frozen["image"]}, "image", batch), frozen["image"][batch.row])


@pytest.mark.parametrize("representation", ["feature", "logit"])
def test_the_contrast_is_with_the_other_modality_summed_over_modalities(representation: str) -> None:
    params = FedUCHParams(contrast_weight=0.7, temperature=0.4, representation=representation, distillation_weight=0.0)
    has_text = torch.arange(20) % 3 > 0
    _, context = trained_context(FedUCH(params), has_text=has_text)
    rows = torch.tensor([5, 0, 9, 6, 2])
    batch = context.data.batch(rows)
    outputs = context.model(batch)
    terms = FedUCH(params).terms(context, batch, outputs)
    assert set(terms) == {"contrast"}
    weight, value = terms["contrast"]
    assert weight == 0.7
    models = (context.global_model, context.previous_model)
    ahead, behind = (getattr(model(batch), representation) for model in models)
    expected = 0.0
    for modality, other in (("image", "text"), ("text", "image")):
        losses = []
        for i, row in enumerate(rows.tolist()):
            if modality == "text" and not has_text[row]:
                continue
            seen = other if other == "image" or has_text[row] else modality
            z = getattr(outputs, representation)[modality][i].detach().double()
            near, far = (
                math.exp(float(torch.cosine_similarity(z, frozen[seen][i].double(), dim=0)) / 0.4)
                for frozen in (ahead, behind)
            )
            losses.append(-math.log(near / (near + far)))
        expected += float(np.mean(losses))
    assert float(value.detach()) == pytest.approx(expected, rel=1e-5)


def test_the_distillation_compares_tanh_outputs_with_those_of_the_global_model() -> None:
    params = FedUCHParams(distillation_weight=0.3, distillation="mse", contrast_weight=0.0)
    has_image = torch.arange(20) % 4 > 0
    _, context = trained_context(FedUCH(params), has_image=has_image)
    batch = context.data.batch(torch.arange(20))
    outputs = context.model(batch)
    terms = FedUCH(params).terms(context, batch, outputs)
    assert set(terms) == {"distillation"}
    weight, value = terms["distillation"]
    assert weight == 0.3
    teacher = context.global_model(batch)
    gaps = {m: (torch.tanh(outputs.logit[m]) - torch.tanh(teacher.logit[m])).square() for m in ("image", "text")}
    expected = gaps["image"][has_image].mean() + gaps["text"].mean()
    torch.testing.assert_close(value, expected)


def test_frozen_outputs_are_computed_once_per_round_in_evaluation_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    method = FedUCH(FedUCHParams())
    _, context = trained_context(method)
    passes: list[tuple[bool, int]] = []
    for model in (context.global_model, context.previous_model):
        model.register_forward_hook(lambda model, given, outputs: passes.append((model.training, len(given[0].row))))
    context.model.train()
    for rows in (torch.arange(4), torch.arange(4, 8)):
        batch = context.data.batch(rows)
        assert set(method.terms(context, batch, context.model(batch))) == {"contrast", "distillation"}
    assert passes == [(False, 20)] * 3  # the features of both models and the codes of the global one


def test_the_first_round_has_no_contrast_and_zero_weights_no_terms() -> None:
    method = FedUCH(FedUCHParams())
    context = context_of(fresh_server(method))
    batch = context.data.batch(torch.arange(4))
    assert set(method.terms(context, batch, context.model(batch))) == {"distillation"}
    none = FedUCH(FedUCHParams(contrast_weight=0.0, distillation_weight=0.0))
    _, context = trained_context(none)
    assert none.terms(context, batch, context.model(batch)) == {}
    lacking = replace(batch, has_image=torch.zeros(4, dtype=torch.bool), has_text=torch.zeros(4, dtype=torch.bool))
    assert method.terms(context, lacking, context.model(batch)) == {}


def test_the_gradient_follows_the_difference_of_the_two_references() -> None:
    method = FedUCH(FedUCHParams(distillation_weight=0.0, contrast_weight=1.0))
    server = fresh_server(method)
    context = context_of(server, kept={f"model/{name}": array for name, array in server.params.items()}, round=1)
    batch = context.data.batch(torch.arange(20))
    _, value = method.terms(context, batch, context.model(batch))["contrast"]
    assert float(value.detach()) == pytest.approx(2 * math.log(2), rel=1e-5)
    gradients = torch.autograd.grad(value, list(context.model.parameters()), allow_unused=True)
    assert max(float(g.abs().max()) for g in gradients if g is not None) < 1e-7


@pytest.mark.whole_run
def test_one_modality_gives_the_contrast_of_moon() -> None:
    def ended(name: str, **params: Any) -> ServerState:
        given = prepared(text=False, federated={"name": name, "rounds": 3, "contrast_weight": 0.5, **params})
        return run_loop(given).server

    ours = ended("feduch", distillation_weight=0.0, temperature=0.5)
    assert same_arrays(ours.params, ended("moon", representation="feature").params)
    assert not same_arrays(ours.params, ended("moon", contrast_weight=0.0).params)


@pytest.mark.whole_run
def test_without_its_terms_it_is_federated_averaging_bit_for_bit() -> None:
    def ended(name: str, **params: Any) -> ServerState:
        return run_loop(prepared(federated={"name": name, "rounds": 3, **params})).server

    plain = ended("fedavg")
    assert same_arrays(plain.params, ended("feduch", contrast_weight=0.0, distillation_weight=0.0).params)
    assert not same_arrays(plain.params, ended("feduch").params)


def test_a_silo_keeps_its_model_if_there_is_a_contrast() -> None:
    for weight, kept in ((0.6, True), (0.0, False)):
        method = FedUCH(FedUCHParams(contrast_weight=weight))
        context = context_of(fresh_server(method))
        method.update(context)
        assert bool(context.kept("model")) == kept
        if kept:
            assert same_arrays(context.kept("model"), params_of(context.model))


@pytest.mark.parametrize("lost", ["image", "text"])
def test_a_silo_without_a_modality_does_not_move_its_tower(lost: str) -> None:
    method = FedUCH(FedUCHParams())
    server, lacking = trained_context(method, **{f"has_{lost}": torch.zeros(20, dtype=torch.bool)})
    _, unpaired = trained_context(method, has_image=torch.arange(20) < 5, has_text=torch.arange(20) >= 5)
    for context, size in ((lacking, 1.0), (unpaired, 2.0)):
        for parameter in context.model.parameters():
            parameter.data.fill_(size)
    updates = [replace(method.update(c), sender=str(n)) for n, c in enumerate((lacking, unpaired))]
    assert updates[0].weights == {"image": 20.0, "text": 20.0, lost: 0.0}
    assert updates[1].weights == {"image": 5.0, "text": 15.0}
    averaged = method.aggregate(server, updates).params
    other, weight = ("text", 15) if lost == "image" else ("image", 5)
    assert np.allclose(averaged[f"{lost}.hash.weight"], 2.0)
    assert np.allclose(averaged[f"{other}.hash.weight"], (20 * 1.0 + weight * 2.0) / (20 + weight))


def test_features_of_different_widths_are_refused() -> None:
    towers = {name: TowerSpec("mlp", (16,), hidden=hidden) for name, hidden in (("image", 12), ("text", 10))}
    model = HashNet(ModelSpec(towers, classes=0), BITS)
    assert feature_widths(params_of(model)) == {"image": 12, "text": 10}
    with pytest.raises(UnsuitableMethod, match=r"10.*text.*12.*image"):
        FedUCH(FedUCHParams()).init_server(model, INFO)
    for params in (FedUCHParams(representation="logit"), FedUCHParams(contrast_weight=0.0)):
        assert same_arrays(FedUCH(params).init_server(model, INFO).params, params_of(model))


def test_presets() -> None:
    assert FedUCH.presets == {"recommended": {}, "paper": {"contrast_weight": 0.6, "distillation_weight": 0.4}}
    params = FedUCHParams()
    assert (params.contrast_weight, params.temperature, params.distillation_weight) == (0.6, 1.0, 0.4)
    assert (params.representation, params.distillation, params.distillation_temperature) == ("feature", "soft", 1.0)


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2023, False)
    assert any("does not contain the contrast" in difference for difference in CARD.differs_from_paper)
    assert traits_of(FedUCH) == {"adds": {"update": {}}}
    assert feduch.SMALLEST_PROBABILITY == 1e-4


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("contrast_weight", 0, True),
        ("contrast_weight", -0.1, False),
        ("temperature", 0.1, True),
        ("temperature", 0, False),
        ("distillation_weight", 0, True),
        ("distillation_weight", -0.1, False),
        ("distillation_temperature", 0.1, True),
        ("distillation_temperature", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedUCHParams, name, value) == accepted
