"""DSPH: each formula against explicit loops in float64, and the terms of a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from silohash.base.types import Outputs
from silohash.methods.local.label_networks import CLASS_VECTORS
from silohash.methods.local.losses import cosines, mean_where
from silohash.methods.local.supervised.dsph import (
    CARD,
    DSPH,
    DSPHParams,
    attraction,
    code_distance,
    modality_pairs,
    repulsion,
    separation_margin,
    unrelated_pairs,
)
from silohash.testing.inputs import Held, silo_data
from tests.unit.methods.federated.helpers import accepts, draw, hot
from tests.unit.methods.local.helpers import ready


def cosine(one: Tensor, other: Tensor) -> float:
    return (one @ other / (one.norm() * other.norm())).item()


def loops(codes: Tensor, proxies: Tensor, labels: Tensor, margin: float) -> tuple[float, float]:
    """Return the attraction and the repulsion, pair by pair."""
    near, far = [], []
    for i in range(len(codes)):
        for c in range(len(proxies)):
            g = cosine(codes[i], proxies[c])
            if labels[i, c]:
                near.append(1 - g)
            else:
                far.append(max(0.0, g - margin))
    return float(np.mean(near)), float(np.mean(far))


@pytest.mark.parametrize("margin", [-0.3, 0.0, 0.4])
def test_proxy_losses_against_loops(margin: float) -> None:
    codes, proxies, labels = draw(7, 6), draw(4, 6, seed=1), hot(7, 4)
    labels[2] = 0  # an item without labels is pushed away from all proxies
    near, far = loops(codes, proxies, labels, margin)
    alike = cosines(codes, proxies)
    assert float(attraction(alike, labels)) == pytest.approx(near)
    assert float(repulsion(alike, labels, margin)) == pytest.approx(far)


def test_without_classes_or_other_classes_the_losses_are_0() -> None:
    alike = cosines(draw(3, 6), draw(4, 6, seed=1))
    assert float(attraction(alike, torch.zeros_like(alike))) == 0.0
    assert float(repulsion(alike, torch.ones_like(alike), -1.0)) == 0.0


@pytest.mark.parametrize("margin", [-0.2, 0.1])
def test_unrelated_pairs_against_loops(margin: float) -> None:
    codes, others, labels, more = draw(9, 4), draw(8, 4, seed=1), hot(9, 6), hot(8, 6, seed=2)
    labels[0], more[3] = 0, 0
    labels[1, 1:] = 0
    labels[1, 0] = 1
    losses = [
        max(0.0, cosine(codes[i], others[j]) - margin)
        for i in range(9)
        for j in range(8)
        if labels[i].sum() > 1 and more[j].sum() > 1 and not (labels[i] * more[j]).sum()
    ]
    assert losses
    assert float(unrelated_pairs(cosines(codes, others), labels, more, margin)) == pytest.approx(np.mean(losses))
    single = torch.eye(6, dtype=torch.float64)[torch.arange(9) % 6]
    assert float(unrelated_pairs(cosines(codes, others), single, more, margin)) == 0.0


def test_cosines_and_masked_means_by_hand() -> None:
    found = cosines(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, -2.0]]))
    assert found.tolist() == [[pytest.approx(0.6), pytest.approx(-0.8)], [0.0, 0.0]]
    values = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert float(mean_where(values, torch.tensor([[0.0, 1.0], [0.0, 1.0]]))) == 3.5
    assert float(mean_where(values, torch.zeros(2, 2))) == 0.0


def test_pairs_of_modalities() -> None:
    one = torch.zeros(1, 1)
    assert modality_pairs({"text": one}) == [("text", "text")]
    assert modality_pairs({"image": one, "text": one}) == [("image", "image"), ("image", "text"), ("text", "text")]


@pytest.mark.parametrize("margin", [None, 0.2])
def test_terms_of_a_batch_are_sums_over_modalities_and_their_pairs(margin: float | None) -> None:
    method = DSPH(DSPHParams(margin=margin, pair_weight=0.7))
    data = replace(silo_data(14), has_text=torch.arange(14) % 4 > 0)
    model, state = ready(method, data, bits=12)
    batch = data.batch(torch.arange(14))
    terms = method.terms(method.steps(model)[0], outputs := model(batch), batch, state)
    assert {name: weight for name, (weight, _) in terms.items()} == {
        "attraction": 1.0, "repulsion": 1.0, "unrelated": 0.7,
    }  # fmt: skip
    zeta = separation_margin(6, 12) if margin is None else margin
    assert separation_margin(6, 12) == 0.0
    image, text = outputs.code["image"], outputs.code["text"][batch.has_text]
    labels, fewer = batch.labels, batch.labels[batch.has_text]
    each = [
        loops(image, outputs.extra[CLASS_VECTORS], labels, zeta),
        loops(text, outputs.extra[CLASS_VECTORS], fewer, zeta),
    ]
    assert float(terms["attraction"][1]) == pytest.approx(each[0][0] + each[1][0], rel=1e-5)
    assert float(terms["repulsion"][1]) == pytest.approx(each[0][1] + each[1][1], rel=1e-5)
    pairs = [
        unrelated_pairs(cosines(one, other), of_one, of_other, zeta)
        for one, other, of_one, of_other in (
            (image, image, labels, labels), (image, text, labels, fewer), (text, text, fewer, fewer),
        )
    ]  # fmt: skip
    assert float(terms["unrelated"][1]) == pytest.approx(float(sum(pairs)), rel=1e-5)
    assert float(terms["unrelated"][1]) > 0


def test_one_modality_is_compared_with_itself() -> None:
    method, data = DSPH(DSPHParams()), silo_data(10, held=Held(text=False))
    model, state = ready(method, data)
    batch = data.batch(torch.arange(10))
    terms = method.terms(method.steps(model)[0], outputs := model(batch), batch, state)
    code = outputs.code["image"]
    expected = unrelated_pairs(cosines(code, code), batch.labels, batch.labels, separation_margin(6, 16))
    assert float(terms["unrelated"][1]) == pytest.approx(float(expected))


def test_a_batch_without_the_modality_has_no_terms_and_weight_0_drops_the_pairs() -> None:
    method, data = DSPH(DSPHParams(pair_weight=0)), silo_data(6)
    model, state = ready(method, data)
    batch = data.batch(torch.arange(6))
    step = method.steps(model)[0]
    assert set(method.terms(step, model(batch), batch, state)) == {"attraction", "repulsion"}
    nothing = torch.zeros(6, dtype=torch.bool)
    absent = replace(batch, has_image=nothing, has_text=nothing)
    assert method.terms(step, Outputs({}, {}, model(batch).code), absent, state) == {}


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("margin", -1, True),
        ("margin", 1, True),
        ("margin", -1.1, False),
        ("margin", 1.1, False),
        ("pair_weight", 0, True),
        ("pair_weight", -0.1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(DSPHParams, name, value) == accepted


def test_card_and_defaults() -> None:
    assert (CARD.year, CARD.supervised, DSPH.traits.needs_labels) == (2024, True, True)
    assert DSPHParams(**DSPH.presets["paper"]) == DSPHParams(margin=None, pair_weight=0.8)
    assert DSPH(DSPHParams()).warnings({}) == []


LISTED = [
    (12, 21, 1 / 3), (12, 24, 1 / 3), (12, 80, 1 / 3), (16, 21, 0.0), (16, 24, 0.0), (16, 80, 0.25), (24, 80, 1 / 6),
    (32, 80, 0.125), (48, 80, 1 / 12), (64, 21, 0.0), (64, 24, 0.0), (64, 80, 0.0),
]  # fmt: skip
"""Code length, number of classes, and the margin that the literature uses."""


@pytest.mark.parametrize(("bits", "classes", "margin"), LISTED)
def test_margins_of_the_literature(bits: int, classes: int, margin: float) -> None:
    assert separation_margin(classes, bits) == pytest.approx(margin, abs=1e-12)


@pytest.mark.parametrize(
    ("codes", "bits", "distance"),
    [(1, 8, 8), (2, 7, 6), (3, 6, 4), (4, 6, 4), (5, 7, 4), (8, 7, 4), (9, 7, 2), (16, 8, 4), (80, 6, 0), (2, 1, 0)],
)  # fmt: skip
def test_distances_by_hand(codes: int, bits: int, distance: int) -> None:
    assert code_distance(codes, bits) == distance


def test_margins_of_two_classes_and_of_too_many() -> None:
    assert separation_margin(2, 16) == -1.0
    assert separation_margin(60, 4) == 1.0
