"""FedHAP: binary prototypes, triplets, the discriminator and the weights of silos."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import SiloContext
from silohash.methods.federated.hashing.fedhap import (
    CARD,
    JUDGE,
    FedHAP,
    FedHAPParams,
    PairJudge,
    hadamard_prototypes,
    printed_adversarial_loss,
    quantization,
    sampled_classes,
    signed_prototypes,
)
from silohash.methods.local.losses import straight_through
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.methods.local.supervised.triplet import Triplet, TripletParams
from silohash.methods.message import Message
from silohash.models.towers import HashNet
from tests.runs import (
    model_spec,
)
from tests.unit.methods.federated.helpers import BITS, CLASSES, INFO, accepts, context_of, draw, fresh_server, traits_of


class TestFormulas:
    def test_prototype_signs_do_not_depend_on_the_number_of_silos_and_absent_classes_keep_theirs(self) -> None:
        sums, holders = np.asarray([[0.6, -0.2, 0.0], [0.0, 0.0, 0.0]]), np.asarray([2.0, 0.0])
        before = np.asarray([[0, 0, 0], [1, -1, 1]], np.int8)
        for scale in (1.0, 0.1, 1 / 3):
            assert signed_prototypes(scale * sums, holders, before).tolist() == [[1, -1, 1], [1, -1, 1]]
        assert signed_prototypes(sums, holders, -np.ones((2, 3), np.int8))[0].tolist() == [1, -1, -1]

    def test_gradients_of_the_judgement_reach_the_codes(self) -> None:
        codes = draw(4, 6).float().requires_grad_()
        judge, classes = PairJudge(6 + 3, 8), torch.eye(3)[[0, 1, 2, 0]]
        seen = straight_through(codes)
        assert set(seen.detach().unique().tolist()) == {-1.0, 1.0}
        torch.nn.functional.softplus(-judge(seen, classes)).mean().backward()
        assert codes.grad is not None
        assert float(codes.grad.abs().sum()) > 0

    def test_quantization_is_zero_at_signs_only(self) -> None:
        assert float(quantization(torch.tensor([[1.0, -1.0]]))) == 0.0
        assert float(quantization(torch.tensor([[0.5, -1.0]]))) == pytest.approx(0.125)

    def test_drawn_classes_are_own_labels_with_a_prototype(self) -> None:
        labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        mask = torch.tensor([True, False, True])
        drawn = [sampled_classes(labels, mask, torch.Generator().manual_seed(seed)).tolist() for seed in range(20)]
        assert {row[0] for row in drawn} == {0}
        assert {row[1] for row in drawn} == {-1}
        assert {row[2] for row in drawn} == {0, 2}


class TestPaper:
    def test_the_printed_loss_is_that_of_two_loops(self) -> None:
        made, real = draw(5, seed=1), draw(3, seed=2)
        chance = {kind: [1 / (1 + math.exp(-float(value))) for value in values]
                  for kind, values in (("made", made), ("real", real))}  # fmt: skip
        expected = -(sum(1 - math.log(p) for p in chance["made"]) / 5 + sum(math.log(p) for p in chance["real"]) / 3)
        assert float(printed_adversarial_loss(made, real)) == pytest.approx(expected)
        assert float(printed_adversarial_loss(made - 1000, real)) < -900  # it has no lower bound

    @pytest.mark.parametrize("relaxed", [False, True])
    def test_the_printed_loss_helps_the_discriminator_and_passes_no_signs(self, relaxed: bool) -> None:
        method = FedHAP(FedHAPParams(adversary="printed", first_prototypes="hadamard", relaxed=relaxed))
        context = context_of(method.init_server(HashNet(model_spec(), BITS), INFO))
        method.begin_round(context)
        batch = context.data.batch(torch.arange(20))
        outputs = context.model(batch)
        weight, loss = method.terms(context, batch, outputs)["adversarial"]
        assert weight == 0.1

        judge, expected = copy.deepcopy(context.auxiliary[JUDGE]).requires_grad_(requires_grad=False), 0.0
        prototypes = torch.from_numpy(context.payload.extras["prototypes"]).float()
        for logit in outputs.logit.values():
            codes = torch.tanh(logit.detach()) if relaxed else torch.where(logit >= 0, 1.0, -1.0)
            made = [float(judge(codes[[i]], batch.labels[[i]])) for i in range(20)]
            real = [float(judge(prototypes[[c]], torch.eye(CLASSES)[[c]])) for c in range(CLASSES)]
            expected -= np.mean([1 + math.log1p(math.exp(-value)) for value in made])
            expected += np.mean([math.log1p(math.exp(-value)) for value in real])
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)

        moves = torch.autograd.grad(loss, list(context.model.parameters()), allow_unused=True)
        assert any(move is not None and bool(move.any()) for move in moves) == relaxed
        step = method.adapter.auxiliary_step(context, batch, outputs)["judge"]
        if not relaxed:
            assert step[0] == 1.0
            assert float(step[1].detach()) == pytest.approx(expected / 2, rel=1e-4)

    def test_hadamard_prototypes_are_far_from_each_other(self) -> None:
        rows = hadamard_prototypes(20, 16).astype(int)
        distances = {int((rows[i] != rows[j]).sum()) for i in range(20) for j in range(i)}
        assert distances == {8, 16}
        cut = hadamard_prototypes(21, 24).astype(int)
        assert set(np.unique(cut)) == {-1, 1}
        assert min(int((cut[i] != cut[j]).sum()) for i in range(21) for j in range(i)) == 8
        many = hadamard_prototypes(80, 12)
        assert many.shape == (80, 12)
        assert many.any(axis=1).tolist() == [True] * 32 + [False] * 48

    @pytest.mark.parametrize("first", ["none", "hadamard"])
    def test_a_run_begins_with_the_prototypes_asked_for(self, first: str) -> None:
        method = FedHAP(FedHAPParams(first_prototypes=first))
        extras = method.init_server(HashNet(model_spec(), BITS), INFO).extras
        assert extras["mask"].tolist() == [first == "hadamard"] * CLASSES
        assert extras["prototypes"].any() == (first == "hadamard")
        assert extras["prototypes"].dtype == np.int8


def test_presets() -> None:
    assert FedHAP.presets == {
        "recommended": {},
        "paper": {"min_count": 1, "max_labels": 1000, "adversary": "printed", "first_prototypes": "hadamard"},
    }
    params = FedHAPParams()
    assert (params.triplet_weight, params.margin, params.distance) == (1.0, 0.5, "cosine")
    assert (params.quantization_weight, params.adversarial_weight) == (0.05, 0.1)
    assert (params.judge_width, params.judge_learning_rate, params.weighting) == (128, 1e-3, "uniform")
    assert (params.relaxed, params.adversary, params.first_prototypes) == (False, "opposed", "none")
    assert FedHAP(params).adapter.learning_rate == 1e-3


def ready(**params: Any) -> tuple[FedHAP, SiloContext]:
    """A method, and a silo that was sent prototypes of all classes but one."""
    method = FedHAP(FedHAPParams(**{"min_count": 1, "judge_width": 16, **params}))
    server = fresh_server(method)
    prototypes = torch.where(draw(CLASSES, BITS, seed=4) >= 0, 1, -1).numpy().astype(np.int8)
    prototypes[2] = 0
    extras = {**server.extras, "prototypes": prototypes, "mask": prototypes.any(axis=1)}
    context = context_of(replace(server, extras=extras))
    method.begin_round(context)
    return method, context


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_codes_are_pulled_to_their_own_prototypes_and_away_from_others(distance: str) -> None:
    method, context = ready(distance=distance, margin=0.3, triplet_weight=0.6, quantization_weight=0.7)
    batch = context.data.batch(torch.arange(12))
    outputs = context.model(batch)
    terms = method.terms(context, batch, outputs)
    prototypes = torch.from_numpy(context.payload.extras["prototypes"]).float()
    expected, signs = 0.0, 0.0
    for logit in outputs.logit.values():
        codes, gaps = torch.tanh(logit.detach()), []

        def apart(i: int, c: int, codes: torch.Tensor = codes) -> float:
            if distance == "cosine":
                return 1 - float(torch.cosine_similarity(codes[i], prototypes[c], dim=0))
            return float((codes[i] - prototypes[c]).norm()) / math.sqrt(4 * BITS)

        for i in range(12):
            for p in range(CLASSES):
                for n in range(CLASSES):
                    if batch.labels[i, p] and not batch.labels[i, n] and 2 not in (p, n):
                        gaps.append(apart(i, p) - apart(i, n) + 0.3)
        violated = [gap for gap in gaps if gap > 0]
        expected += sum(violated) / len(violated)
        signs += float((codes - torch.where(codes >= 0, 1.0, -1.0)).square().mean())
    assert {name: weight for name, (weight, _) in terms.items()} == {"prototype": 0.6, "sign": 0.7, "adversarial": 0.1}
    assert float(terms["prototype"][1].detach()) == pytest.approx(expected, rel=1e-4)
    assert float(terms["sign"][1].detach()) == pytest.approx(signs, rel=1e-4)


def test_the_discriminator_tells_prototypes_from_codes_of_the_same_class() -> None:
    method, context = ready()
    labels = torch.zeros(20, CLASSES)
    labels[torch.arange(20), torch.arange(20) % CLASSES] = 1  # one label each, so that nothing is left to chance
    context.data = replace(context.data, labels=labels)
    batch = context.data.batch(torch.arange(20))
    outputs = context.model(batch)
    weight, value = method.adapter.auxiliary_step(context, batch, outputs)["judge"]
    judge, prototypes = context.auxiliary[JUDGE], torch.from_numpy(context.payload.extras["prototypes"]).float()
    judged, deceived = [], 0.0
    for logit in outputs.logit.values():
        real, made = [], []
        for i in range(20):
            c = i % CLASSES
            if c == 2:
                continue
            kind = torch.eye(CLASSES)[[c]]
            real.append(math.log1p(math.exp(-float(judge(prototypes[[c]], kind)))))
            answer = float(judge(torch.where(logit[[i]] >= 0, 1.0, -1.0), kind))
            made.append((math.log1p(math.exp(answer)), math.log1p(math.exp(-answer))))
        judged.append(np.mean(real) + np.mean([caught for caught, _ in made]))
        deceived += np.mean([passed for _, passed in made])
    assert weight == 0.5
    assert float(value) == pytest.approx(float(np.mean(judged)), rel=1e-4)
    assert float(method.terms(context, batch, outputs)["adversarial"][1]) == pytest.approx(deceived, rel=1e-4)


def test_the_triplet_method_quantizes_already() -> None:
    assert Triplet(TripletParams()).traits.quantizes
    assert not Triplet(TripletParams(quantization_weight=0.0)).traits.quantizes
    assert not DCMH(DCMHParams()).traits.quantizes


@pytest.mark.parametrize(("weighting", "expected"), [("uniform", [1.0, 1.0, 0.0]), ("examples", [20.0, 3.0, 0.0])])
def test_weights_of_a_silo(weighting: str, expected: list[float]) -> None:
    method, context = ready(weighting=weighting)
    found = []
    for count in (20, 3, 0):
        context.data = replace(context.data, has_text=torch.arange(20) < count)
        found.append(method.weight(context, "text"))
    assert found == expected


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_a_silo_sends_means_or_sums_of_its_codes(weighting: str) -> None:
    method, context = ready(weighting=weighting, max_labels=9)
    sums = method.update(context).sums
    outputs = context.model.eval()(context.data.batch(torch.arange(20)))
    codes = sum(torch.tanh(logit).detach() for logit in outputs.logit.values()) / 2
    for c in range(CLASSES):
        own = codes[context.data.labels[:, c] > 0]
        row, count = (own.mean(0), 1) if weighting == "uniform" else (own.sum(0), len(own))
        np.testing.assert_allclose(sums["prototype_sum"][c], row.numpy(), atol=1e-5)
        assert sums["prototype_holders"][c] == count
    assert float(sums["judges"]) == 1.0


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_a_silo_that_releases_no_class_does_not_run_its_model(weighting: str) -> None:
    method, context = ready(weighting=weighting, min_count=21)  # of 20 items
    context.model.register_forward_pre_hook(lambda model, inputs: pytest.fail("the model is run"))
    sums = method.update(context).sums
    assert (sums["prototype_sum"].shape, sums["prototype_holders"].shape) == ((CLASSES, BITS), (CLASSES,))
    assert not sums["prototype_sum"].any()
    assert not sums["prototype_holders"].any()
    assert float(sums["judges"]) == 1.0


def test_the_server_averages_discriminators_and_signs_class_means() -> None:
    method = FedHAP(FedHAPParams(judge_width=4))
    server = fresh_server(method)
    name = next(n for n in server.extras if n.startswith("discriminator/"))
    rows = [np.zeros((CLASSES, BITS)) for _ in range(2)]
    rows[0][1], rows[1][1] = 0.5, -0.2
    updates = [
        Message("update", str(n), 0, params=dict(server.params), weights={"image": 1.0, "text": 1.0},
                sums={"prototype_sum": row, "prototype_holders": (np.arange(CLASSES) == 1).astype(float),
                      name: np.full_like(server.extras[name], 2.0 * n), "judges": np.asarray(1.0)})
        for n, row in enumerate(rows)
    ]  # fmt: skip
    after = method.aggregate(server, updates).extras
    assert after["prototypes"][1].tolist() == [1] * BITS
    assert after["mask"].tolist() == [False, True, *[False] * 4]
    np.testing.assert_allclose(after[name], 1.0)
    plain = method.aggregate(server, [replace(update, sums={}) for update in updates]).extras
    assert not plain["mask"].any()


def test_without_prototypes_or_weight_there_is_no_discriminator() -> None:
    method, context = ready(adversarial_weight=0.0)
    assert context.auxiliary == {}
    assert not any(name.startswith("discriminator") for name in fresh_server(method).extras)
    first = FedHAP(FedHAPParams())
    context = context_of(fresh_server(first))
    first.begin_round(context)
    assert context.auxiliary == {}
    batch = context.data.batch(torch.arange(4))
    assert set(first.terms(context, batch, context.model(batch))) == {"sign"}
    assert first.adapter.auxiliary_step(context, batch, context.model(batch)) == {}


def test_hadamard_prototypes_of_a_given_size() -> None:
    assert hadamard_prototypes(3, 2).tolist() == [[1, 1], [1, -1], [-1, -1]]
    assert hadamard_prototypes(5, 2).tolist() == [[1, 1], [1, -1], [-1, -1], [-1, 1], [0, 0]]
    assert hadamard_prototypes(1, 1).tolist() == [[1]]


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2022, True)
    assert traits_of(FedHAP) == {
        "needs_labels": True,
        "adds": {"weight": {"weighting": "examples"}, "begin_round": {}, "update": {}, "aggregate": {}},
    }


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("triplet_weight", 0, True),
        ("margin", 0.1, True),
        ("quantization_weight", 0, True),
        ("adversarial_weight", 0, True),
        ("judge_width", 2, True),
        ("judge_learning_rate", 0.1, True),
        ("triplet_weight", -0.1, False),
        ("margin", 0, False),
        ("quantization_weight", -0.1, False),
        ("adversarial_weight", -0.1, False),
        ("judge_width", 1, False),
        ("judge_learning_rate", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedHAPParams, name, value) == accepted


def test_silos_without_labels_or_items_send_no_prototypes() -> None:
    method, context = ready()
    whole = context.data
    for data in (replace(whole, labels=None), whole.take(torch.arange(0))):
        context.data = data
        update = method.update(context)
        assert update.sums == {}
        assert update.params
    context.data = whole
    assert "prototype_sum" in method.update(context).sums


def test_logits_of_the_discriminator_against_a_loop() -> None:
    torch.manual_seed(0)
    judge = PairJudge(5, 4)
    codes = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 0.5]])
    classes = torch.tensor([[0, 1], [1, 0]])
    first, _, second = judge.layers
    weights = [tensor.detach().double().numpy() for tensor in (first.weight, first.bias, second.weight, second.bias)]
    expected = []
    for code, kind in zip(codes.double().numpy(), classes.double().numpy(), strict=True):
        hidden = weights[0] @ np.array([*code, *kind]) + weights[1]
        hidden = np.array([value if value > 0 else 0.2 * value for value in hidden])
        expected.append((weights[2] @ hidden + weights[3]).item())
    found = judge(codes, classes)
    assert found.shape == (2,)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5)
