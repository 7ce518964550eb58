"""DSCMR: every formula against explicit loops in float64, shared layers, and the means that codes are taken from."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import MODALITIES
from silohash.methods.local.base import SiloState, outputs_of
from silohash.methods.local.losses import pair_likelihood
from silohash.methods.local.supervised.dscmr import CARD, DSCMR, DSCMRParams, distance, unit_rows
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Adapted, batch_of
from tests.runs import model_spec, silo_data
from tests.unit.methods.federated.helpers import accepts, draw

BITS = 8


def method(**params: object) -> DSCMR:
    return DSCMR(DSCMRParams(**params))


def network(spec: ModelSpec | None = None) -> torch.nn.Module:
    torch.manual_seed(0)
    return method().build(spec or model_spec(), BITS)


def test_distance_is_the_mean_over_rows() -> None:
    first, second = draw(4, 3), draw(4, 3, seed=1)
    rows = [math.dist(first[i].tolist(), second[i].tolist()) for i in range(4)]
    assert float(distance(first, second)) == pytest.approx(sum(rows) / 4)
    assert float(distance(first[:0], second[:0])) == 0.0


def test_gradients_are_finite_where_rows_are_equal_or_zero() -> None:
    values = torch.zeros(3, 4, requires_grad=True)
    (distance(values, torch.zeros(3, 4)) + unit_rows(values).sum()).backward()
    assert torch.isfinite(values.grad).all()


def test_the_likelihood_of_cosines_is_that_of_a_loop() -> None:
    first, second, similar = draw(3, 5), draw(4, 5, seed=1), (draw(3, 4, seed=2) > 0).double()
    likelihood = pair_likelihood(unit_rows(first), unit_rows(second), similar, scale=0.5)
    for i in range(3):
        for j in range(4):
            norms = math.hypot(*first[i].tolist()) * math.hypot(*second[j].tolist())
            cosine = float(first[i] @ second[j]) / norms
            theta = 0.5 * cosine
            expected = math.log(1 + math.exp(theta)) - float(similar[i, j]) * theta
            assert float(likelihood[i, j]) == pytest.approx(expected)


def test_terms_are_the_three_of_the_objective() -> None:
    model, data = network(), silo_data(9)
    labels = data.labels.clone()
    labels[5] = 0.0
    has_text = torch.arange(9) != 2
    data = replace(data, labels=labels, has_text=has_text, text=data.text * has_text.unsqueeze(1))
    for modality in MODALITIES:
        model.mean(modality).copy_(draw(BITS, seed=4))
    batch = data.batch(torch.arange(9))
    outputs = model(batch)
    made = method(**DSCMR.presets["paper"])
    terms = made.terms(made.steps(model)[0], outputs, batch, SiloState())
    weights = {name: weight for name, (weight, _) in terms.items()}
    assert weights == {"class": 1.0, "likelihood": 1e-3, "pair": 0.1}
    hash_layer, classifier = model.shared["hash"], model.shared["classifier"]
    u = {m: hash_layer(outputs.feature[m]) for m in MODALITIES}
    held = {"image": list(range(9)), "text": [i for i in range(9) if i != 2]}
    error = 0.0
    for m in MODALITIES:
        rows = [i for i in held[m] if i != 5]
        error += sum(math.dist(classifier(u[m][i]).tolist(), labels[i].tolist()) for i in rows) / len(rows)
    assert terms["class"][1].item() == pytest.approx(error, rel=1e-5)
    loss = 0.0
    for first, second in (("image", "image"), ("image", "text"), ("text", "text")):
        pairs = []
        for i in held[first]:
            for j in held[second]:
                theta = 0.5 * torch.nn.functional.cosine_similarity(u[first][i], u[second][j], dim=0).item()
                pairs.append(math.log1p(math.exp(theta)) - theta * float((labels[i] * labels[j]).sum() > 0))
        loss += sum(pairs) / len(pairs)
    assert terms["likelihood"][1].item() == pytest.approx(loss, rel=1e-5)
    apart = [math.dist(u["image"][i].tolist(), u["text"][i].tolist()) for i in held["text"]]
    assert terms["pair"][1].item() == pytest.approx(sum(apart) / 8, rel=1e-5)


def test_the_recommended_likelihood_compares_deviations_from_the_mean_of_the_batch() -> None:
    model, data = network(), silo_data(7)
    batch = replace(data.batch(torch.arange(7)), has_text=torch.arange(7) != 1)
    held = {m: batch.has(m) for m in MODALITIES}
    outputs = model(batch)
    made = method()
    found = made._likelihood(outputs, batch.labels, held)
    expected = 0.0
    deviations = {}
    for m in MODALITIES:
        common = outputs.extra[f"{m}/common"][held[m]]
        deviations[m] = common - sum(common) / len(common)
    for first, second in (("image", "image"), ("image", "text"), ("text", "text")):
        similar = ((batch.labels[held[first]] @ batch.labels[held[second]].T) > 0).float()
        units = unit_rows(deviations[first]), unit_rows(deviations[second])
        expected += float(pair_likelihood(*units, similar, scale=4.0).mean().detach())
    assert found.item() == pytest.approx(expected, rel=1e-5)
    moved = {name: values + draw(BITS).float() for name, values in outputs.extra.items() if name.endswith("common")}
    assert made._likelihood(replace(outputs, extra=moved), batch.labels, held).item() == pytest.approx(
        found.item(), rel=1e-4
    )


def test_similarity_is_whether_labels_are_shared_not_how_many() -> None:
    model, data = network(), silo_data(6)
    twice = replace(data, labels=torch.cat([data.labels, data.labels], dim=1))
    assert twice.labels.shape[1] == 12
    made = method()
    losses = []
    for given in (data, twice):
        batch = data.batch(torch.arange(6))
        outputs = model(batch)
        held = {m: batch.has(m) for m in MODALITIES}
        losses.append(made._likelihood(outputs, given.labels, held).item())
    assert losses[0] == losses[1]


def test_one_modality_has_no_pairs() -> None:
    data = silo_data(6, text=False)
    model = network(model_spec(text=False))
    batch = data.batch(torch.arange(6))
    made = method()
    terms = made.terms(made.steps(model)[0], model(batch), batch, SiloState())
    assert set(terms) == {"class", "likelihood"}
    none = replace(batch, has_image=torch.zeros(6, dtype=torch.bool))
    assert made.terms(made.steps(model)[0], model(batch), none, SiloState()) == {}


def test_both_towers_use_the_same_layers_and_one_step_trains_all() -> None:
    model = network()
    assert {name.split(".")[0] for name, _ in model.named_parameters() if "hash" in name} == {"shared"}
    (step,) = method().steps(model)
    assert all(name.startswith(step.parameters) for name, _ in model.named_parameters())
    assert step.modalities == MODALITIES
    assert "image.mean" in model.state_dict()
    assert "image.mean" not in dict(model.named_parameters())


def test_towers_of_different_widths_are_refused() -> None:
    spec = ModelSpec({"image": TowerSpec("mlp", (4,), hidden=8), "text": TowerSpec("mlp", (4,), hidden=6)}, classes=2)
    with pytest.raises(UnsuitableMethod, match=r"6 and 8 units|8 and 6 units"):
        method().build(spec, BITS)


class Unchanged:
    """A federated method that leaves outputs as they are."""

    adapts_training = False

    def adapt_outputs(self, outputs, extras):
        return outputs


@pytest.mark.parametrize("wrapped", [False, True])
def test_means_are_those_of_the_silos_items(wrapped: bool) -> None:
    has_text = torch.arange(10) > 3
    whole = silo_data(10)
    data = replace(whole, has_text=has_text, text=whole.text * has_text.unsqueeze(1))
    network_, made = network(), method()
    model = Adapted(network_, Unchanged(), {}) if wrapped else network_
    for modality in MODALITIES:
        network_.mean(modality).copy_(draw(BITS, seed=4))
    made.end_epoch(model, data, SiloState())
    network_.eval()
    batch = data.batch(torch.arange(10))
    for modality in MODALITIES:
        rows = batch.has(modality)
        common = network_.shared["hash"](network_.tower(modality).features(batch.values(modality)[rows]))
        torch.testing.assert_close(network_.mean(modality), common.mean(0), rtol=1e-4, atol=1e-5)
        codes = outputs_of(model, data)[modality][rows]
        torch.testing.assert_close(codes, common - common.mean(0), rtol=1e-4, atol=1e-5)


def test_a_modality_that_the_silo_lacks_keeps_its_mean() -> None:
    whole, model = silo_data(10), network()
    data = replace(whole, has_text=torch.zeros(10, dtype=torch.bool), text=torch.zeros_like(whole.text))
    model.mean("text").fill_(2.0)
    method().end_epoch(model, data, SiloState())
    assert (model.mean("text") == 2.0).all()
    assert not (model.mean("image") == 0.0).any()


def test_encoding_runs_one_tower_and_the_shared_layer() -> None:
    model = network().eval()
    outputs = model(batch_of(draw(3, 16).float(), "image", {}), ("image",))
    assert outputs.extra == {}
    assert set(outputs.code) == {"image"}


def test_presets_and_card() -> None:
    assert DSCMRParams(**DSCMR.presets["recommended"]) == DSCMRParams()
    assert (CARD.year, CARD.supervised, DSCMR.traits.needs_labels) == (2019, True, True)
    assert "real-valued" in CARD.summary


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("similarity_weight", 0, True),
        ("similarity_weight", -0.1, False),
        ("pair_weight", 0, True),
        ("pair_weight", -0.1, False),
        ("scale", 0.1, True),
        ("scale", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(DSCMRParams, name, value) == accepted
