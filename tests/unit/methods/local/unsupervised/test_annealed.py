"""The tanh that becomes steeper with the epochs, and the cosines of the codes of a batch."""

from __future__ import annotations

import pytest
import torch

from silohash.base.types import Outputs, UserError
from silohash.methods.local.base import SiloState
from silohash.methods.local.unsupervised.annealed import cosine_matrices, mean_over, steepness
from silohash.methods.local.unsupervised.base import CodePair
from silohash.methods.local.unsupervised.djsrh import DJSRH, DJSRHParams
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.testing.inputs import lacking, silo_data
from tests.unit.methods.federated.helpers import draw
from tests.unit.methods.local.helpers import cosine, ready


def test_cosines_of_a_batch_against_loops() -> None:
    pair = CodePair(draw(5, 4), draw(5, 4, seed=1))
    images, texts, between = cosine_matrices(pair)
    for i in range(5):
        for j in range(5):
            assert float(images[i, j]) == pytest.approx(cosine(pair.image[i], pair.image[j]))
            assert float(texts[i, j]) == pytest.approx(cosine(pair.text[i], pair.text[j]))
            assert float(between[i, j]) == pytest.approx(cosine(pair.image[i], pair.text[j]))


def test_means_over_the_pairs_that_can_be_compared() -> None:
    values = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    assert float(mean_over(values, None)) == 4.0
    assert float(mean_over(values, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))) == 3.0
    assert float(mean_over(values, torch.zeros(2, 2))) == 0.0


def test_the_tanh_becomes_steeper_over_all_rounds() -> None:
    assert [steepness(epochs) for epochs in (0, 3, 8)] == [1.0, 2.0, 3.0]
    data, chosen = silo_data(12), DJSRH(DJSRHParams())
    model, _ = ready(chosen, data)
    batch, step = data.batch(torch.arange(12)), chosen.steps(model)[0]
    codes = {"image": draw(12, 6).float(), "text": draw(12, 6, seed=1).float()}
    found = []
    for before, passes, factor in ((0, 0, 1.0), (2, 1, 2.0), (3, 0, 2.0), (8, 0, 3.0)):
        state = SiloState(epochs_before=before)
        chosen.init_state(model, data, state)
        for _ in range(passes):
            chosen.end_epoch(model, data, state)
        terms = chosen.terms(step, Outputs(feature={}, logit={}, code=codes), batch, state)
        relaxed = CodePair(torch.tanh(factor * codes["image"]), torch.tanh(factor * codes["text"]))
        expected = chosen.losses(relaxed, batch, state.buffers)
        assert {name: float(value) for name, (_, value) in terms.items()} == {
            name: pytest.approx(float(value)) for name, (_, value) in expected.items()
        }
        found.append(float(terms["between"][1]))
    assert found[1] == found[2] != found[0]
    assert len(set(found)) == 3

    constant = DJSRH(DJSRHParams(anneal=False))
    state = SiloState(epochs_before=8)
    constant.init_state(model, data, state)
    terms = constant.terms(step, Outputs(feature={}, logit={}, code=codes), batch, state)
    assert float(terms["between"][1]) == found[0]


def test_a_batch_without_the_models_modality_has_no_terms() -> None:
    data, chosen = lacking("no texts"), DJSRH(DJSRHParams())
    model, state = ready(chosen, data)
    outputs = Outputs(feature={}, logit={}, code={"text": draw(20, 4)})
    assert chosen.terms(chosen.steps(model)[0], outputs, data.batch(torch.arange(20)), state) == {}


def test_published_networks_are_refused() -> None:
    spec = ModelSpec({"image": TowerSpec("network", (3, 8, 8))}, classes=0)
    with pytest.raises(UserError, match='"djsrh"'):
        DJSRH(DJSRHParams()).build(spec, 16)
