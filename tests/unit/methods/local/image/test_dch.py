"""DCH: its losses against explicit loops in float64, its edges and its presets."""

from __future__ import annotations

import math

import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.local.image.dch import CARD, DCH, DCHParams, cauchy_loss, cauchy_quantization, distances, weights
from tests.runs import silo_data
from tests.unit.methods.federated.helpers import accepts, draw, hot
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


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of two vectors, with loops."""
    product = sum(float(a * b) for a, b in zip(one, other, strict=True))
    return product / math.sqrt(sum(float(a * a) for a in one)) / math.sqrt(sum(float(b * b) for b in other))


def test_distances_equal_loops() -> None:
    codes, others = draw(5, BITS).tanh(), draw(7, BITS, seed=1).tanh()
    by_cosine, squared = distances(codes, others, "cosine"), distances(codes, others, "euclidean")
    for i in range(5):
        for j in range(7):
            assert float(by_cosine[i, j]) == pytest.approx(BITS / 2 * (1.01 - cosine(codes[i], others[j])))
            assert float(squared[i, j]) == pytest.approx(float((codes[i] - others[j]).square().sum()) + 0.001)


def test_distances_of_binary_codes_are_about_hamming_distances() -> None:
    codes = torch.ones(2, BITS, dtype=torch.float64)
    codes[1, :3] = -1
    assert distances(codes, codes, "cosine")[0].tolist() == pytest.approx([0.04, 3.04])
    assert distances(codes, codes, "euclidean")[0].tolist() == pytest.approx([0.001, 12.001])


def test_cauchy_loss_equals_loops_and_is_finite_where_codes_are_equal() -> None:
    distance, similar, scale = draw(5, 6).abs() + 0.1, hot(5, 6), 3.0
    found = cauchy_loss(distance, similar, scale)
    for i in range(5):
        for j in range(6):
            d = float(distance[i, j])
            expected = float(similar[i, j]) * math.log(d / scale) + math.log(1 + scale / d)
            assert float(found[i, j]) == pytest.approx(expected)
    equal = torch.ones(2, BITS, requires_grad=True)
    loss = cauchy_loss(distances(equal, equal, "cosine"), torch.zeros(2, 2), scale)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(equal.grad).all()


def test_cauchy_quantization_equals_loops_and_is_0_for_binary_codes() -> None:
    codes = draw(5, BITS).tanh()
    found = cauchy_quantization(codes, 3.0)
    for i in range(5):
        distance = BITS / 2 * (1 - cosine(codes[i].abs(), torch.ones(BITS)))
        assert float(found[i]) == pytest.approx(math.log(1 + distance / 3.0))
    assert cauchy_quantization(codes.sign(), 3.0).tolist() == pytest.approx([0.0] * 5, abs=1e-12)


def test_weights_are_inverse_shares_of_each_kind_of_pair() -> None:
    similar = torch.tensor([[1.0, 0.0]])
    assert weights(similar, 0.2, "both").tolist() == [pytest.approx([5.0, 1.25])]
    assert weights(similar, 0.2, "similar").tolist() == [pytest.approx([5.0, 1.0])]


def pair_loss(codes: torch.Tensor, labels: torch.Tensor, share: float, params: DCHParams) -> float:
    """Return the weighted loss of two items, with loops."""
    alike, scale = float((labels[0] * labels[1]).sum() > 0), params.radius * BITS
    if params.distance == "euclidean":
        distance = float((codes[0] - codes[1]).square().sum()) + 0.001
    else:
        distance = BITS / 2 * (1.01 - cosine(codes[0], codes[1]))
    unlike = 1 / (1 - share) if params.weighting == "both" else 1.0
    weight = 1 / share if alike else unlike
    return weight * (alike * math.log(distance / scale) + math.log(1 + scale / distance))


@pytest.mark.parametrize("preset", ["recommended", "paper", "authors_code"])
def test_terms_equal_loops_over_pairs_of_different_items(preset: str) -> None:
    params = DCHParams(**DCH.presets[preset])
    method, data = DCH(params), without_labels(9, 4)
    _, state = ready(method, data)
    double(state)
    codes, share = draw(9, BITS).tanh(), float(state.buffers["share"])
    pairs = [[i, j] for i in range(9) for j in range(9) if i != j]
    expected = sum(pair_loss(codes[pair], data.labels[pair], share, params) for pair in pairs) / 72
    terms = method.terms(IMAGE, outputs_with(codes), data.batch(torch.arange(9)), state)
    assert terms["cauchy"][0] == 1.0
    assert float(terms["cauchy"][1]) == pytest.approx(expected, rel=1e-6)
    assert ("quantization" in terms) == (preset != "authors_code")


@pytest.mark.parametrize("radius", [0.4, 0.5])
def test_quantization_has_the_scale_of_the_pairs(radius: float) -> None:
    method, data = DCH(DCHParams(radius=radius)), silo_data(6)
    _, state = ready(method, data)
    codes = draw(6, BITS).tanh().float()
    weight, value = method.terms(IMAGE, outputs_with(codes), data.batch(torch.arange(6)), state)["quantization"]
    assert weight == 0.1
    assert float(value) == pytest.approx(float(cauchy_quantization(codes, radius * BITS).mean()), rel=1e-5)


def test_squared_quantization_is_the_mean_over_bits() -> None:
    method, data = DCH(DCHParams(quantization="squared", quantization_weight=0.3)), silo_data(6)
    _, state = ready(method, data)
    codes = draw(6, BITS).tanh().float()
    weight, value = method.terms(IMAGE, outputs_with(codes), data.batch(torch.arange(6)), state)["quantization"]
    assert weight == 0.3
    assert float(value) == pytest.approx(float((codes.abs() - 1).square().mean()), rel=1e-5)


def test_each_modality_trains_alone() -> None:
    method, data = DCH(DCHParams()), silo_data(6)
    model, state = ready(method, data)
    assert model.relaxation == "tanh"
    assert [step.name for step in method.steps(model)] == ["image", "text"]
    codes, batch = draw(6, BITS).tanh().float(), data.batch(torch.arange(6))
    of_texts = method.terms(TEXT, Outputs({}, {}, {"text": codes}), batch, state)
    of_images = method.terms(IMAGE, outputs_with(codes), batch, state)
    assert {n: float(v) for n, (_, v) in of_texts.items()} == {n: float(v) for n, (_, v) in of_images.items()}


def test_one_item_has_no_pairs() -> None:
    method, data = DCH(DCHParams()), silo_data(6)
    _, state = ready(method, data)
    codes = draw(1, BITS).tanh().float()
    assert float(method.terms(IMAGE, outputs_with(codes), data.batch(torch.tensor([2])), state)["cauchy"][1]) == 0.0


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("radius", 0.01, True),
        ("radius", 0, False),
        ("quantization_weight", 0, True),
        ("quantization_weight", -0.1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(DCHParams, name, value) == accepted


def test_defaults_and_presets() -> None:
    assert DCHParams().model_dump() == {
        "radius": 0.5, "distance": "cosine", "weighting": "both", "quantization": "cauchy", "quantization_weight": 0.1,
    }  # fmt: skip
    assert DCH.presets == {
        "recommended": {},
        "paper": {"radius": 0.4},
        "authors_code": {
            "radius": 0.4, "distance": "euclidean", "weighting": "similar", "quantization": "squared",
            "quantization_weight": 0.0,
        },
    }  # fmt: skip
    assert DCHParams.without_effect == {"quantization": {"quantization_weight": (0.0,)}}
    assert (CARD.key, CARD.year, CARD.supervised, DCH.traits.needs_labels) == ("dch", 2018, True, True)


@pytest.mark.whole_run
def test_synthetic_archive() -> None:
    assert image_precision("dch", 24, epochs=10) == pytest.approx(0.61, abs=BAND)
