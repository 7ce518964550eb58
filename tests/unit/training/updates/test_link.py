"""A link that changes nothing, and the server's next state: the average, then the server-side optimizer."""

from __future__ import annotations

import numpy as np

from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.server_optimizers import ServerOptimizer
from silohash.methods.message import Message
from silohash.training.updates.link import Link, next_server

SERVER = ServerState(params={"image.hash.bias": np.zeros(2, np.float32)})
UPDATES = [
    Message("update", name, 0, params={"image.hash.bias": np.full(2, value, np.float32)}, weights={"image": weight})
    for name, value, weight in (("a", 1.0, 1.0), ("b", 4.0, 2.0))
]


def method(**changes: object) -> FederatedMethod:
    made = FederatedMethod(None)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_average_is_the_next_state() -> None:
    after = next_server(SERVER, UPDATES, method())
    assert after.params["image.hash.bias"].tolist() == [3.0, 3.0]


def test_the_optimizer_steps_towards_the_average_but_not_for_buffers() -> None:
    optimizer = ServerOptimizer(optimizer="fedavgm", learning_rate=0.5, momentum=0.0, square_decay=0.99, floor=1e-3)
    stepping = method(server_optimizer=optimizer)
    after = next_server(SERVER, UPDATES, stepping)
    assert after.params["image.hash.bias"].tolist() == [1.5, 1.5]
    after = next_server(SERVER, UPDATES, stepping, buffers={"image.hash.bias"})
    assert after.params["image.hash.bias"].tolist() == [3.0, 3.0]


def test_by_default_nothing_happens_to_an_update() -> None:
    link = Link()
    assert link.restored(UPDATES[0], dict) is UPDATES[0]
    assert link.objection(UPDATES[0]) is None
    assert link.screened({}, UPDATES, 0) == (UPDATES, {})
    assert (link.collection(), link.merged(SERVER, UPDATES)) == (None, None)
    assert link.released({}, [0], [0]) == ({}, None)
    assert link.traffic() == (0, 0)
    assert link.start(SERVER) is SERVER
