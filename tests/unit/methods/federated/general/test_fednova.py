"""FedNova: the length of updates, and the effect of a proximal term on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import ConflictingOptions, OutOfRange, UserError
from silohash.base.types import Outputs, PairBatch, Step, Terms
from silohash.methods.federated.base import FederatedMethod, RunFacts, ServerState
from silohash.methods.federated.general.fednova import CARD, FedNova, FedNovaParams
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.models.towers import HashNet
from silohash.run.config.load import load_config, load_resolved
from silohash.run.config.sections import TrainConfig
from silohash.training.engines.port import SiloTask
from silohash.training.silo import make_context, step_norm, train_silo
from tests.runs import Records, loop_config, model_spec, prepared, run_loop, silo_data, tiny
from tests.unit.methods.federated.helpers import accepts, context_of, fresh_server, traits_of

PLAIN = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.05}


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_length_under_momentum(momentum: float, steps: int) -> None:
    closed = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    found = step_norm(TrainConfig(optimizer="sgd", momentum=momentum, weight_decay=0.1), steps)
    assert found == pytest.approx(closed)


@pytest.mark.parametrize(("rate", "weight", "steps"), [(0.1, 0.5, 7), (0.01, 3.0, 100), (0.5, 2.0, 4), (0.1, 0.5, 1)])
def test_length_under_a_proximal_term(rate: float, weight: float, steps: int) -> None:
    closed = (1 - (1 - rate * weight) ** steps) / (rate * weight)
    found = step_norm(TrainConfig(optimizer="sgd", momentum=0.0), steps, pull=rate * weight)
    assert found == pytest.approx(closed)


def test_lengths_that_the_specification_names() -> None:
    assert step_norm(TrainConfig(optimizer="sgd", momentum=0.9), 7) == pytest.approx(23.0467, abs=1e-4)
    plain = TrainConfig(optimizer="sgd", momentum=0.0)
    assert step_norm(plain, 7, pull=0.1 * 0.5) == pytest.approx(6.03325, abs=1e-5)
    assert [step_norm(TrainConfig(optimizer=name), 7, pull=0.3) for name in ("adam", "adamw")] == [7.0, 7.0]


class Slope(DCMH):
    """A local method whose gradient never changes: 1 for every bias of the hash layers."""

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: Any) -> Terms:
        return {"slope": (1.0, outputs.logit[step.name].mean(0).sum())}


@pytest.mark.parametrize(("weight", "momentum", "length"), [(0.5, 0.0, 6.03325), (0.0, 0.9, 23.0467), (0.0, 0.0, 7.0)])
@pytest.mark.parametrize("effective_steps", ["length", "count"])
def test_under_a_constant_gradient_what_is_sent_is_one_step(
    weight: float, momentum: float, length: float, effective_steps: str
) -> None:
    method = FedNova(FedNovaParams(proximal_weight=weight, effective_steps=effective_steps))
    config = loop_config(epochs=7, rounds=1, optimizer="sgd", momentum=momentum, learning_rate=0.1, batch=20)
    model = HashNet(model_spec(), 16)
    start = params_of(model)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=start))
    context = make_context(task, config, model=model, local=Slope(DCMHParams()), data=silo_data(20))
    update = train_silo(context, method, config).update
    for tower in ("image", "text"):
        name = f"{tower}.hash.bias"
        walked = start[name] - params_of(context.model)[name]
        np.testing.assert_allclose(walked, 0.1 * length, rtol=1e-5)
        np.testing.assert_allclose(update.params[name], 0.1, rtol=1e-5)
        expected = 7.0 if weight and effective_steps == "count" else length
        assert float(update.sums[f"effective/{tower}"]) == pytest.approx(20 * expected, rel=1e-5)


def ended(name: str, sizes: tuple[int, ...], train: Mapping[str, Any], **params: Any) -> ServerState:
    return run_loop(prepared(sizes, federated={"name": name, "rounds": 3, **params}, train=train)).server


def test_a_proximal_term_makes_it_fedprox_where_silos_take_equally_many_steps() -> None:
    alike, unlike = (20, 20, 20), (60, 40, 4)
    both = [ended(name, alike, PLAIN, proximal_weight=2.0).params for name in ("fedprox", "fednova")]
    for name, array in both[0].items():
        np.testing.assert_allclose(array, both[1][name], atol=1e-6, err_msg=name)
    free, held, counted = (
        ended("fednova", unlike, PLAIN, **params).params["image.hash.weight"]
        for params in ({}, {"proximal_weight": 2.0}, {"proximal_weight": 2.0, "preset": "authors_code"})
    )
    assert np.abs(free - held).max() > 1e-5
    assert np.abs(held - counted).max() > 1e-5


@pytest.mark.parametrize(
    ("train", "weight", "kind", "words"),
    [
        ({**PLAIN, "momentum": 0.9}, 0.1, ConflictingOptions, r"0\.9"),
        ({"optimizer": "sgd"}, 0.1, ConflictingOptions, r"train\.momentum"),
        (
            {**PLAIN, "learning_rate": 0.5},
            3.0,
            OutOfRange,
            None,
        ),
    ],
)
def test_refuses_steps_of_no_known_length(
    train: dict, weight: float, kind: type[UserError], words: str | None, tmp_path
) -> None:
    member = {"name": "fednova", "proximal_weight": weight}
    for federated in (member, {"name": "compose", "methods": [{"name": "fedproc"}, member]}):
        with pytest.raises(kind, match=words):
            load_config(tiny(tmp_path, federated=federated, train=train))
    assert load_resolved(tiny(tmp_path, federated=member, train=PLAIN | {"learning_rate": 0.1})).remarks == ()


@pytest.mark.whole_run
def test_a_run_says_once_what_adams_length_is(tmp_path) -> None:
    resolved = load_resolved(
        tiny(tmp_path, federated={"name": "compose", "methods": [{"name": "fednova"}]}, train={"optimizer": "adamw"})
    )
    expected = 'fednova: the length of an update under "adamw" is approximated by its number of steps.'
    assert list(resolved.remarks) == [expected]
    assert load_resolved(tiny(tmp_path, federated={"name": "fedavg"})).remarks == ()
    listener = Records()
    given = prepared((8, 8), federated={"name": "fednova", "rounds": 2, "local_epochs": 1})
    run_loop(given, listener)
    assert [record.warnings for record in listener.records] == [list(given.resolved.remarks), []]


def test_presets() -> None:
    assert FedNova.presets == {"recommended": {}, "paper": {}, "authors_code": {"effective_steps": "count"}}
    assert (FedNovaParams().proximal_weight, FedNovaParams().effective_steps) == (0.0, "length")


def test_the_server_multiplies_the_mean_normalized_update_by_the_mean_length() -> None:
    method = FedNova(FedNovaParams())
    server = ServerState(params={"image.w": np.asarray([10.0]), "image.n": np.asarray(3)})
    updates = [
        Message("update", str(n), 0, weights={"image": weight},
                params={"image.w": np.asarray([delta]), "image.n": np.asarray(n)},
                sums={"effective/image": np.asarray(weight * length), "weight/image": np.asarray(weight)})
        for n, (weight, delta, length) in enumerate([(1.0, 2.0, 4.0), (3.0, -1.0, 8.0)])
    ]  # fmt: skip
    after = method.aggregate(server, updates)
    assert after.params["image.w"].tolist() == [10.0 - 7.0 * -0.25]  # tau_eff = (4 + 24) / 4, mean = (2 - 3) / 4
    assert after.params["image.n"] == 1
    origin = method.origin(server)
    assert (origin["image.w"].tolist(), int(origin["image.n"])) == ([0.0], 3)


def test_a_silo_sends_its_update_per_step_and_its_weighted_length() -> None:
    method = FedNova(FedNovaParams())
    context = context_of(fresh_server(method))
    FederatedMethod.begin_round(method, context)
    context.steps_taken = {"image": 4}
    with torch.no_grad():
        for parameter in context.model.parameters():
            parameter.sub_(2.0)
    update = method.update(context)
    for name in ("image.hash.bias", "text.hash.bias"):  # without steps of its own, a tower counts those of the other
        np.testing.assert_allclose(update.params[name], 0.5, rtol=1e-4)
    assert float(update.sums["effective/image"]) == 20 * 4
    assert float(update.sums["weight/text"]) == 20
    context.steps_taken = {}
    np.testing.assert_allclose(method.update(context).params["image.hash.bias"], 2.0, rtol=1e-4)


def test_the_step_size_may_reach_but_not_pass_the_global_model() -> None:
    params = FedNovaParams(proximal_weight=2.0)
    assert FedNova(params, RunFacts(learning_rate=0.5)).traits.remarks == ()
    with pytest.raises(OutOfRange, match="overshoot"):
        FedNova(params, RunFacts(learning_rate=0.51))


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2020, False)
    assert traits_of(FedNova) == {}


@pytest.mark.parametrize(
    ("name", "value", "accepted"), [("proximal_weight", 0, True), ("proximal_weight", -0.1, False)]
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedNovaParams, name, value) == accepted
