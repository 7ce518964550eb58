"""FedCMR: shared hash layers, their weights and the residual."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import ServerState
from silohash.methods.federated.hashing.fedcmr import CARD, FedCMR, FedCMRParams, data_share, loss_term
from silohash.methods.federated.shared_means import objection
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.models.towers import HashNet, hash_layers
from silohash.training.silo import train_silo
from tests.runs import loop_config, model_spec, prepared, run_loop, same_arrays
from tests.unit.methods.federated.helpers import BITS, INFO, accepts, context_of, fresh_server, silo_context, traits_of


def test_fedcmr_weights_fall_with_the_loss_and_rise_with_size() -> None:
    assert loss_term(0.5, 1.0) > loss_term(1.0, 1.0) > loss_term(2.0, 1.0) > 0
    assert loss_term(1.0, 1.0) == pytest.approx(math.exp(-math.e))
    assert data_share(30, 4, all_items=60, all_classes=16) == pytest.approx(0.125)


def test_fedcmr_summed_losses_make_silos_of_many_batches_look_bad() -> None:
    kept = {}
    for reduction in ("mean", "sum"):
        method = FedCMR(FedCMRParams(loss_reduction=reduction))
        context = context_of(method.init_server(HashNet(model_spec(), BITS), INFO))
        context.means, context.steps_taken = {"loss": 0.5}, {"image": 3, "text": 4}
        method._remember(context)
        kept[reduction] = float(context.kept("loss")["value"])
    assert kept == {"mean": 0.5, "sum": pytest.approx(0.5 * 7)}


class TestFedCMR:
    def test_a_silo_without_data_does_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given, seen = prepared((20, 12, 0), federated={"name": "fedcmr", "rounds": 1}), []
        method = given.resolved.federated
        merge = method.merge_statistics
        monkeypatch.setattr(method, "merge_statistics", lambda server, sums: seen.append(sums) or merge(server, sums))
        state = run_loop(given)
        assert float(seen[0]["silos"]) == 2
        losses = [float(state.silos[silo]["loss/value"]) for silo in range(2)]
        assert min(losses) > 0
        assert float(seen[0]["loss"]) == pytest.approx(sum(losses))
        assert "loss/value" not in state.silos[2]

    def test_a_silo_without_a_finite_loss_neither_counts_nor_weighs(self) -> None:
        sums = {"all_items": 40.0, "all_classes": 12.0, "all_loss": 1.0, "all_silos": 2.0}
        for weighting, weights in {"additive": (True, False), "uniform": (True, True)}.items():
            found = []
            for loss in (0.5, float("nan")):
                method, context = FedCMR(FedCMRParams(weighting=weighting)), silo_context(20, **sums)
                context.means["loss"] = loss
                facts = method.statistics(context)
                assert all(bool(value) == (loss == 0.5) for value in facts.values())
                found.append(method.weight(context, "image") > 0)
            assert tuple(found) == weights

    def test_a_loss_of_an_earlier_round_is_forgotten(self) -> None:
        method, context = FedCMR(FedCMRParams()), silo_context(20)
        context.keep("loss", {"value": torch.tensor(0.1)})
        method.statistics(context)
        assert not context.kept("loss")


def test_presets() -> None:
    assert FedCMR.presets == {
        "recommended": {},
        "paper": {},
        "authors_code": {"weighting": "softmax", "loss_factor": 100.0, "loss_reduction": "sum", "residual": -0.5},
    }
    params = FedCMRParams()
    assert (params.weighting, params.loss_factor, params.loss_reduction) == ("additive", 1.0, "mean")
    assert (params.residual, params.enhance_fraction, params.share) == (0.5, 0.2, "hash")


def test_terms_of_the_weights_by_hand() -> None:
    assert loss_term(1.5, 0.5) == pytest.approx(math.exp(-math.exp(3.0)))
    assert loss_term(1.0, 0.0) == pytest.approx(math.exp(-math.e))
    assert loss_term(1e9, 1.0) == 0.0
    assert data_share(0.5, 0.5, all_items=0.5, all_classes=0.25) == 0.25
    assert data_share(30, 4, all_items=2, all_classes=8) == 1.0


@pytest.mark.parametrize("name", ["items", "classes", "items_classes"])
def test_negative_sums_are_rejected(name: str) -> None:
    values = {"items": 20.0, "classes": 6.0, "items_classes": 120.0, "loss": -0.5, "silos": 1.0}
    sent = {key: np.asarray(value) for key, value in values.items()}
    assert objection(Message("statistics", "s", 0, sums=sent, counts={"items": 20}), FedCMR.traits.means, {}) is None
    wrong = Message("statistics", "s", 0, sums={**sent, name: np.asarray(-1.0)}, counts={"items": 20})
    assert name in (objection(wrong, FedCMR.traits.means, {}) or "")


def test_weights_stay_finite_beside_medians_of_small_silos() -> None:
    sums = {"all_items": 1.0, "all_classes": 1.0, "all_items_classes": 1.0, "all_loss": 3.0, "all_silos": 3.0}
    for weighting, factor in (("additive", 1.0), ("softmax", 100.0)):
        method, context = FedCMR(FedCMRParams(weighting=weighting, loss_factor=factor)), silo_context(20, **sums)
        context.means["loss"] = 1.0
        method.statistics(context)
        easy = factor * math.exp(-math.e)
        expected = math.e + easy if weighting == "additive" else math.exp(1.0 + easy)
        assert method.weight(context, "image") == pytest.approx(expected)


def test_all_parameters_or_the_hash_layers_are_shared() -> None:
    model = HashNet(model_spec(), BITS)
    hash_only, everything = (FedCMR(FedCMRParams(share=share)) for share in ("hash", "all"))
    assert hash_only.shared_parameters(model) == hash_layers(list(model.state_dict()))
    assert everything.shared_parameters(model) == list(model.state_dict())
    assert set(hash_only.init_server(model, INFO).params) < set(everything.init_server(model, INFO).params)
    server = fresh_server(everything)
    context = context_of(server)
    context.initial = {name: np.zeros_like(array) for name, array in server.params.items()}
    everything.begin_round(context)
    assert same_arrays(params_of(context.model), server.params)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("additive", math.exp(20 / 60 * 6 / 10) + 2.0 * math.exp(-math.exp(0.5))),
        ("softmax", math.exp(120 / 200 + 2.0 * math.exp(-math.exp(0.5)))),
        ("uniform", 1.0),
    ],
)
def test_weights_by_hand(weighting: str, expected: float) -> None:
    sums = {"all_items": 60.0, "all_classes": 10.0, "all_items_classes": 200.0, "all_loss": 3.0, "all_silos": 3.0}
    method, context = FedCMR(FedCMRParams(weighting=weighting, loss_factor=2.0)), silo_context(20, **sums)
    context.means["loss"] = 0.5
    facts = {name: float(value) for name, value in method.statistics(context).items()}
    assert facts == {"items": 20.0, "classes": 6.0, "items_classes": 120.0, "loss": 0.5, "silos": 1.0}
    assert method.weight(context, "image") == pytest.approx(expected)
    context.data = replace(context.data, has_image=torch.zeros(20, dtype=torch.bool))
    assert method.weight(context, "image") == 0.0
    merged = method.merge_statistics(ServerState(params={}), {"items": np.asarray(5.0)})
    assert {name: float(value) for name, value in merged.items()} == {"all_items": 5.0}


def test_the_previous_update_is_added_in_part() -> None:
    method = FedCMR(FedCMRParams(residual=0.25))
    server = fresh_server(method)
    assert set(server.params) == set(hash_layers(server.params))
    kept = {f"start/{n}": np.full_like(a, 1.0) for n, a in server.params.items()}
    kept |= {f"end/{n}": np.full_like(a, 3.0) for n, a in server.params.items()}
    context = context_of(server, kept=kept)
    context.initial = params_of(context.model)
    phases = method.begin_round(context)
    for name, array in server.params.items():
        np.testing.assert_allclose(context.model.state_dict()[name].numpy(), array + 0.5, rtol=1e-5)
        np.testing.assert_allclose(context.kept("start")[name], array + 0.5, rtol=1e-5)
    assert context.kept("end") == {}
    assert [len(phase.rows) for phase in phases] == [16, 4]
    assert sorted([*phases[0].rows, *phases[1].rows]) == list(range(20))


@pytest.mark.parametrize(("fraction", "count", "held"), [(0.0, 20, 0), (0.2, 1, 0), (0.6, 2, 1), (0.2, 12, 2)])
def test_items_held_out_for_the_own_model(fraction: float, count: int, held: int) -> None:
    method = FedCMR(FedCMRParams(enhance_fraction=fraction))
    context = context_of(fresh_server(method), count=count)
    context.initial = params_of(context.model)
    sizes = [len(phase.rows) for phase in method.begin_round(context)]
    assert sizes == ([count - held, held] if held else [count])


def test_the_update_is_that_before_the_own_model_is_improved() -> None:
    method = FedCMR(FedCMRParams(weighting="uniform"))
    server = fresh_server(method)
    context = context_of(server)
    context.initial = params_of(context.model)
    _, enhance = method.begin_round(context)
    enhance.begin()
    before = {n: a.copy() for n, a in params_of(context.model).items()}
    with torch.no_grad():
        for parameter in context.model.parameters():
            parameter.add_(1.0)
    method.statistics(context)
    update = method.update(context)
    assert set(update.params) == set(server.params)
    assert all(np.array_equal(array, before[n]) for n, array in update.params.items())
    method.personalize(context)
    np.testing.assert_allclose(params_of(context.model)["image.hash.bias"], before["image.hash.bias"] + 1.0, rtol=1e-5)


def test_held_out_pairs_have_no_influence_on_the_update() -> None:
    updates = []
    for spoiled in (False, True):
        method = FedCMR(FedCMRParams(weighting="uniform"))
        server = fresh_server(method)
        context = context_of(server)
        context.initial = params_of(context.model)
        held = method.begin_round(replace(context, generator=torch.Generator().manual_seed(5)))[1].rows
        if spoiled:
            labels, text = context.data.labels.clone(), context.data.text.clone()
            labels[held], text[held] = 1.0 - labels[held], 100.0
            context.data = replace(context.data, labels=labels, text=text)
        context.generator = torch.Generator().manual_seed(5)
        train_silo(context, method, loop_config(batch=4))
        updates.append((context.kept("end"), context.kept("model")))
    (clean, improved), (other, spoiled_model) = updates
    assert all(np.array_equal(array, other[name]) for name, array in clean.items())
    assert any(not np.array_equal(array, spoiled_model[name]) for name, array in improved.items())


def test_the_own_model_is_improved_beside_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    method = FedCMR(FedCMRParams(weighting="uniform"))
    context, seen = context_of(fresh_server(method)), []
    context.initial = params_of(context.model)
    start = context.local.init_state
    monkeypatch.setattr(
        context.local, "init_state", lambda model, data, state: seen.append(len(data)) or start(model, data, state)
    )
    train_silo(context, method, loop_config(batch=4))
    assert seen == [16, 20]


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2021, True)
    assert traits_of(FedCMR) == {"needs_labels": True, "personalized": True, "codes_comparable": False}


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("loss_factor", 0, True),
        ("loss_factor", 100, True),
        ("residual", -1, True),
        ("residual", 1, True),
        ("enhance_fraction", 0, True),
        ("enhance_fraction", 0.99, True),
        ("loss_factor", -0.1, False),
        ("loss_factor", 100.1, False),
        ("residual", -1.01, False),
        ("residual", 1.01, False),
        ("enhance_fraction", -0.1, False),
        ("enhance_fraction", 1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedCMRParams, name, value) == accepted
