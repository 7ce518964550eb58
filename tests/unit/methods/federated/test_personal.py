"""Personal models: which parameters are shared, which model a silo deploys, and the composition with FedUCH."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.types import Arrays
from silohash.methods.federated.personal import CARD, Personal, PersonalParams
from silohash.models.parameters import params_of
from silohash.models.towers import hash_layers
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import SiloTask
from silohash.training.prepared import Prepared
from silohash.training.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays
from tests.unit.methods.federated.helpers import context_of, draw, fresh_server, traits_of

HASH = {"image.hash.weight", "image.hash.bias", "text.hash.weight", "text.hash.bias"}


def ended(**federated: Any) -> tuple[RunState, Prepared]:
    """Return the state after three rounds, and the inputs."""
    given = prepared((20, 30), federated={"name": "personal", "rounds": 3, **federated})
    return run_loop(given), given


def deployed(state: RunState, given: Prepared, silo: int) -> Arrays:
    """Return the parameters of the model that a silo deploys."""
    worker = Worker(given, torch.device("cpu"))
    broadcast = given.resolved.federated.broadcast(state.server, silo, round=3)
    return dict(worker.do(SiloTask("deploy", silo, broadcast, state.silos[silo])).update.params)


def kept(state: RunState, silo: int, prefix: str = "model/") -> Arrays:
    """Return the model that a silo keeps."""
    return {n.removeprefix(prefix): a for n, a in state.silos[silo].items() if n.startswith(prefix)}


@pytest.mark.whole_run
def test_without_private_parameters_it_is_federated_averaging() -> None:
    plain = run_loop(prepared((20, 30), federated={"name": "fedavg", "rounds": 3})).server.params
    state, given = ended(deploy="averaged")
    assert same_arrays(state.server.params, plain)
    assert all(same_arrays(deployed(state, given, silo), plain) for silo in (0, 1))
    state, given = ended()
    assert same_arrays(state.server.params, plain)
    for silo in (0, 1):
        assert same_arrays(deployed(state, given, silo), kept(state, silo))
        assert not same_arrays(deployed(state, given, silo), plain)


def test_private_hash_layers_stay_with_the_silo() -> None:
    state, given = ended(private="hash", deploy="averaged")
    model = Worker(given, torch.device("cpu")).model
    assert set(hash_layers(model.state_dict())) == HASH
    assert set(state.server.params) == set(model.state_dict()) - HASH
    found = [deployed(state, given, silo) for silo in (0, 1)]
    for silo in (0, 1):
        own = kept(state, silo)
        assert same_arrays(found[silo], {**own, **state.server.params})
        assert not same_arrays(found[silo], own)
    assert not np.array_equal(found[0]["text.hash.weight"], found[1]["text.hash.weight"])
    state, given = ended(private="hash")
    assert same_arrays(deployed(state, given, 1), kept(state, 1))


def test_a_round_begins_with_averaged_and_private_parameters() -> None:
    method = Personal(PersonalParams(private="hash"))
    server = fresh_server(method)
    own = {name: draw(*array.shape, seed=4).numpy().astype(array.dtype) for name, array in params_of(
        context_of(server).model
    ).items()}  # fmt: skip
    context = context_of(server, kept={f"model/{name}": array for name, array in own.items()}, round=1)
    [phase] = method.begin_round(context)
    assert (phase.model, phase.epochs) == (context.model, context.epochs)
    assert same_arrays(params_of(context.model), {**own, **server.params})
    with torch.no_grad():
        for parameter in context.model.parameters():
            parameter.zero_()
    assert same_arrays(params_of(context.global_model), {**own, **server.params})
    update = method.update(context)
    assert set(update.params) == set(server.params)
    assert not any(array.any() for array in context.kept("model").values())


def test_a_first_round_begins_with_the_initial_parameters() -> None:
    method = Personal(PersonalParams(private="hash"))
    context = context_of(fresh_server(method))
    initial = dict(context.initial)
    method.begin_round(context)
    assert same_arrays(params_of(context.model), {**initial, **context.payload.params})
    method.personalize(context)
    assert same_arrays(params_of(context.model), {**initial, **context.payload.params})


@pytest.mark.whole_run
@pytest.mark.parametrize("private", ["none", "hash"])
def test_feduch_adds_its_terms_in_a_composition(private: str) -> None:
    listener = Records()
    methods = [{"name": "feduch"}, {"name": "personal", "private": private, "deploy": "averaged"}]
    given = prepared((20, 30), federated={"name": "compose", "methods": methods, "rounds": 2}, local={"name": "dgcpn"})
    state = run_loop(given, listener)
    assert (given.resolved.federated.traits.personalized, given.resolved.federated.traits.codes_comparable) == (
        True,
        False,
    )
    assert {"feduch/contrast", "feduch/distillation"} <= set(listener.records[1].terms)
    assert bool(HASH & set(state.server.params)) == (private == "none")
    own, expected = kept(state, 0, "personal/model/"), dict(state.server.params)
    assert same_arrays(deployed(state, given, 0), {**own, **expected})
    without = [{**methods[0], "contrast_weight": 0.0, "distillation_weight": 0.0}, methods[1]]
    plain = run_loop(prepared((20, 30), federated={"name": "compose", "methods": without, "rounds": 2},
                              local={"name": "dgcpn"}))  # fmt: skip
    assert not same_arrays(plain.server.params, state.server.params)


def test_card_and_traits() -> None:
    assert (CARD.authors, CARD.link, CARD.supervised) == ("The silohash developers", "", False)
    params = PersonalParams()
    assert (params.private, params.deploy) == ("none", "trained")
    assert traits_of(Personal) == {"personalized": True, "codes_comparable": False, "keeps_model": True}
    assert Personal.presets == {"recommended": {}, "paper": {}}
