"""The tasks of a round: what each silo is sent, and how many bytes that is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.training.tasks import Tasks
from silohash.training.worker import Worker
from tests.runs import first_state, prepared, run_loop, same_arrays


def test_tasks_carry_the_broadcast_and_what_the_silo_kept() -> None:
    inputs = prepared((10, 10, 10))
    state = first_state(inputs, Worker(inputs, torch.device("cpu")))
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
