"""FedUCH: the contrast between modalities and the distillation, compared with explicit loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name

from silohash.base import seeds
from silohash.base.errors import UnsuitableMethod, WrongValue
from silohash.base.types import MODALITIES, Modality, Phase, ReadArrays
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
from silohash.methods.local.supervised.dscmr import DSCMR
from silohash.methods.local.unsupervised.dgcpn import DGCPN
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from silohash.run.config.load import load_resolved
from silohash.training.engines.port import SiloTask
from silohash.training.silo import batches, make_context, train_silo
from tests.runs import loop_config, model_spec, prepared, run_loop, same_arrays, silo_data
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
    frozen = {"image": draw(4, 3, seed=1), "text": draw(4, 3, seed=2)}
    found = other_modality(frozen, "image", batch)
    expected = torch.stack([frozen["image"][0], frozen["text"][1], frozen["image"][2], frozen["text"][3]])
    assert torch.equal(found, expected)
    assert torch.equal(other_modality({"image": frozen["image"]}, "image", batch), frozen["image"])


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


def test_projections_need_towers_whose_features_they_are() -> None:
    towers = {name: TowerSpec("mlp", (16,), hidden=12) for name in ("image", "text")}
    local = DSCMR(DSCMR.Params()).build(ModelSpec(towers, classes=3), BITS)
    with pytest.raises(UnsuitableMethod, match="projection"):
        authors_code().init_server(local, INFO)
    FedUCH(FedUCHParams(representation="feature")).init_server(local, INFO)


def authors_code(**params: Any) -> FedUCH:
    """Return the method as its authors ran it."""
    return FedUCH(FedUCHParams(**{**FedUCH.presets["authors_code"], **params}))


def test_dropout_of_the_teacher_is_drawn_anew_and_does_not_change_projections() -> None:
    method = authors_code()
    _, context = trained_context(method)
    teacher = context.global_model
    for network in (context.model, teacher, context.previous_model):
        assert network is not None
        for modality in ("image", "text"):
            network.get_submodule(f"{modality}.backbone.2").p = 0.5
    context.model.train()
    batch = context.data.batch(torch.arange(20))
    outputs = context.model(batch)
    first, again = (method.terms(context, batch, outputs) for _ in range(2))
    assert first["contrast"][1] == again["contrast"][1]
    assert first["distillation"][1] != again["distillation"][1]
    assert not teacher.training
    still = authors_code(teacher_dropout=False)
    first, again = (still.terms(context, batch, outputs) for _ in range(2))
    assert first["distillation"][1] == again["distillation"][1]
    dropped = authors_code(representation="feature")
    first, again = (dropped.terms(context, batch, outputs) for _ in range(2))
    assert first["contrast"][1] != again["contrast"][1]


class ByHand:
    """One batch as the authors' code takes it: two networks of plain tensors, one optimizer each, five steps."""

    def __init__(self, params: ReadArrays) -> None:
        names = ("backbone.0.weight", "backbone.0.bias", "hash.weight", "hash.bias")
        self.of = {
            m: [torch.from_numpy(np.array(params[f"{m}.{n}"])).requires_grad_() for n in names] for m in MODALITIES
        }
        self.optimizers = {
            m: torch.optim.SGD(weights, lr=0.01, momentum=0.9, weight_decay=0.05) for m, weights in self.of.items()
        }

    def run(self, modality: Modality, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the projections, and the codes with dropout."""
        first, first_bias, last, last_bias = self.of[modality]
        projection = torch.relu(values @ first.T + first_bias)
        return projection, torch.tanh(F.dropout(projection, 0.5) @ last.T + last_bias)

    def step(self, loss: torch.Tensor, modalities: Sequence[Modality]) -> None:
        """Move some networks."""
        gradients = torch.autograd.grad(loss, [w for m in modalities for w in self.of[m]])
        for weight, gradient in zip([w for m in modalities for w in self.of[m]], gradients, strict=True):
            weight.grad = gradient
        for modality in modalities:
            self.optimizers[modality].step()


def base_loss(image: torch.Tensor, text: torch.Tensor, similarity: torch.Tensor) -> torch.Tensor:
    """Return the loss of DGCPN by its formulas, with weights of 1 and the pair target 1.5."""
    image, text = F.normalize(image), F.normalize(text)
    ii, tt, it = image @ image.T, text @ text.T, image @ text.T
    off = 1.0 - torch.eye(len(image))
    pairs = (it.diagonal() - 1.5).square().mean()
    similar = sum((((each - similarity) * off).square()).mean() for each in (ii, it, tt))
    consistent = sum((a - b).square().mean() for a, b in ((it, ii), (it, tt), (it, it.T), (ii, tt)))
    return pairs + similar + consistent


def test_a_batch_takes_the_five_steps_of_the_authors() -> None:
    local, method = DGCPN(DGCPN.Params(text_weight=0.3, neighbors=0.405)), authors_code()
    config = loop_config(epochs=1, batch=12, optimizer="sgd", learning_rate=0.01, weight_decay=0.05)
    torch.manual_seed(0)
    networks = [local.build(model_spec(dropout=0.5), BITS) for _ in range(3)]
    broadcast, kept = params_of(networks[0]), {f"model/{n}": a for n, a in params_of(networks[1]).items()}
    task = SiloTask("train", 0, Message("broadcast", "server", 1, params=broadcast), kept)
    context = make_context(task, config, model=networks[2], local=local, data=silo_data(12))
    trained = train_silo(context, method, config)
    assert set(context.steps_taken) == {"joint", "half_binary", "image terms", "text terms"}

    ours, ahead, behind = (ByHand(params) for params in (broadcast, broadcast, params_of(networks[1])))
    (rows,) = batches(context, Phase("train", networks[2], 1), config, 0)
    values = {m: context.data.batch(rows).values(m) for m in MODALITIES}
    similarity = context.state.buffers["similarities"][rows][:, rows]
    with seeds.torch_globally(config.seed, "training", silo=0, round=1):
        (_, image), (_, text) = (ours.run(m, values[m]) for m in MODALITIES)
        ours.step(base_loss(image, text, similarity), MODALITIES)
        (_, image), (_, text) = (ours.run(m, values[m]) for m in MODALITIES)
        sign = {m: torch.where(u >= 0, 1.0, -1.0) for m, u in (("image", image), ("text", text))}
        ours.step(base_loss(image, sign["text"], similarity), ["image"])
        ours.step(base_loss(sign["image"], text, similarity), ["text"])
        for modality, other in (("image", "text"), ("text", "image")):
            z, u = ours.run(modality, values[modality])
            with torch.no_grad():
                _, teacher = ahead.run(modality, values[modality])
                near, far = (
                    torch.relu(values[other] @ net.of[other][0].T + net.of[other][1]) for net in (ahead, behind)
                )
            cosines = torch.stack([F.cosine_similarity(z, near), F.cosine_similarity(z, far)], dim=1)
            contrast = F.cross_entropy(cosines, torch.zeros(12, dtype=torch.long))
            p, q = (torch.softmax(codes / 1.5, dim=1) for codes in (teacher, u))
            distilled = (p * (p / q).log()).sum() / 12 * 1.5**2
            ours.step(0.3 * contrast + 0.7 * distilled, [modality])
    for modality in MODALITIES:
        for name, weight in zip(("backbone.0.weight", "backbone.0.bias", "hash.weight", "hash.bias"), ours.of[modality],
                                strict=True):  # fmt: skip
            torch.testing.assert_close(
                torch.from_numpy(trained.update.params[f"{modality}.{name}"]), weight.detach(), rtol=1e-4, atol=1e-6
            )
            assert not np.allclose(broadcast[f"{modality}.{name}"], weight.detach().numpy(), atol=1e-5)


def test_separate_steps_are_refused_under_differential_privacy() -> None:
    tables = {"data": {"name": "glyphs"}, "local": {"name": "csq"}, "evaluate": {"validation": 0.0}}
    privacy = {"exchange": {"privacy": {"unit": "record"}}, "federated": {"name": "feduch"}}
    load_resolved({**tables, **privacy})
    with pytest.raises(WrongValue, match=r"federated\.separate_steps"):
        load_resolved({**tables, **privacy, "federated": {"name": "feduch", "preset": "authors_code"}})


def test_presets() -> None:
    assert FedUCH.presets.keys() == {"recommended", "paper", "authors_code"}
    assert FedUCH.presets["paper"] == {"contrast_weight": 0.6, "distillation_weight": 0.4}
    code = authors_code()
    assert (code.params.contrast_weight, code.params.distillation_weight, code.params.temperature) == (0.3, 0.7, 1.0)
    assert (code.params.distillation_temperature, code.params.representation) == (1.5, "projection")
    assert code.traits.separate_steps
    params = FedUCHParams()
    assert (params.contrast_weight, params.temperature, params.distillation_weight) == (0.6, 1.0, 0.4)
    assert (params.representation, params.distillation, params.distillation_temperature) == ("feature", "soft", 1.0)


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2023, False)
    assert any("141db0f" in difference for difference in CARD.differs_from_paper)
    assert traits_of(FedUCH) == {}
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
