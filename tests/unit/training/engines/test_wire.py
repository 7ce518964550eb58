"""Tasks and results as messages."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import DeviceUnavailable, JobFailed
from silohash.methods.message import Message
from silohash.training.engines.port import Absence, SiloResult, SiloTask
from silohash.training.engines.wire import (
    decode_answer,
    decode_result,
    decode_task,
    encode_distant_task,
    encode_result,
    encode_task,
)
from tests.runs import same_arrays


@pytest.mark.parametrize("kind", ["train", "finish", "validate", "deploy"])
def test_task_round_trip(kind) -> None:
    broadcast = Message("broadcast", "server", 4, params={"w": np.ones(2)}, extras={"memory": np.zeros((2, 0))})
    task = SiloTask(kind, 3, broadcast, kept={"model/w": np.arange(2.0)})
    read = decode_task(Message.decode(encode_task(task)))
    assert (read.kind, read.silo, read.broadcast.round) == (kind, 3, 4)
    assert same_arrays(read.broadcast.arrays(), broadcast.arrays())
    assert same_arrays(read.kept, task.kept)


def test_task_for_another_machine_names_the_best_round_too() -> None:
    references = {"stored": np.array([4, 0])}, {"stored": np.array([2, 1])}
    task = SiloTask("train", 0, Message("broadcast", "server", 5), *references)
    for encode, best in ((encode_task, {}), (encode_distant_task, references[1])):
        read = decode_task(Message.decode(encode(task)))
        assert same_arrays(read.kept, references[0])
        assert same_arrays(read.best, best)
        assert read.broadcast.arrays() == {}


@pytest.mark.parametrize("loss", [0.25, float("nan")])
def test_result_round_trip(loss: float) -> None:
    update = Message(
        "update", "north", 4, params={"w": np.ones(2)}, weights={"w": 3.0}, counts={"items": 3}, notes={"a": "b"}
    )
    result = SiloResult(2, update, {"own": np.arange(2)}, loss, {"pull": 0.5, "push": float("nan")}, 0.1, ("beware",))
    read = decode_result(Message.decode(encode_result(result)))
    assert (read.silo, read.seconds, read.warnings) == (2, 0.1, ("beware",))
    assert repr(read.loss) == repr(loss)
    assert {name: repr(value) for name, value in read.terms.items()} == {"pull": "0.5", "push": "nan"}
    assert same_arrays(read.update.arrays(), update.arrays())
    assert (read.update.notes, read.update.weights, read.update.counts) == (update.notes, update.weights, update.counts)
    assert same_arrays(read.kept, result.kept)


def test_failures_of_a_worker() -> None:
    with pytest.raises(JobFailed, match=r"^no such device$"):
        decode_result(Message("failure", "worker", -1, notes={"failure": "no such device"}))
    notes = {"failure": "no such device", "key": "device-unavailable"}
    with pytest.raises(DeviceUnavailable, match=r"^no such device$"):
        decode_result(Message("failure", "worker", -1, notes=notes))
    with pytest.raises(RuntimeError, match=r"A worker process failed:\nTraceback"):
        decode_result(Message("failure", "worker", -1, notes={"crash": "Traceback"}))


@pytest.mark.parametrize(
    "notes",
    [
        {"crash": "Traceback"},
        {"result": "{}"},
        {"result": "[" * 100_000},
        {"result": '{"silo": 1, "loss": "0", "seconds": "long", "warnings": [], "terms": {}}'},
        {"result": '{"silo": 1, "loss": "0", "seconds": 1, "warnings": 7, "terms": {}}'},
        {"result": '{"silo": 1, "loss": "0", "seconds": 1, "warnings": [], "terms": []}'},
    ],
    ids=["crash", "nothing", "nested", "seconds", "warnings", "terms"],
)
def test_silo_on_another_machine_cannot_end_the_run_of_the_others(notes: dict[str, str]) -> None:
    task = SiloTask("train", 1, Message("broadcast", "server", 4))
    content = Message("update", "north", 4, counts={"items": 3}, notes=notes).encode()
    assert decode_answer(task, "north", content) == Absence(1, "sent a damaged message")
