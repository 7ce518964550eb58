"""Updates pass the links in order at a silo, and in the opposite order at the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.methods.federated.averaging import Aggregation
from silohash.methods.federated.base import FederatedMethod, RunFacts, ServerState
from silohash.methods.federated.server_optimizers import ServerOptimizer
from silohash.methods.message import Message
from silohash.training.engines.port import WAIT_FOR_ALL, InProcess, SiloResult, SiloTask
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.updates.bounds import Bounds
from silohash.training.updates.chain import DIRECT, Chain, DamagedUpdateError, Link, Screening, next_server
from silohash.training.updates.compression import Compression
from silohash.training.updates.noise import Noise
from silohash.training.worker import Worker
from tests.runs import Records, prepared, same_arrays

SERVER = ServerState(params={"image.hash.bias": np.zeros(2, np.float32)})
UPDATES = [
    Message("update", name, 0, params={"image.hash.bias": np.full(2, value, np.float32)}, weights={"image": weight})
    for name, value, weight in (("a", 1.0, 1.0), ("b", 4.0, 2.0))
]
UPDATE = Message("update", "a", 0, params={"image.hash.bias": np.ones(2, np.float32)}, weights={"image": 1.0})


class Noted(Link):
    """A link that notes what passes it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def received(self, task):
        return replace(task, broadcast=replace(task.broadcast, sender=f"{task.broadcast.sender} {self.name}"))

    def do(self, task, carry_out):
        result = carry_out(self.received(task))
        return replace(result, update=replace(result.update, sender=f"{result.update.sender} {self.name}"))

    def restored(self, update, reference):
        if self.name == "broken":
            raise DamagedUpdateError("it is broken")
        return replace(update, sender=f"{update.sender} {self.name}")

    def objection(self, update):
        return "it is strange" if self.name == "strange" else None

    def traffic(self):
        return 1, 2


def chain(*names: str) -> Chain:
    return Chain(tuple(Noted(name) for name in names))


def carry_out(task: SiloTask) -> SiloResult:
    return SiloResult(0, Message("update", task.broadcast.sender, 0), kept={}, loss=0.0, terms={}, seconds=0.0)


def test_links_wrap_each_other() -> None:
    task = SiloTask("train", 0, Message("broadcast", "server", 0))
    two = chain("first", "second")
    assert two.received(task).broadcast.sender == "server second first"
    assert two.do(task, carry_out).update.sender == "server second first first second"
    assert two.arrived(UPDATE, {}, SERVER, FederatedMethod(None))[0].sender == "a second first"
    assert (two.traffic(), DIRECT.traffic()) == ((2, 4), (0, 0))
    assert DIRECT.do(task, carry_out).update.sender == "server"


@pytest.mark.parametrize(("name", "reason"), [("broken", "it is broken"), ("strange", "it is strange"), ("x", None)])
def test_an_update_is_rejected_by_any_link(name: str, reason: str | None) -> None:
    found, refused = chain("a", name, "b").arrived(UPDATE, {}, SERVER, FederatedMethod(None))
    assert refused == reason
    assert found.params is UPDATE.params


def test_numbers_that_are_not_finite_come_before_the_objection_of_a_link() -> None:
    update = replace(UPDATE, params={"image.hash.bias": np.full(2, np.nan, np.float32)})
    assert "NaN" in str(chain("strange").arrived(update, {}, SERVER, FederatedMethod(None))[1])


@pytest.mark.parametrize(
    ("exchange", "kinds"),
    [
        ({}, [Bounds, Screening]),
        ({"compression": {"kind": "int8"}}, [Bounds, Screening, Compression]),
        (
            {"privacy": {"unit": "silo"}, "compression": {"kind": "hash_layers"}},
            [Noise, Bounds, Screening, Compression],
        ),
    ],
)
def test_links_are_those_of_the_config(exchange: dict[str, Any], kinds: list[type]) -> None:
    given = prepared(exchange=exchange, validation=0, local={"name": "csq"}, evaluate={"validation": 0.0})
    assert [type(link) for link in Worker(given, torch.device("cpu")).chain.links] == kinds


def test_without_an_update_that_a_rule_keeps_nothing_changes() -> None:
    given, records, rejected = prepared(federated={"rounds": 1}), Records(), []

    def screen(current, updates, count):
        rejected.append((len(updates), count))
        return [], {"a": "too far away"}

    worker = Worker(given, torch.device("cpu"))
    start = worker.first_state()
    screening = Screening(method(aggregation=replace(Aggregation(), screens=(screen,))))
    settings = RoundSettings(rounds=1, silos=["a", "b", "c"], validate=False, chain=Chain((screening,)))
    state = run_rounds(
        start, federated=given.resolved.federated, engine=InProcess(worker), settings=settings, observers=[records]
    )
    assert same_arrays(state.server.params, start.server.params)
    assert rejected == [(3, 0)]
    assert records.records[0].warnings == ["a: too far away"]


def test_statistics_are_screened_without_parameters() -> None:
    def protection(messages, rejected, means=()):
        return [*messages, UPDATE][: rejected + 1], {"a": "limited"}

    screening = Chain((Screening(method(aggregation=replace(Aggregation(), protection=protection))),))
    assert screening.screened(None, [], 0) == ([UPDATE], {"a": "limited"})
    assert DIRECT.method(given := FederatedMethod(None), InProcess(None), WAIT_FOR_ALL) is given


def method(**facts: Any) -> FederatedMethod:
    return FederatedMethod(None, RunFacts(**facts))


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
