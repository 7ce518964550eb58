"""DLFFH: its terms by hand, the analytic gradient, what the label networks receive, and queries that are pure noise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.base.types import MODALITIES, Outputs, Step
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local.base import SiloState, outputs_of
from silohash.methods.local.losses import label_error
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.methods.local.supervised.dlffh import CARD, DLFFH, DLFFHParams
from silohash.methods.message import Message
from silohash.methods.traits import EpochRules
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.training.engines.port import SiloTask
from silohash.training.silo import make_context, train_silo
from tests.runs import loop_config, model_spec, silo_data
from tests.unit.methods.federated.helpers import accepts, draw
from tests.unit.methods.local.synthetic import BAND, CLASSES, IMAGE_WIDTH, TEXT_WIDTH, Items, figures, synthetic

IMAGE = Step("image", ("image.",), ("image",))
BITS = 8
PRIOR = 0.241
"""Mean average precision of random codes on the synthetic archive."""


def method(**params: object) -> DLFFH:
    return DLFFH(DLFFHParams(**params))


def paper(**params: object) -> DLFFH:
    return method(**{**DLFFH.presets["paper"], **params})


def ready(made: DLFFH, data) -> tuple[torch.nn.Module, SiloState]:
    """Return a model and its state at the start of a phase."""
    torch.manual_seed(0)
    model = made.build(model_spec(), BITS)
    state = SiloState()
    made.init_state(model, data, state)
    return model, state


def test_gradients_of_the_paper_preset_are_the_analytic_ones() -> None:
    """Equations (7) and (8) for all items in one batch."""
    gamma, eta = 0.6, 0.2
    made, data = paper(label_weight=gamma, quantization_weight=eta, balance_weight=eta), silo_data(15)
    _, state = ready(made, data)
    state.buffers = {n: b.double() if b.is_floating_point() else b for n, b in state.buffers.items()}
    codes, branch = draw(15, BITS).requires_grad_(), draw(15, 6, seed=2).requires_grad_()
    outputs = Outputs({}, {"image": codes}, {"image": codes}, extra={"image/labels": branch})
    batch = replace(data.batch(torch.arange(15)), labels=data.labels.double())
    sum(weight * value for weight, value in made.terms(IMAGE, outputs, batch, state).values()).backward()
    with torch.no_grad():
        text, known = state.buffers["text"], data.labels.double()
        alike = ((known @ known.T) > 0).double()
        expected = 0.5 * (torch.sigmoid(0.5 * codes @ text.T) - alike) @ text
        expected += 2 * eta * (codes - state.buffers["code"]) + 2 * eta * codes.sum(0)
        found = torch.sigmoid(branch)
        expected_labels = 2 * gamma * (found - known) * found * (1 - found)
    assert torch.allclose(codes.grad * 15 * 15, expected, atol=1e-10)
    assert torch.allclose(branch.grad * 15 * 15, expected_labels, atol=1e-10)


def test_terms_are_those_of_dcmh_and_means_over_labels() -> None:
    made, data = method(label_weight=0.7, auxiliary_weight=0.3), silo_data(12)
    labels = data.labels.clone()
    labels[4] = 0.0
    data = replace(data, labels=labels)
    model, state = ready(made, data)
    batch = data.batch(torch.arange(3, 9))
    outputs = model(batch, ("image",))
    terms = made.terms(IMAGE, outputs, batch, state)
    plain = DCMH(DCMHParams()).terms(IMAGE, outputs, batch, state)
    for name, (weight, value) in plain.items():
        assert (terms[name][0], terms[name][1].item()) == (weight, value.item())
    assert set(terms) == {*plain, "labels", "auxiliary"}
    errors, losses = [], []
    for place, row in enumerate(range(3, 9)):
        for c in range(6 if row != 4 else 0):
            true = float(labels[row, c])
            chance = torch.sigmoid(outputs.extra["image/labels"][place, c]).item()
            errors.append((chance - true) ** 2)
            chance = torch.sigmoid(outputs.extra["image/auxiliary"][place, c]).item()
            losses.append(-np.log(chance if true else 1 - chance))
    assert terms["labels"][0] == 0.7
    assert terms["labels"][1].item() == pytest.approx(np.mean(errors), rel=1e-5)
    assert terms["auxiliary"][0] == 0.3
    assert terms["auxiliary"][1].item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_items_without_the_modality_have_no_label_terms() -> None:
    made, whole = method(), silo_data(8)
    has_image = torch.arange(8) > 3
    data = replace(whole, has_image=has_image, image=whole.image * has_image.unsqueeze(1))
    model, state = ready(made, data)
    batch = data.batch(torch.arange(2, 8))
    outputs = model(batch, ("image",))
    terms = made.terms(IMAGE, outputs, batch, state)
    expected = label_error(outputs.extra["image/labels"][2:], data.labels[4:]).mean()
    assert terms["labels"][1].item() == pytest.approx(expected.item())
    assert made.terms(IMAGE, outputs, replace(batch, has_image=torch.zeros(6, dtype=torch.bool)), state) == {}


@pytest.mark.parametrize(
    ("params", "parts"),
    [
        ({}, {"labels", "auxiliary", "branch"}),
        ({"labels": "db-labels"}, {"labels", "auxiliary", "branch"}),
        ({"labels": "oracle-labels"}, {"labels", "branch"}),
        ({"labels": "no-label-net"}, {"branch"}),
        ({"label_weight": 0.0}, {"labels", "auxiliary"}),
    ],
)
def test_parts_of_a_tower_and_its_terms(params: dict[str, object], parts: set[str]) -> None:
    made, data = method(**params), silo_data(6)
    model, state = ready(made, data)
    names = {name.split(".")[1] for name, _ in model.named_parameters()}
    assert names == {"backbone", "hash", *parts}
    width = model.tower("image").hash.in_features
    assert width == (32 if "labels" in parts else 16)
    batch = data.batch(torch.arange(6))
    terms = made.terms(IMAGE, model(batch, ("image",)), batch, state)
    assert ("labels" in terms, "auxiliary" in terms) == ("branch" in parts, "auxiliary" in parts)


def received(made: DLFFH, *, training: bool, labels: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the label network of images receives, and the labels that are predicted."""
    torch.manual_seed(0)
    model = made.build(model_spec(), BITS).train(training)
    tower, feature = model.tower("image"), draw(400, 16).float()
    found = model.label_input(tower, feature, labels)
    head = tower.get_submodule("auxiliary") if hasattr(tower, "auxiliary") else lambda values: values[:, :6]
    return found, torch.sigmoid(head(feature))


def is_true(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (found == labels).all(1)


def some_labels() -> torch.Tensor:
    """Return the labels of 400 items, of which every fourth has none."""
    labels = (draw(400, 6, seed=3) > 0.5).float()
    labels[:, 0] = 1.0
    labels[::4] = 0.0
    return labels


@pytest.mark.parametrize("kind", ["label-free", "db-labels"])
@pytest.mark.parametrize("sampling", [0.0, 0.3, 1.0])
def test_training_replaces_some_labels_by_predictions(kind: str, sampling: float) -> None:
    labels = some_labels()
    found, predicted = received(method(labels=kind, sampling=sampling), training=True, labels=labels)
    true = is_true(found, labels)
    assert torch.equal(found[~true], predicted[~true])
    assert not true[::4].any()
    assert float(true[torch.arange(400) % 4 > 0].float().mean()) == pytest.approx(1 - sampling, abs=0.08)
    assert not found.requires_grad


def test_labels_that_the_networks_receive_in_encoding() -> None:
    labels = some_labels()
    for kind, expected in (("label-free", 0), ("db-labels", 300), ("oracle-labels", 400)):
        found, predicted = received(method(labels=kind), training=False, labels=labels)
        true = is_true(found, labels)
        assert int(true.sum()) == expected
        assert torch.equal(found[~true], predicted[~true])
    for kind in ("label-free", "db-labels"):
        found, predicted = received(method(labels=kind), training=False, labels=None)
        assert torch.equal(found, predicted)
    with pytest.raises(AssertionError):
        received(method(labels="oracle-labels"), training=False, labels=None)


def test_label_sides_of_each_input() -> None:
    expected = {
        "label-free": (), "no-label-net": (), "db-labels": ("database",), "oracle-labels": ("query", "database"),
    }  # fmt: skip
    assert {kind: method(labels=kind).traits.label_sides for kind in expected} == expected
    assert DCMH(DCMHParams()).traits.label_sides == ()


def test_encoding_without_labels_computes_no_label_heads() -> None:
    made, data = method(), silo_data(5)
    model, _ = ready(made, data)
    batch = data.batch(torch.arange(5))
    model.eval()
    outputs = model(replace(batch, labels=None))
    assert outputs.extra == {}
    assert torch.equal(outputs.code["text"], model(batch).code["text"])


def trained(made: DLFFH) -> torch.nn.Module:
    """Return the model of a method after 20 epochs on the synthetic archive."""
    towers = {
        "image": TowerSpec("mlp", (IMAGE_WIDTH,), hidden=256), "text": TowerSpec("mlp", (TEXT_WIDTH,), hidden=256),
    }  # fmt: skip
    with seeds.torch_globally(0, "weights"):
        model = made.build(ModelSpec(towers, classes=CLASSES), 16)
    config = loop_config(epochs=20, rounds=1, batch=128, learning_rate=1e-3)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
    train_silo(
        make_context(task, config, model=model, local=made, data=synthetic().train.silo()),
        FederatedMethod(None),
        config,
    )
    return model


@cache
def model_with(kind: str) -> torch.nn.Module:
    """Return a trained model whose losses are plain means over pairs, as in the reference figures."""
    return trained(method(labels=kind, similarity="any", class_balance=False))


def measured(kind: str, query: Items) -> tuple[float, float]:
    """Return the figures of a model for some queries, of which only the declared sides show their labels."""
    sides = method(labels=kind).traits.label_sides
    parts = []
    for side, items in (("query", query), ("database", synthetic().database)):
        data = items.silo()
        parts.append(outputs_of(model_with(kind), data if side in sides else replace(data, labels=None)))
    return figures(*parts)


def noise() -> Items:
    """Return queries whose pictures and texts are noise, with the labels of the archive's queries."""
    query, generator = synthetic().query, np.random.default_rng(1)
    share = query.text.mean()
    return replace(
        query, image=generator.normal(size=query.image.shape).astype(np.float32),
        text=(generator.random(query.text.shape) < share).astype(np.float32),
    )  # fmt: skip


@pytest.mark.whole_run
def test_figures_of_the_label_free_form_are_the_reference() -> None:
    image, text = measured("label-free", synthetic().query)
    assert image == pytest.approx(0.705, abs=BAND)
    assert text == pytest.approx(0.706, abs=BAND)


@pytest.mark.whole_run
def test_noise_finds_nothing_unless_its_labels_are_given() -> None:
    assert measured("label-free", noise()) == pytest.approx((PRIOR, PRIOR), abs=BAND)
    assert min(measured("oracle-labels", noise())) > 0.8


def test_presets_and_card() -> None:
    params = DLFFHParams()
    assert (params.labels, params.label_weight, params.auxiliary_weight, params.sampling) == ("label-free", 1, 1, 0.5)
    assert (params.quantization_weight, params.balance_weight) == (0.1, 0.1)
    assert DLFFHParams(**DLFFH.presets["recommended"]) == params
    assert DLFFH.presets["paper"] == {
        "labels": "oracle-labels", "label_weight": 1.0, "quantization_weight": 0.1, "balance_weight": 0.1,
        "similarity": "any", "class_balance": False, "normalization": "paper", "pair_weight": 0.0,
        "independent_batches": True, "anchors": 1_000_000,
    }  # fmt: skip
    assert (CARD.year, CARD.supervised, CARD.needs_label_at_query) == (2022, True, False)
    assert "oracle" in CARD.differs_from_paper[0]
    assert CARD.title == "Deep Label Feature Fusion Hashing for Cross-Modal Retrieval"


def test_batches_of_the_paper_preset_are_drawn_from_all_items() -> None:
    """Algorithm 1 selects the items of each batch at random."""
    assert paper().traits.epochs == EpochRules(independent_batches=True)
    assert method().traits.epochs == EpochRules()


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("label_weight", 0, True),
        ("label_weight", -0.1, False),
        ("auxiliary_weight", 0, True),
        ("auxiliary_weight", -0.1, False),
        ("quantization_weight", -0.1, False),
        ("balance_weight", -0.1, False),
        ("sampling", 0, True),
        ("sampling", 1, True),
        ("sampling", -0.1, False),
        ("sampling", 1.1, False),
        ("labels", "true", False),
    ],
)
def test_bounds_of_parameters(name: str, value: object, accepted: bool) -> None:
    assert accepts(DLFFHParams, name, value) == accepted


def test_each_modality_has_its_own_label_network() -> None:
    model = method().build(model_spec(), BITS)
    first, second = (model.tower(modality).get_submodule("labels") for modality in MODALITIES)
    assert not set(first.parameters()) & set(second.parameters())
