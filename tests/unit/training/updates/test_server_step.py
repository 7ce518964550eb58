"""The server's next state: the average, then the server-side optimizer, unless a rule keeps no update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from silohash.methods.federated.averaging import Aggregation
from silohash.methods.federated.base import FederatedMethod, RunFacts, ServerState
from silohash.methods.federated.server_optimizers import ServerOptimizer
from silohash.methods.message import Message
from silohash.training.updates.server_step import next_server

SERVER = ServerState(params={"image.hash.bias": np.zeros(2, np.float32)})
UPDATES = [
    Message("update", name, 0, params={"image.hash.bias": np.full(2, value, np.float32)}, weights={"image": weight})
    for name, value, weight in (("a", 1.0, 1.0), ("b", 4.0, 2.0))
]


def method(**facts: Any) -> FederatedMethod:
    return FederatedMethod(None, RunFacts(**facts))


def test_the_average_is_the_next_state() -> None:
    after, remarks = next_server(SERVER, UPDATES, method())
    assert after.params["image.hash.bias"].tolist() == [3.0, 3.0]
    assert remarks == {}


def test_the_optimizer_steps_towards_the_average_but_not_for_buffers() -> None:
    optimizer = ServerOptimizer(optimizer="fedavgm", learning_rate=0.5, momentum=0.0, square_decay=0.99, floor=1e-3)
    stepping = method(server_optimizer=optimizer)
    after, _ = next_server(SERVER, UPDATES, stepping)
    assert after.params["image.hash.bias"].tolist() == [1.5, 1.5]
    after, _ = next_server(SERVER, UPDATES, stepping, buffers={"image.hash.bias"})
    assert after.params["image.hash.bias"].tolist() == [3.0, 3.0]


def test_without_an_update_that_a_rule_keeps_nothing_changes() -> None:
    rejected: list[int] = []

    def screen(current, updates, count):
        rejected.append(count)
        return [], {"a": "too far away"}

    after, remarks = next_server(
        SERVER, UPDATES, method(aggregation=replace(Aggregation(), screens=(screen,))), rejected=1
    )
    assert after is SERVER
    assert (remarks, rejected) == ({"a": "too far away"}, [1])
