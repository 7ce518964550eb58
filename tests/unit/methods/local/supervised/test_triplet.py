"""Triplets: every formula against explicit loops, pairs of modalities, and edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Outputs, PairBatch, Step
from silohash.methods.local.supervised.triplet import CARD, Triplet, TripletParams, pairwise_distances, triplet_loss
from tests.runs import model_spec, silo_data
from tests.unit.methods.federated.helpers import BITS, accepts, draw, hot


def test_triplets_are_those_of_a_triple_loop() -> None:
    distances, labels = draw(5, 6).abs(), hot(5, 6)
    near, far = labels > 0, labels == 0
    gaps = [
        float(distances[i, p] - distances[i, n]) + 0.3
        for i in range(5) for p in range(6) for n in range(6) if near[i, p] and far[i, n]
    ]  # fmt: skip
    violated = [gap for gap in gaps if gap > 0]
    assert float(triplet_loss(distances, near, far, 0.3)) == pytest.approx(sum(violated) / len(violated))
    assert float(triplet_loss(distances, near, torch.zeros_like(far), 0.3)) == 0.0


def test_presets() -> None:
    assert Triplet.presets == {"recommended": {}, "paper": {}}
    params = TripletParams()
    assert (params.margin, params.distance, params.quantization_weight) == (0.5, "cosine", 0.05)


@pytest.mark.parametrize("kind", ["cosine", "euclidean"])
def test_distances_are_those_of_a_double_loop(kind: str) -> None:
    codes, others = draw(4, 8, seed=1), draw(5, 8, seed=2)
    found = pairwise_distances(codes, others, kind)
    for i in range(4):
        for j in range(5):
            if kind == "cosine":
                expected = 1 - float(codes[i] @ others[j] / codes[i].norm() / others[j].norm())
            else:
                expected = math.sqrt(
                    sum((float(codes[i, k]) - float(others[j, k])) ** 2 for k in range(8))
                ) / math.sqrt(32)
            assert float(found[i, j]) == pytest.approx(expected)
    opposite = torch.ones(1, 8)
    assert float(pairwise_distances(opposite, -opposite, "euclidean")) == pytest.approx(1.0)


def test_a_triplet_at_the_margin_is_not_violated() -> None:
    near, far = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    assert float(triplet_loss(torch.tensor([[0.25, 0.5]]), near, far, 0.25)) == 0.0
    assert float(triplet_loss(torch.tensor([[0.5, 0.5]]), near, far, 0.25)) == 0.25


def terms_of(method: Triplet, codes: dict[str, torch.Tensor], batch: PairBatch) -> dict[str, tuple[float, float]]:
    outputs = Outputs(feature={}, logit={}, code=codes)
    found = method.terms(Step("joint", (), tuple(codes)), outputs, batch, None)
    return {name: (weight, float(value)) for name, (weight, value) in found.items()}


def test_the_loss_is_averaged_over_ordered_pairs_of_modalities() -> None:
    method, data = Triplet(TripletParams(quantization_weight=0.3)), silo_data(8)
    has_text = torch.arange(8) != 3
    batch = replace(data, has_text=has_text).batch(torch.arange(8))
    codes = {"image": torch.tanh(draw(8, BITS, seed=1)), "text": torch.tanh(draw(8, BITS, seed=2))}
    has = {"image": torch.ones(8, dtype=torch.bool), "text": has_text}
    losses = []
    for m in codes:
        for n in codes:
            gaps = []
            for i in range(8):
                for p in range(8):
                    for q in range(8):
                        if not (has[m][i] and has[n][p] and has[n][q]) or (m == n and i == p):
                            continue
                        similar = float(batch.labels[i] @ batch.labels[p]) > 0
                        if similar and not float(batch.labels[i] @ batch.labels[q]) > 0:
                            near = torch.cosine_similarity(codes[m][i], codes[n][p], dim=0)
                            far = torch.cosine_similarity(codes[m][i], codes[n][q], dim=0)
                            gaps.append(float(far - near) + 0.5)
            violated = [gap for gap in gaps if gap > 0]
            losses.append(sum(violated) / len(violated))
    signs = {m: torch.where(values >= 0, 1.0, -1.0) for m, values in codes.items()}
    drift = np.mean([float((codes[m] - signs[m])[has[m]].square().mean()) for m in codes])
    found = terms_of(method, codes, batch)
    assert found["triplet"] == (1.0, pytest.approx(float(np.mean(losses))))
    assert found["quantization"][0] == 0.3
    assert found["quantization"][1] == pytest.approx(float(drift), rel=1e-2)


def test_a_batch_without_any_modality_has_no_terms() -> None:
    none = torch.zeros(3, dtype=torch.bool)
    batch = replace(silo_data(3), has_image=none, has_text=none).batch(torch.arange(3))
    assert terms_of(Triplet(TripletParams()), {"image": torch.ones(3, BITS)}, batch) == {}


def test_a_collapse_is_the_loss_at_the_margin() -> None:
    method = Triplet(TripletParams(margin=0.4))
    assert "collapsed" in method.warnings({"triplet": 0.4})[0]
    assert method.warnings({"triplet": 0.4002}) == []
    assert method.warnings({"triplet": 0.3998}) == []
    assert method.warnings({}) == []


def test_towers_end_in_a_tanh_and_are_trained_together() -> None:
    method = Triplet(TripletParams())
    model = method.build(model_spec(), BITS)
    outputs = model(silo_data(4).batch(torch.arange(4)))
    torch.testing.assert_close(outputs.code["text"], torch.tanh(outputs.logit["text"]))
    (step,) = method.steps(model)
    assert (step.parameters, step.modalities) == (("image.", "text."), ("image", "text"))


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised, Triplet.traits.needs_labels) == (2015, True, True)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("margin", 0.1, True),
        ("margin", 0, False),
        ("quantization_weight", 0, True),
        ("quantization_weight", -0.1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(TripletParams, name, value) == accepted
