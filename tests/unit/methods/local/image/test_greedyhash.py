"""GreedyHash: the straight-through gradient, its losses against explicit loops in float64, the classifier's parameters."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.local.base import class_group
from silohash.methods.local.image.greedyhash import (
    CARD,
    GreedyHash,
    GreedyHashParams,
    class_targets,
    cubic_gap,
)
from silohash.methods.local.label_networks import CLASS_VECTORS
from silohash.methods.local.losses import target_entropy
from tests.runs import silo_data
from tests.unit.methods.federated.helpers import accepts, draw
from tests.unit.methods.local.image.helpers import BITS, image_precision, outputs_with, ready, without_labels
from tests.unit.methods.local.synthetic import BAND


def test_targets_of_items_with_several_labels_and_without() -> None:
    labels = torch.tensor([[0.0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]])
    assert class_targets(labels, "all").tolist() == [[0, 0.5, 0, 0.5], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert class_targets(labels, "first").tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_classification_loss_equals_loops_over_items_with_a_label() -> None:
    codes, weights = draw(4, BITS).sign(), draw(3, BITS, seed=1)
    targets = torch.tensor([[0.5, 0.5, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]).double()
    loss = 0.0
    for i in range(4):
        logits = [sum(float(codes[i, k] * weights[c, k]) for k in range(BITS)) for c in range(3)]
        norm = math.log(sum(math.exp(logit) for logit in logits))
        loss -= sum(float(targets[i, c]) * (logits[c] - norm) for c in range(3))
    assert float(target_entropy(codes @ weights.T, targets)) == pytest.approx(loss / 3)
    assert float(target_entropy(codes @ weights.T, torch.zeros(4, 3))) == 0.0


def test_cubic_gap_equals_loops() -> None:
    values = draw(4, BITS)
    found = cubic_gap(values)
    for i in range(4):
        for k in range(BITS):
            assert float(found[i, k]) == pytest.approx(abs(abs(float(values[i, k])) - 1) ** 3)


@pytest.mark.parametrize("kind", ["all", "first"])
def test_terms_are_means_over_the_modalities(kind: Literal["all", "first"]) -> None:
    params = GreedyHashParams(targets=kind)
    method, data = GreedyHash(params), without_labels(8, 2)
    model, state = ready(method, data)
    codes = {"image": draw(8, BITS), "text": draw(8, BITS, seed=1)}
    classifier, batch = draw(6, BITS, seed=2), data.batch(torch.arange(8))
    targets = class_targets(data.labels.double(), params.targets)
    terms = method.terms(
        method.steps(model)[0], Outputs({}, {}, codes, extra={CLASS_VECTORS: classifier}), batch, state
    )
    losses = [target_entropy(value.sign() @ classifier.T, targets) for value in codes.values()]
    gaps = [(value.abs() - 1).abs().pow(3).mean() for value in codes.values()]
    assert terms["classification"][0] == 1.0
    assert float(terms["classification"][1]) == pytest.approx(float(sum(losses)) / 2)
    assert terms["quantization"][0] == 0.1
    assert float(terms["quantization"][1]) == pytest.approx(float(sum(gaps)) / 2)


def test_items_without_a_picture_are_left_out() -> None:
    whole, has_image = silo_data(6), torch.arange(6) > 1
    data = replace(whole, has_image=has_image)
    method = GreedyHash(GreedyHashParams())
    model, state = ready(method, data)
    step, codes, classifier = method.steps(model)[0], draw(6, BITS).float(), draw(6, BITS, seed=2).float()
    terms = method.terms(step, outputs_with(codes, class_vectors=classifier), data.batch(torch.arange(6)), state)
    expected = target_entropy(codes[2:].sign() @ classifier.T, class_targets(data.labels[2:], "all"))
    assert float(terms["classification"][1]) == pytest.approx(float(expected), rel=1e-5)
    assert float(terms["quantization"][1]) == pytest.approx(float(cubic_gap(codes[2:]).mean()), rel=1e-5)
    nothing = outputs_with(codes[:2], class_vectors=classifier)
    assert method.terms(step, nothing, data.batch(torch.arange(2)), state) == {}


def test_the_classifier_is_one_parameter_per_class_and_runs_in_training_only() -> None:
    method, data = GreedyHash(GreedyHashParams()), silo_data(4)
    model, _ = ready(method, data)
    names = [name for name, _ in model.named_parameters() if name.startswith("class")]
    assert names == [class_group(number) for number in range(6)]
    batch = data.batch(torch.arange(4))
    outputs = model(batch)
    rows = torch.stack([model.get_parameter(name) for name in names])
    assert torch.equal(outputs.extra[CLASS_VECTORS], rows)
    assert rows.abs().max() <= BITS**-0.5
    assert rows.std() > 0.1
    assert not model(replace(batch, labels=None)).extra
    (step,) = method.steps(model)
    assert step.parameters == ("image.", "text.", *names)


def test_gradients_reach_the_tower_and_the_classes() -> None:
    method, data = GreedyHash(GreedyHashParams(quantization_weight=0.0)), silo_data(8)
    model, state = ready(method, data)
    (step,) = method.steps(model)
    batch = data.batch(torch.arange(8))
    method.terms(step, model(batch), batch, state)["classification"][1].backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())


@pytest.mark.parametrize(("value", "accepted"), [(0, True), (-0.1, False)])
def test_bounds_of_parameters(value: float, accepted: bool) -> None:
    assert accepts(GreedyHashParams, "quantization_weight", value) == accepted


def test_defaults_and_presets() -> None:
    assert GreedyHashParams().model_dump() == {"quantization_weight": 0.1, "targets": "all"}
    assert GreedyHash.presets == {"recommended": {}, "paper": {}}
    assert (CARD.key, CARD.year, CARD.supervised, GreedyHash.traits.needs_labels) == ("greedyhash", 2018, True, True)


@pytest.mark.whole_run
def test_synthetic_archive() -> None:
    assert image_precision("greedyhash", 24, epochs=10) == pytest.approx(0.61, abs=BAND)
