"""FedAvg: weights by size or equal, per parameter group."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.methods.federated.general.fedavg import CARD, FedAvg, FedAvgParams
from silohash.training.engines.port import SiloTask
from silohash.training.worker import Worker
from tests.runs import (
    prepared,
    run_loop,
    same_arrays,
)
from tests.unit.methods.federated.helpers import silo_context, traits_of


def results_of(inputs) -> tuple[dict[str, np.ndarray], list]:
    """Return the initial parameters and the result of every silo trained from them."""
    worker = Worker(inputs, torch.device("cpu"))
    method, server = inputs.resolved.federated, worker.first_state().server
    tasks = [SiloTask("train", silo, method.broadcast(server, silo, round=0)) for silo in range(len(inputs.silos))]
    return server.params, [copy.deepcopy(worker.do(task)) for task in tasks]


@pytest.mark.whole_run
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


@pytest.mark.whole_run
def test_uniform_weighting() -> None:
    inputs = prepared((30, 20, 10), federated={"rounds": 1, "weighting": "uniform"})
    _, results = results_of(inputs)
    assert [result.update.weights for result in results] == [{"image": 1.0, "text": 1.0}] * 3
    state = run_loop(inputs)
    for name, array in state.server.params.items():
        assert np.allclose(array, sum(r.update.params[name].astype(np.float64) for r in results) / 3, atol=1e-6)


@pytest.mark.whole_run
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


@pytest.mark.whole_run
def test_without_any_texts_the_text_tower_does_not_change() -> None:
    inputs = prepared((20, 20), validation=0, federated={"rounds": 1})
    inputs.arrays["has_text"][:] = False
    state = run_loop(inputs, validate=False)
    start = Worker(inputs, torch.device("cpu")).first_state().server.params
    assert all(
        np.array_equal(start[name], array) == name.startswith("text.") for name, array in state.server.params.items()
    )


def test_silos_start_every_round_from_the_same_parameters() -> None:
    inputs = prepared((20, 20), federated={"rounds": 1})
    worker = Worker(inputs, torch.device("cpu"))
    server = worker.first_state().server
    before = {name: array.copy() for name, array in server.params.items()}
    task = SiloTask("train", 0, inputs.resolved.federated.broadcast(server, 0, round=0))
    first = copy.deepcopy(worker.do(task))
    assert same_arrays(server.params, before)
    worker.do(replace(task, silo=1))
    assert same_arrays(worker.do(task).update.params, first.update.params)


def test_presets() -> None:
    assert FedAvg.presets == {"recommended": {}, "paper": {"weighting": "examples"}}
    assert FedAvgParams().weighting == "examples"


@pytest.mark.parametrize(("weighting", "expected"), [("examples", [10.0, 3.0, 0.0]), ("uniform", [1.0, 1.0, 0.0])])
def test_weights_of_a_silo(weighting: str, expected: list[float]) -> None:
    method, context, found = FedAvg(FedAvgParams(weighting=weighting)), silo_context(10), []
    for count in (10, 3, 0):
        context.data = replace(context.data, has_text=torch.arange(10) < count)
        found.append(method.weight(context, "text"))
    assert found == expected


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2017, False)
    assert traits_of(FedAvg) == {"adds": {"weight": {"weighting": "examples"}}}
