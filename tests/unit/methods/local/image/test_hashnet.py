"""HashNet: its loss against explicit loops in float64, the growing steepness, its edges."""

from __future__ import annotations

import math

import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.local.image.hashnet import CARD, HashNetMethod, HashNetParams, sharpness
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
    without_labels,
)
from tests.unit.methods.local.synthetic import BAND


@pytest.mark.parametrize(
    ("epochs", "stage", "squared"), [(0, 1, 1.0), (1, 1, 1.2), (7, 1, 2.4), (4, 5, 1.0), (5, 5, 2.0), (14, 5, 3.0)]
)
def test_squared_steepness_grows_by_a_constant_per_epoch(epochs: int, stage: int, squared: float) -> None:
    assert sharpness(epochs, growth=0.2, stage=stage) ** 2 == pytest.approx(squared)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("epochs", [0, 6])
def test_likelihood_equals_loops_over_pairs_of_different_items(balanced: bool, epochs: int) -> None:
    method = HashNetMethod(HashNetParams(scale=7.0, growth=0.5, class_balance=balanced))
    data = without_labels(9, 4)
    _, state = ready(method, data)
    double(state)
    state.epochs = epochs
    values, share, loss = draw(9, BITS), float(state.buffers["share"]), 0.0
    codes = torch.tanh(math.sqrt(1 + 0.5 * epochs) * values)
    for i in range(9):
        for j in range(9):
            theta = 7.0 / BITS * sum(float(codes[i, k] * codes[j, k]) for k in range(BITS))
            alike = float((data.labels[i] * data.labels[j]).sum() > 0)
            weight = (1 / share if alike else 1 / (1 - share)) if balanced else 1.0
            loss += (i != j) * weight * (math.log1p(math.exp(theta)) - alike * theta)
    terms = method.terms(IMAGE, outputs_with(values), data.batch(torch.arange(9)), state)
    assert set(terms) == {"likelihood"}
    assert terms["likelihood"][0] == 1.0
    assert float(terms["likelihood"][1]) == pytest.approx(loss / 72, rel=1e-6)


def test_stages_of_the_paper_preset() -> None:
    method, data = HashNetMethod(HashNetParams(**HashNetMethod.presets["paper"])), silo_data(6)
    _, state = ready(method, data)
    values, batch = draw(6, BITS).float(), data.batch(torch.arange(6))
    losses = []
    for epochs in (0, 4, 5):
        state.epochs = epochs
        losses.append(float(method.terms(IMAGE, outputs_with(values), batch, state)["likelihood"][1]))
    assert losses[0] == losses[1] != losses[2]


def test_each_modality_trains_alone() -> None:
    method, data = HashNetMethod(HashNetParams()), silo_data(6)
    model, state = ready(method, data)
    assert model.relaxation == "identity"
    assert [step.name for step in method.steps(model)] == ["image", "text"]
    values, batch = draw(6, BITS).float(), data.batch(torch.arange(6))
    of_texts = method.terms(TEXT, Outputs({}, {}, {"text": values}), batch, state)
    of_images = method.terms(IMAGE, outputs_with(values), batch, state)
    assert float(of_texts["likelihood"][1]) == float(of_images["likelihood"][1])


def test_one_item_has_no_pairs() -> None:
    method, data = HashNetMethod(HashNetParams()), silo_data(6)
    _, state = ready(method, data)
    values = draw(1, BITS).float()
    terms = method.terms(IMAGE, outputs_with(values), data.batch(torch.tensor([2])), state)
    assert float(terms["likelihood"][1]) == 0.0


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("scale", 0.1, True),
        ("scale", 0, False),
        ("growth", 0, True),
        ("growth", -0.1, False),
        ("stage_epochs", 1, True),
        ("stage_epochs", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(HashNetParams, name, value) == accepted


def test_defaults_and_presets() -> None:
    assert HashNetParams().model_dump() == {"scale": 10.0, "growth": 0.2, "stage_epochs": 1, "class_balance": True}
    assert HashNetMethod.presets == {"recommended": {}, "paper": {"stage_epochs": 5}}
    assert HashNetParams.without_effect == {"stage_epochs": {"growth": (0.0,)}}
    assert (CARD.key, CARD.year, CARD.supervised, HashNetMethod.traits.needs_labels) == ("hashnet", 2017, True, True)


@pytest.mark.whole_run
def test_synthetic_archive() -> None:
    assert image_precision("hashnet", 24, epochs=10) == pytest.approx(0.65, abs=BAND)
