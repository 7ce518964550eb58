"""The exchange of statistics within a round: who waits, who finishes, and how many bytes it takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from silohash.methods.federated.folding import Listed
from silohash.methods.stored import Spool
from silohash.training.engines.port import WAIT_FOR_ALL, Attendance, InProcess, SiloResult
from silohash.training.statistics_exchange import StatisticsExchange, Tasks
from silohash.training.worker import Worker
from tests.runs import prepared, run_loop, same_arrays


@pytest.fixture
def made() -> Iterator[tuple[StatisticsExchange, InProcess]]:
    inputs = prepared((30, 20, 10), federated={"name": "fedcafe", "memory": "class_mean", "min_count": 1})
    worker = Worker(inputs, torch.device("cpu"))
    engine = InProcess(worker)
    tasks = Tasks("train", [0, 1, 2], worker.first_state(), inputs.resolved.federated)
    with Spool(1 << 27) as spool:
        yield StatisticsExchange(tasks, Attendance(engine, WAIT_FOR_ALL), spool, Listed(spool)), engine


def test_all_silos_wait_and_finish_in_order(made: tuple[StatisticsExchange, InProcess]) -> None:
    exchange, engine = made
    statistics: list[SiloResult] = []

    def noted() -> Iterator[SiloResult]:
        for result in engine.send(exchange.tasks):
            assert isinstance(result, SiloResult)
            statistics.append(result)
            yield result

    finished = list(exchange.completed(noted()))
    assert [result.silo for result in finished] == [0, 1, 2]
    assert {result.update.kind for result in statistics} == {"statistics"}
    assert {result.update.kind for result in finished} == {"update"}
    assert exchange.waiting == {0, 1, 2}
    assert exchange.uplink_bytes == sum(result.update.size_bytes() for result in statistics)
    assert exchange.downlink_bytes == 3 * sum(array.nbytes for array in exchange.extras.values()) > 0


def test_statistics_that_cannot_be_used_are_left_out(made: tuple[StatisticsExchange, InProcess]) -> None:
    exchange, engine = made

    def spoiled() -> Iterator[SiloResult]:
        for result in engine.send(exchange.tasks):
            assert isinstance(result, SiloResult)
            if result.silo == 1:
                next(iter(result.update.sums.values()))[...] = np.nan
            yield result

    finished = list(exchange.completed(spoiled()))
    assert [result.update.kind for result in finished] == ["update", "statistics", "update"]
    assert exchange.waiting == {0, 2}
    assert all(np.isfinite(array).all() for array in exchange.extras.values())


def test_announced_weights_are_those_of_the_updates() -> None:
    inputs = prepared((30, 20, 10), federated={"name": "fedavg", "rounds": 1})
    worker = Worker(inputs, torch.device("cpu"))
    engine = InProcess(worker)
    tasks = Tasks("train", [0, 1, 2], worker.first_state(), inputs.resolved.federated)
    weights = [one.update.weights for one in Attendance(engine, WAIT_FOR_ALL).results(tasks.to_weigh())]
    assert [weight["image"] for weight in weights] == [30.0, 20.0, 10.0]
    assert weights == [result.update.weights for result in engine.send(tasks)]


def test_tasks_carry_the_broadcast_and_what_the_silo_kept() -> None:
    inputs = prepared((10, 10, 10))
    state = Worker(inputs, torch.device("cpu")).first_state()
    state = type(state)(
        round=state.round, server=state.server, silos={2: {"own": np.arange(3)}}, best_silos={2: {"own": np.ones(3)}}
    )
    tasks = Tasks("train", [0, 2], state, inputs.resolved.federated)
    made = iter(tasks)
    first = next(made)
    size = sum(array.nbytes for array in state.server.params.values())
    assert (first.kind, first.silo, first.kept, tasks.downlink_bytes) == ("train", 0, {}, 0)
    second = next(made)
    assert (second.silo, list(second.kept), tasks.downlink_bytes) == (2, ["own"], size)
    assert second.best["own"].sum() == 3
    assert first.best == {}
    assert list(made) == []
    assert tasks.downlink_bytes == 2 * size
    assert [(task.kind, task.silo, task.broadcast.size_bytes()) for task in tasks.to_weigh()] == [
        ("weigh", 0, 0),
        ("weigh", 2, 0),
    ]


@pytest.mark.whole_run
@pytest.mark.parametrize("name", ["fedavg", "plfedcmh", "fednova"])
def test_references_are_what_each_silo_received(name: str) -> None:
    inputs = prepared((10, 10), federated={"name": name, "rounds": 2})
    federated, state = inputs.resolved.federated, run_loop(inputs, stop=1)
    tasks = Tasks("train", [0, 1], state, federated)
    for task in tasks:
        reference = tasks.reference(task.silo)
        if name == "fednova":  # silos send differences
            assert not any(array.any() for array in reference.values())
        else:
            assert same_arrays(reference, task.broadcast.params)
    first, second = (tasks.reference(silo)["image.hash.weight"] for silo in (0, 1))
    assert np.array_equal(first, second) == (name != "plfedcmh")
