"""FedAvg, each silo alone, and all data in one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.federated import FEDERATED_METHODS
from silohash.federated.base import Adapted, frozen_copy, install, params_of
from silohash.models.towers import HashNet
from silohash.runtime.runner import SiloTask
from silohash.runtime.worker import Worker
from tests.runs import Records, first_state, model_spec, prepared, run_loop, same_arrays, silo_data


def results_of(inputs) -> tuple[dict[str, np.ndarray], list]:
    """The first state's parameters and every silo's result, each trained from them."""
    worker = Worker(inputs, torch.device("cpu"))
    method, server = inputs.config.federated_method, first_state(inputs, worker).server
    tasks = [SiloTask("train", silo, method.broadcast(server, silo, round=0)) for silo in range(len(inputs.silos))]
    return server.params, [worker.do(task) for task in tasks]


def test_fedavg_is_the_mean_by_size_with_loops() -> None:
    inputs = prepared((30, 20, 10), federated={"rounds": 1})
    _, results = results_of(inputs)
    state = run_loop(inputs)
    for name, array in state.server.params.items():
        mean = (
            sum(size * r.update.params[name].astype(np.float64) for size, r in zip((30, 20, 10), results, strict=True))
            / 60
        )
        assert np.allclose(array, mean, atol=1e-6)


def test_uniform_weighting() -> None:
    inputs = prepared((30, 20, 10), federated={"rounds": 1, "weighting": "uniform"})
    _, results = results_of(inputs)
    assert [result.update.weights for result in results] == [{"image": 1.0, "text": 1.0}] * 3
    state = run_loop(inputs)
    for name, array in state.server.params.items():
        assert np.allclose(array, sum(r.update.params[name].astype(np.float64) for r in results) / 3, atol=1e-6)


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_silo_without_texts_weighs_nothing_in_the_text_tower(weighting: str) -> None:
    inputs = prepared((20, 20), validation=0, federated={"rounds": 1, "weighting": weighting})
    inputs.arrays["has_text"][:20] = False
    inputs.arrays["text"][:20] = 0
    start, results = results_of(inputs)
    assert results[0].update.weights["text"] == 0
    assert results[0].update.weights["image"] > 0
    assert all(np.array_equal(results[0].update.params[n], start[n]) for n in start if n.startswith("text."))
    state = run_loop(inputs, validate=False)
    texts = {name: array for name, array in state.server.params.items() if name.startswith("text.")}
    assert same_arrays(texts, {name: results[1].update.params[name] for name in texts})


def test_texts_that_nobody_has_leave_the_tower_as_it_was() -> None:
    inputs = prepared((20, 20), validation=0, federated={"rounds": 1})
    inputs.arrays["has_text"][:] = False
    state = run_loop(inputs, validate=False)
    start = first_state(inputs, Worker(inputs, torch.device("cpu"))).server.params
    assert all(
        np.array_equal(start[name], array) == name.startswith("text.") for name, array in state.server.params.items()
    )


def test_silos_start_every_round_from_the_same_parameters() -> None:
    inputs = prepared((20, 20), federated={"rounds": 1})
    worker = Worker(inputs, torch.device("cpu"))
    server = first_state(inputs, worker).server
    before = {name: array.copy() for name, array in server.params.items()}
    task = SiloTask("train", 0, inputs.config.federated_method.broadcast(server, 0, round=0))
    first = worker.do(task)
    assert same_arrays(server.params, before)
    worker.do(replace(task, silo=1))
    assert same_arrays(worker.do(task).update.params, first.update.params)


def test_local_keeps_its_own_model_and_sends_nothing() -> None:
    inputs, listener = prepared(federated={"name": "local", "rounds": 3}), Records()
    state = run_loop(inputs, listener)
    start = first_state(inputs, Worker(inputs, torch.device("cpu"))).server.params
    assert same_arrays(state.server.params, start)
    kept = [{name.removeprefix("model/"): array for name, array in state.silos[silo].items()} for silo in range(3)]
    assert all(set(params) == set(start) for params in kept)
    assert not same_arrays(kept[0], kept[1])
    assert [record.uplink_bytes for record in listener.records] == [0, 0, 0]
    assert [record.downlink_bytes for record in listener.records] == [0, 0, 0]
    losses = [record.loss for record in listener.records]
    assert losses[2] < losses[0]


def test_local_silo_trains_as_the_only_silo_of_fedavg_would() -> None:
    alone = run_loop(prepared((30,), federated={"name": "local", "rounds": 3}))
    federated = run_loop(prepared((30,), federated={"name": "fedavg", "rounds": 3}))
    own = {name.removeprefix("model/"): array for name, array in alone.silos[0].items()}
    assert same_arrays(own, federated.server.params)


def test_local_validates_the_silos_own_models() -> None:
    inputs = prepared(federated={"name": "local", "rounds": 2})
    worker = Worker(inputs, torch.device("cpu"))
    state = run_loop(inputs)
    broadcast = inputs.config.federated_method.broadcast(state.server, 0, round=2)
    for silo in range(3):
        worker.do(SiloTask("validate", silo, broadcast, state.silos[silo]))
        own = {name: array for name, array in state.silos[silo].items() if name.startswith("model/")}
        assert same_arrays({f"model/{name}": array for name, array in params_of(worker.model).items()}, own)


def test_params_are_copies_and_install_puts_them_back() -> None:
    model = HashNet(model_spec(), 8)
    params = params_of(model)
    with torch.no_grad():
        model.get_parameter("image.hash.weight").add_(1.0)
    assert not same_arrays(params, params_of(model))
    install(model, params)
    assert same_arrays(params, params_of(model))
    install(model, {"image.hash.bias": np.full(8, 3.0, np.float32)})
    assert (model.get_parameter("image.hash.bias") == 3).all()
    with pytest.raises(KeyError):
        install(model, {"elsewhere": np.zeros(1)})


def test_frozen_copy_takes_no_gradient_and_stays() -> None:
    model = HashNet(model_spec(dropout=0.5), 8).train()
    params = params_of(model)
    twin = frozen_copy(model, params)
    with torch.no_grad():
        model.get_parameter("image.hash.weight").add_(1.0)
    assert same_arrays(params, params_of(twin))
    assert not twin.training
    assert model.training
    assert not any(parameter.requires_grad for parameter in twin.parameters())


def test_adapted_passes_outputs_on() -> None:
    model = HashNet(model_spec(), 8).eval()
    batch = silo_data(4).batch(torch.arange(4))
    adapted = Adapted(model, FEDERATED_METHODS.resolve("fedavg")(None), {})
    assert torch.equal(adapted(batch).code["text"], model(batch).code["text"])
    assert list(adapted(batch, ("image",)).code) == ["image"]
    assert adapted.modalities == model.modalities


@pytest.mark.parametrize("name", FEDERATED_METHODS.names())
def test_every_method_has_a_card_and_presets(name: str) -> None:
    kind, card = FEDERATED_METHODS.resolve(name), FEDERATED_METHODS.card(name)
    assert card.key == name
    assert card.summary
    assert "recommended" in kind.presets
    for preset in kind.presets.values():
        kind(kind.Params(**preset))
    assert kind.shares_parameters or kind.personalized
    assert kind.uplink in {"sum", "records"}
