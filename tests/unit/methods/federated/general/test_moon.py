"""MOON: the contrast between models, and the models that a silo keeps."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import entries_under
from silohash.methods.federated.general.moon import CARD, MOON, MOONParams, model_contrast, model_slots
from tests.runs import (
    prepared,
    run_loop,
    same_arrays,
)
from tests.unit.methods.federated.helpers import accepts, context_of, draw, fresh_server, traits_of


@pytest.mark.whole_run
def test_moon_leaves_as_many_of_its_last_models_as_asked() -> None:
    def ended(buffer: int, stop: int):
        federated = {"name": "moon", "rounds": 4, "buffer": buffer, "contrast_weight": 1.0}
        return run_loop(prepared(federated=federated), stop=stop)

    one, two = ([ended(buffer, stop) for stop in (1, 2, 3, 4)] for buffer in (1, 2))
    assert same_arrays(one[1].server.params, two[1].server.params)  # there is but one model to leave before
    assert not same_arrays(one[2].server.params, two[2].server.params)
    for silo in range(3):
        kept = [state.silos[silo] for state in two]
        assert not entries_under("model-2", kept[0])
        for before, after in pairwise(kept):
            assert same_arrays(entries_under("model", before), entries_under("model-2", after))
        assert not any(name.startswith("model-") for name in one[3].silos[silo])
        assert not any(name.startswith("model-3") for name in kept[3])


def test_presets() -> None:
    assert MOON.presets == {"recommended": {}, "paper": {"contrast_weight": 1.0}}
    params = MOONParams()
    assert (params.contrast_weight, params.temperature, params.representation, params.buffer) == (0.1, 0.5, "logit", 1)
    contrast = {"contrast_weight": (0,)}
    assert MOONParams.without_effect == {"temperature": contrast, "representation": contrast, "buffer": contrast}
    assert model_slots(1) == ["model"]
    assert model_slots(3) == ["model", "model-2", "model-3"]


@pytest.mark.parametrize("representation", ["logit", "feature"])
def test_the_term_is_the_contrast_summed_over_modalities(representation: str) -> None:
    method = MOON(MOONParams(representation=representation, contrast_weight=0.7, temperature=0.4))
    server = fresh_server(method)
    kept = {f"model/{n}": (a + 0.3 * draw(*a.shape, seed=3).numpy()).astype(a.dtype) for n, a in server.params.items()}
    context = context_of(server, kept=kept)
    has_text = torch.arange(20) % 3 > 0
    context.data = replace(context.data, has_text=has_text)
    rows = torch.tensor([5, 0, 9, 6, 2])
    batch = context.data.batch(rows)
    outputs = context.model(batch)
    weight, value = method.terms(context, batch, outputs)["contrast"]
    assert weight == 0.7
    models = (context.global_model, context.previous_model)
    ahead, behind = (getattr(model(batch), representation) for model in models)
    expected = 0.0
    for modality, values in getattr(outputs, representation).items():
        terms = []
        for i, row in enumerate(rows.tolist()):
            if modality == "image" or has_text[row]:
                near, far = (
                    math.exp(float(torch.cosine_similarity(values[i], other[modality][i], dim=0)) / 0.4)
                    for other in (ahead, behind)
                )
                terms.append(-math.log(near / (near + far)))
        expected += float(np.mean(terms))
    assert float(value) == pytest.approx(expected, rel=1e-4)


def test_there_is_no_term_in_the_first_round_or_at_weight_zero() -> None:
    for weight, kept in ((0.1, False), (0.0, True)):
        method = MOON(MOONParams(contrast_weight=weight))
        server = fresh_server(method)
        context = context_of(server, kept={f"model/{n}": a for n, a in server.params.items()} if kept else {})
        batch = context.data.batch(torch.arange(4))
        assert method.terms(context, batch, context.model(batch)) == {}


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2021, False)
    assert traits_of(MOON) == {"keeps_model": True, "adds": {"update": {}}}


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("contrast_weight", 0, True),
        ("temperature", 0.1, True),
        ("buffer", 1, True),
        ("contrast_weight", -0.1, False),
        ("temperature", 0, False),
        ("buffer", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(MOONParams, name, value) == accepted


def test_model_contrast_is_the_cross_entropy_of_two_cosines() -> None:
    values, ahead, behind = draw(5, 4, seed=1), draw(5, 4, seed=2), draw(5, 4, seed=3)
    found = model_contrast(values, ahead, [behind], 0.5)
    for i in range(5):
        near, far = (
            math.exp(float(values[i] @ other[i] / values[i].norm() / other[i].norm()) / 0.5)
            for other in (ahead, behind)
        )
        assert float(found[i]) == pytest.approx(-math.log(near / (near + far)))
    assert float(model_contrast(values, ahead, [ahead], 0.5)[0]) == pytest.approx(math.log(2))
    assert float(model_contrast(values, ahead, [ahead] * 4, 0.5)[0]) == pytest.approx(math.log(5))


def test_two_negatives_each_count() -> None:
    values, ahead, one, other = (draw(3, 4, seed=seed) for seed in range(4))
    found = model_contrast(values, ahead, [one, other], 0.3)
    for i in range(3):
        scores = [math.exp(float(values[i] @ x[i] / values[i].norm() / x[i].norm()) / 0.3) for x in (ahead, one, other)]
        assert float(found[i]) == pytest.approx(-math.log(scores[0] / sum(scores)))
