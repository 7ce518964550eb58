"""FedProc: the contrast with common prototypes and how it fades."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import ServerState
from silohash.methods.federated.general.fedproc import CARD, FedProc, FedProcParams, contrast_share, global_contrast
from tests.unit.methods.federated.helpers import BITS, CLASSES, accepts, context_of, draw, fresh_server, hot, traits_of


class TestFedProc:
    @pytest.mark.parametrize("over", [0.1, 0.5, 1.0])
    def test_losses_that_both_change_are_in_the_papers_ratio(self, over: float) -> None:
        local, contrast = 0.7, 2.5
        paper = over * local + (1 - over) * contrast
        assert over * (local + contrast_share(over, "both") * contrast) == pytest.approx(paper)
        assert contrast_share(over, "contrast") == pytest.approx(1 - over)

    def test_the_first_round_has_the_local_loss_alone(self) -> None:
        assert contrast_share(0.0, "both") == 0.0
        assert contrast_share(0.0, "contrast") == 1.0

    def test_contrast_of_outputs_as_they_are(self) -> None:
        values, prototypes, labels = draw(4, 3, seed=1), draw(5, 3, seed=2), hot(4, 5)
        mask = torch.tensor([True, True, False, True, True])
        found = global_contrast(values, labels, prototypes, mask, 1.0, unit=False)
        for i in range(4):
            scores = {c: float(values[i] @ prototypes[c] / prototypes[c].norm()) for c in range(5) if mask[c]}
            total = sum(math.exp(score) for score in scores.values())
            own = [-math.log(math.exp(scores[c]) / total) for c in scores if labels[i, c]]
            assert float(found[i]) == pytest.approx(sum(own) / len(own))


def prototypes_for(fuse: bool) -> dict[str, np.ndarray]:
    names = ["fused"] if fuse else ["image", "text"]
    extras = {f"prototypes/{n}": draw(CLASSES, BITS, seed=seed).float().numpy() for seed, n in enumerate(names)}
    return extras | {f"mask/{n}": np.arange(CLASSES) != 2 for n in names}


def test_presets() -> None:
    assert FedProc.presets == {
        "recommended": {},
        "paper": {"fuse": False, "fading": "both", "unit_outputs": False, "min_count": 1, "max_labels": 1000},
    }
    params = FedProcParams()
    assert (params.contrast_weight, params.temperature, params.fading, params.unit_outputs) == (
        1.0,
        1.0,
        "contrast",
        True,
    )


def test_contrast_is_a_cross_entropy_over_the_existing_prototypes() -> None:
    values, prototypes, labels = draw(4, 3, seed=1), draw(5, 3, seed=2), hot(4, 5)
    mask = torch.tensor([True, True, False, True, True])
    found = global_contrast(values, labels, prototypes, mask, 0.7)
    for i in range(4):
        cosine = {
            c: float(values[i] @ prototypes[c] / values[i].norm() / prototypes[c].norm()) for c in range(5) if mask[c]
        }
        total = sum(math.exp(value / 0.7) for value in cosine.values())
        own = [-math.log(math.exp(cosine[c] / 0.7) / total) for c in cosine if labels[i, c]]
        assert float(found[i]) == pytest.approx(sum(own) / len(own))


@pytest.mark.parametrize(
    ("number", "fading", "expected"),
    [(0, "contrast", 0.5), (1, "contrast", 1 / 3), (2, "both", 0.25), (0, "both", None)],
)
def test_the_weight_fades_with_the_rounds(number: int, fading: str, expected: float | None) -> None:
    method = FedProc(FedProcParams(contrast_weight=0.5, fading=fading, fuse=False, temperature=0.6))
    context = context_of(ServerState(params={}, extras=prototypes_for(fuse=False)), round=number)
    batch = context.data.batch(torch.arange(12))
    outputs = context.model(batch)
    terms = method.terms(context, batch, outputs)
    assert bool(terms) == (expected is not None)
    if terms:
        weight, value = terms["contrast"]
        assert weight == pytest.approx(expected)
        total = 0.0
        mask = torch.arange(CLASSES) != 2
        for m, logit in outputs.logit.items():
            rows = batch.labels[:, mask].sum(1) > 0
            prototypes = torch.from_numpy(context.payload.extras[f"prototypes/{m}"])
            total += float(global_contrast(torch.tanh(logit[rows]), batch.labels[rows], prototypes, mask, 0.6).mean())
        assert float(value) == pytest.approx(total, rel=1e-5)


def test_class_sums_are_sent_unless_the_contrast_is_off() -> None:
    for weight in (0.0, 1.0):
        method = FedProc(FedProcParams(contrast_weight=weight))
        update = method.update(context_of(fresh_server(method)))
        assert bool(update.sums) == bool(weight)
        assert update.params


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2023, True)
    assert traits_of(FedProc) == {"needs_labels": True, "adds": {"update": {}, "aggregate": {}}}


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("contrast_weight", 0, True),
        ("temperature", 0.1, True),
        ("contrast_weight", -0.1, False),
        ("temperature", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedProcParams, name, value) == accepted
