"""The server's side of encrypted sums: what it adds, whom it asks, and what it does without a key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("tenseal")

from silohash.base.types import UserError
from silohash.methods.federated.base import ServerState
from silohash.methods.message import Message
from silohash.run.config.load import load_resolved
from silohash.training.engines.in_process import InProcess
from silohash.training.engines.port import WAIT_FOR_ALL, Absence, Limits, SiloTask
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.updates.compression import DamagedUpdateError
from silohash.training.updates.encryption import SUMS, SiloKey
from silohash.training.updates.sealed_server import (
    LAYOUTS,
    EncryptedTotals,
    SealedMethod,
    arrays_of,
    broadcast_of,
    layout_of,
    length_of,
    read_layout,
    state_from,
    state_of,
    traffic,
    unreadable,
    vector_of,
)
from silohash.training.worker import Worker
from tests.runs import Records, first_state, prepared, same_arrays, tiny

ARRAYS = {
    "b": np.arange(6, dtype=np.int64).reshape(2, 3),
    "a": np.asarray(2.5, np.float32),
    "c": np.array([True, False]),
}


@pytest.fixture(scope="module")
def given():
    return replace(prepared(federated={"rounds": 2}, exchange={"encryption": "ckks"}), key=SiloKey.new())


@pytest.fixture(scope="module")
def updates(given) -> list[Message]:
    worker = Worker(given, torch.device("cpu"))
    sent = Message("broadcast", "server", 0, encrypted=state_of(first_state(given, worker).server))
    return [worker.do(SiloTask("train", silo, sent)).update for silo in range(3)]


def test_layouts_keep_names_shapes_and_types() -> None:
    layout = read_layout(layout_of(ARRAYS))
    assert layout == [("a", (), "float32"), ("b", (2, 3), "int64"), ("c", (2,), "bool")]
    assert length_of(layout) == 9
    found = arrays_of(vector_of(ARRAYS) + 1e-9, layout)
    assert same_arrays(found, ARRAYS)
    assert vector_of({}).shape == (0,)
    for text in ("x", "[1]", '[["a", 3, "float32"]]', '[["a", [], "no type"]]'):
        with pytest.raises(DamagedUpdateError, match="layout of its encrypted values is damaged"):
            read_layout(text)


def test_updates_that_cannot_be_added_have_a_reason(given, updates: list[Message]) -> None:
    plain, sealed = given.resolved.federated, SealedMethod(given.resolved.federated, InProcess(None), 3)
    update = updates[0]
    assert unreadable(update, sealed) is None
    assert unreadable(update, plain) == "its values are encrypted, and those of this run are not"
    assert unreadable(Message("update", "s", 0), plain) is None
    assert unreadable(Message("update", "s", 0), sealed) == "its values are not encrypted, as those of this run must be"
    assert unreadable(replace(update, notes={"refused": "it holds NaN"}), sealed) == "it holds NaN"
    cut = {name: array[:-1] if name == "sums/data" else array for name, array in update.encrypted.items()}
    assert "its encrypted values are damaged" in str(unreadable(replace(update, encrypted=cut), sealed))
    layouts = {**json.loads(update.notes[LAYOUTS]), "sums": layout_of({"weights/image": np.ones(3)})}
    found = unreadable(replace(update, notes={LAYOUTS: json.dumps(layouts)}), sealed)
    assert found == "it sent 2 encrypted values instead of 3"


def test_totals_have_one_sum_per_layout(given, updates: list[Message]) -> None:
    totals = EncryptedTotals()
    assert totals.updates() == []
    for update in updates[:2]:
        totals.add(update)
    [total] = totals.updates()
    assert total.counts == {"items": 50}
    assert [name for name, _ in json.loads(total.notes[LAYOUTS])] == ["parameters", "sums"]
    weights = {part: total.encrypted[f"1/{part}"] for part in ("data", "lengths")}
    assert given.key.decrypted(SUMS, weights, 2).tolist() == [50.0, 50.0]


class Some(InProcess):
    """An engine at which some silos do not carry out a kind of task."""

    def __init__(self, worker: Worker, away: set[int]) -> None:
        super().__init__(worker)
        self.away, self.asked = away, []

    def send(self, tasks, limits=WAIT_FOR_ALL):
        for task in tasks:
            if task.kind != "merge":
                yield self.worker.do(task)
                continue
            self.asked.append(task.silo)
            lost = task.silo in self.away
            yield Absence(task.silo, "did not answer") if lost else self.worker.do(task)


def run(given, away: set[int]) -> tuple[Some, Records]:
    worker, records = Worker(given, torch.device("cpu")), Records()
    engine = Some(worker, away)
    settings = RoundSettings(rounds=1, silos=["a", "b", "c"], validate=False)
    state = first_state(given, worker)
    run_rounds(
        state,
        federated=SealedMethod(given.resolved.federated, engine, 3),
        engine=engine,
        settings=settings,
        observers=[records],
    )
    return engine, records


def test_another_silo_decrypts_if_the_first_does_not_answer(given) -> None:
    assert run(given, set())[0].asked == [0]
    engine, records = run(given, {0, 1})
    assert engine.asked == [0, 1, 2]
    assert records.records[0].downlink_bytes > run(given, set())[1].records[0].downlink_bytes
    with pytest.raises(UserError, match=r"No silo could decrypt the sums of the round \(silo 2 did not answer\)"):
        run(given, {0, 1, 2})


def test_states_travel_sealed_or_before_the_first_round_as_they_are() -> None:
    federated = load_resolved(tiny(Path("none"))).federated
    assert traffic(federated) == (0, 0)
    server = ServerState(params={"x": np.ones(2)}, extras={"e": np.zeros(1)}, private={"p": np.ones(1)})
    [content] = state_of(server).values()
    again = state_from(content.tobytes())
    assert same_arrays(again.params, server.params)
    assert same_arrays(again.extras, server.extras)
    assert same_arrays(again.private, server.private)
    assert broadcast_of(federated, server, 0, 1).params == server.params
    sealed = ServerState(params={}, private={"state": np.ones(3, np.uint8)})
    assert dict(broadcast_of(federated, sealed, 0, 1).encrypted) == {"state": sealed.private["state"]}


def test_traits_of_the_method_that_the_server_needs() -> None:
    plain = load_resolved(tiny(Path("none"), federated={"name": "fedcmr"})).federated
    method = SealedMethod(plain, InProcess(None), 3, Limits(5.0, quorum=2))
    assert method.traits.personalized
    assert not method.traits.means
    assert method.limits == Limits(5.0, quorum=0)
