"""Tasks and results as messages, and worker processes that fail."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from silohash.exchange.message import Message
from silohash.runtime.runner import (
    SiloTask,
    WorkerProcesses,
    decode_result,
    decode_task,
    encode_result,
    encode_task,
)
from silohash.runtime.silo import SiloResult
from silohash.types import UserError
from tests.runs import same_arrays


@pytest.mark.parametrize("kind", ["train", "finish", "validate", "deploy"])
def test_task_round_trip(kind) -> None:
    broadcast = Message("broadcast", "server", 4, params={"w": np.ones(2)}, extras={"memory": np.zeros((2, 0))})
    task = SiloTask(kind, 3, broadcast, kept={"model/w": np.arange(2.0)})
    read = decode_task(Message.decode(encode_task(task)))
    assert (read.kind, read.silo, read.broadcast.round) == (kind, 3, 4)
    assert same_arrays(read.broadcast.arrays(), broadcast.arrays())
    assert same_arrays(read.kept, task.kept)


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
    with pytest.raises(UserError, match=r"^no such device$"):
        decode_result(Message("failure", "worker", -1, notes={"failure": "no such device"}))
    with pytest.raises(RuntimeError, match=r"A worker process failed:\nTraceback"):
        decode_result(Message("failure", "worker", -1, notes={"crash": "Traceback"}))


@pytest.fixture
def worker_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes worker processes that run a script, without torch."""
    started = []

    def start(body: str, workers: int) -> WorkerProcesses:
        script = tmp_path / "worker.py"
        script.write_text(f"import sys, time\n{body}\n")
        made = WorkerProcesses(tmp_path, workers)
        assert made.pool.command == (sys.executable, "-m", "silohash.runtime.worker", str(tmp_path))
        made.pool.command = (sys.executable, str(script))
        started.append(made)
        return made

    yield start
    for made in started:
        made.close()


ECHO = """
from silohash.exchange.message import Message
from silohash.runtime.processes import serve
from silohash.runtime.runner import decode_task, encode_result
from silohash.runtime.silo import SiloResult

def answer(request):
    task = decode_task(Message.decode(request))
    time.sleep(0.2 if task.silo == 0 else 0.0)
    update = Message("update", str(task.silo), 0, counts={"items": 1})
    return encode_result(SiloResult(task.silo, update, {}, 0.0, {}, 0.0))

serve(lambda: answer)
"""


def tasks(count: int) -> list[SiloTask]:
    return [SiloTask("train", silo, Message("broadcast", "server", 0)) for silo in range(count)]


@pytest.mark.whole_run
def test_results_come_in_the_order_of_the_tasks(worker_processes) -> None:
    pool = worker_processes(ECHO, 2)
    for _ in range(2):
        assert [result.silo for result in pool.run(tasks(5))] == [0, 1, 2, 3, 4]


def test_worker_that_dies_is_named_with_advice(worker_processes) -> None:
    pool = worker_processes("sys.exit(9)", 1)
    with pytest.raises(UserError, match=r"A worker process ended while it trained silo 0 .*train\.workers.*resume"):
        list(pool.run(tasks(2)))
