"""DCGH: what it adds to DSPH, against explicit loops in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.methods.local.label_networks import CLASS_VECTORS
from silohash.methods.local.supervised.dcgh import (
    CARD,
    DCGH,
    DCGHParams,
    padded_variance,
    proxy_variance,
    related_pairs,
)
from silohash.methods.local.supervised.dsph import DSPH, DSPHParams, cosines
from silohash.testing.inputs import silo_data
from tests.unit.methods.federated.helpers import accepts, draw, hot
from tests.unit.methods.local.helpers import ready


def test_related_pairs_against_loops() -> None:
    alike, labels, others = cosines(draw(7, 3), draw(6, 3, seed=1)), hot(7, 5), hot(6, 5, seed=2)
    labels[2] = 0
    losses = []
    for i in range(7):
        for j in range(6):
            common = float(labels[i] @ others[j])
            if common:
                wanted = common / float(labels[i].norm() * others[j].norm())
                losses.append(max(0.0, wanted - float(alike[i, j])))
    assert min(losses) == 0.0
    assert float(related_pairs(alike, labels, others)) == pytest.approx(np.mean(losses))
    assert float(related_pairs(alike, torch.zeros_like(labels), others)) == 0.0


def test_variances_against_loops() -> None:
    alike, labels = cosines(draw(6, 3), draw(5, 3, seed=1)), hot(6, 5)
    labels[1] = 0
    labels[4] = torch.eye(5)[2]
    over_labels, over_classes = [], []
    for i in range(6):
        known = [1 - float(alike[i, c]) for c in range(5) if labels[i, c]]
        if known:
            over_labels.append(np.var(known))
        over_classes.append(np.var(known + [0.0] * (5 - len(known)), ddof=1))
    assert float(proxy_variance(alike, labels)) == pytest.approx(np.mean(over_labels))
    assert float(padded_variance(alike, labels)) == pytest.approx(np.mean(over_classes))


def test_variance_of_items_with_one_label_or_of_one_class_is_0() -> None:
    alike = cosines(draw(4, 3), draw(4, 3, seed=1))
    assert float(proxy_variance(alike, torch.eye(4, dtype=torch.float64))) == pytest.approx(0.0, abs=1e-15)
    assert float(proxy_variance(alike, torch.zeros(4, 4, dtype=torch.float64))) == 0.0
    assert float(padded_variance(alike[:, :1], torch.ones(4, 1, dtype=torch.float64))) == 0.0


def terms_of(method: DSPH, rows: int = 12) -> dict[str, tuple[float, torch.Tensor]]:
    data = silo_data(rows)
    model, state = ready(method, data)
    batch = data.batch(torch.arange(rows))
    return method.terms(method.steps(model)[0], model(batch), batch, state)


def test_it_adds_two_terms_to_dsph_and_is_dsph_without_them() -> None:
    plain = terms_of(DSPH(DSPHParams(margin=0.0)))
    assert terms_of(DCGH(DCGHParams(related_weight=0, variance_weight=0))).keys() == plain.keys()
    terms = terms_of(DCGH(DCGHParams()))
    assert {name: weight for name, (weight, _) in terms.items()} == {
        "attraction": 1.0, "repulsion": 1.0, "variance": 1.0, "unrelated": 0.8, "related": 0.05,
    }  # fmt: skip
    assert all(torch.equal(value, terms[name][1]) for name, (_, value) in plain.items())


@pytest.mark.parametrize(("over", "variance"), [("labels", proxy_variance), ("classes", padded_variance)])
def test_added_terms_are_sums_over_modalities_and_their_pairs(over: str, variance) -> None:
    method, data = DCGH(DCGHParams(variance_over=over, variance_weight=0.3, related_weight=0.2)), silo_data(12)
    model, state = ready(method, data)
    batch = data.batch(torch.arange(12))
    terms = method.terms(method.steps(model)[0], outputs := model(batch), batch, state)
    codes, labels = outputs.code, batch.labels
    alike = [cosines(codes[m], outputs.extra[CLASS_VECTORS]) for m in ("image", "text")]
    assert terms["variance"][0] == 0.3
    assert float(terms["variance"][1]) == pytest.approx(float(sum(variance(a, labels) for a in alike)), rel=1e-5)
    pairs = [("image", "image"), ("image", "text"), ("text", "text")]
    expected = sum(float(related_pairs(cosines(codes[a], codes[b]), labels, labels)) for a, b in pairs)
    assert terms["related"][0] == 0.2
    assert float(terms["related"][1]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("margin", -1.1, False),
        ("related_weight", 0, True),
        ("related_weight", -0.1, False),
        ("variance_weight", 0, True),
        ("variance_weight", -0.1, False),
        ("variance_over", "classes", True),
        ("variance_over", "items", False),
    ],
)
def test_bounds_of_parameters(name: str, value: object, accepted: bool) -> None:
    assert accepts(DCGHParams, name, value) == accepted


def test_card_and_presets() -> None:
    assert (CARD.year, CARD.supervised, DCGH.traits.needs_labels) == (2025, True, True)
    params = DCGHParams(**DCGH.presets["paper"])
    assert (params.margin, params.pair_weight, params.related_weight) == (0.0, 0.8, 0.05)
    assert (params.variance_weight, params.variance_over) == (1.0, "labels")
    assert DCGHParams(**DCGH.presets["authors_code"]).variance_over == "classes"
