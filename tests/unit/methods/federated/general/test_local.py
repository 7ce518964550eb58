"""Separate training: nothing is sent, and every silo keeps its model."""

from __future__ import annotations

import pytest
import torch

from silohash.methods.federated.general.local import CARD, Local
from silohash.models.parameters import install, params_of
from silohash.models.towers import HashNet
from silohash.training.engines.port import SiloTask
from silohash.training.worker import Worker
from tests.runs import (
    Records,
    model_spec,
    prepared,
    run_loop,
    same_arrays,
)
from tests.unit.methods.federated.helpers import BITS, fresh_server, silo_context, traits_of


@pytest.mark.whole_run
def test_local_keeps_its_own_model_and_sends_nothing() -> None:
    inputs, listener = prepared(federated={"name": "local", "rounds": 3}), Records()
    state = run_loop(inputs, listener)
    start = Worker(inputs, torch.device("cpu")).first_state().server.params
    assert same_arrays(state.server.params, start)
    kept = [{name.removeprefix("model/"): array for name, array in state.silos[silo].items()} for silo in range(3)]
    assert all(set(params) == set(start) for params in kept)
    assert not same_arrays(kept[0], kept[1])
    assert [record.uplink_bytes for record in listener.records] == [0, 0, 0]
    assert [record.downlink_bytes for record in listener.records] == [0, 0, 0]
    losses = [record.loss for record in listener.records]
    assert losses[2] < losses[0]


@pytest.mark.whole_run
def test_local_silo_trains_as_the_only_silo_of_fedavg_would() -> None:
    alone = run_loop(prepared((30,), federated={"name": "local", "rounds": 3}))
    federated = run_loop(prepared((30,), federated={"name": "fedavg", "rounds": 3}))
    own = {name.removeprefix("model/"): array for name, array in alone.silos[0].items()}
    assert same_arrays(own, federated.server.params)


@pytest.mark.whole_run
def test_local_validates_the_silos_own_models() -> None:
    inputs = prepared(federated={"name": "local", "rounds": 2})
    worker = Worker(inputs, torch.device("cpu"))
    state = run_loop(inputs)
    broadcast = inputs.resolved.federated.broadcast(state.server, 0, round=2)
    for silo in range(3):
        worker.do(SiloTask("validate", silo, broadcast, state.silos[silo]))
        own = {name: array for name, array in state.silos[silo].items() if name.startswith("model/")}
        assert same_arrays({f"model/{name}": array for name, array in params_of(worker.model).items()}, own)


def test_hooks_of_a_silo_that_trains_alone() -> None:
    method = Local(None)
    server = fresh_server(method)
    message = method.broadcast(server, 1, round=2)
    assert (message.round, message.params, message.extras) == (2, {}, {})
    assert method.shared_parameters(HashNet(model_spec(), BITS)) == []
    assert same_arrays(method.aggregate(server, []).params, server.params)
    context = silo_context(4)
    context.initial = server.params
    (phase,) = method.begin_round(context)
    assert (phase.epochs, phase.rows) == (1, None)
    assert same_arrays(params_of(context.model), server.params)
    with torch.no_grad():
        context.model.get_parameter("image.hash.bias").fill_(7.0)
    update = method.update(context)
    assert (update.params, update.weights, update.counts) == ({}, {}, {"items": 4})
    install(context.model, server.params)
    method.personalize(context)
    assert (context.model.get_parameter("image.hash.bias") == 7).all()


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2026, False)
    assert traits_of(Local) == {
        "shares": "none",
        "personalized": True,
        "codes_comparable": False,
        "averages": False,
        "keeps_model": True,
    }
