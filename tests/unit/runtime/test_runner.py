"""Frames and tasks on the pipes, and worker processes that fail."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from silohash.exchange.message import Message
from silohash.runtime import runner
from silohash.runtime.runner import (
    SiloTask,
    WorkerProcesses,
    decode_result,
    decode_task,
    encode_result,
    encode_task,
    read_frame,
    write_frame,
)
from silohash.runtime.silo import SiloResult
from silohash.types import UserError
from tests.runs import same_arrays


def test_frames() -> None:
    stream = io.BytesIO()
    for content in (b"one", b"", b"x" * 70_000):
        write_frame(stream, content)
    stream.seek(0)
    assert [read_frame(stream) for _ in range(3)] == [b"one", b"", b"x" * 70_000]
    with pytest.raises(EOFError):
        read_frame(stream)


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_frame_that_is_cut_off(cut: int) -> None:
    stream = io.BytesIO()
    write_frame(stream, b"0123456789")
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(stream.getvalue()[:-cut]))
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(stream.getvalue()[:5]))


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


def fake_worker(folder: Path, body: str) -> Path:
    """A package in which a worker process finds another ``silohash.runtime.worker``."""
    folder.mkdir()
    (folder / "worker.py").write_text(f"import sys, time\nread, write = sys.stdin.buffer, sys.stdout.buffer\n{body}\n")
    return folder


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes worker processes that run a script, without torch."""
    started = []

    def start(body: str, workers: int) -> WorkerProcesses:
        script = fake_worker(tmp_path / "fake", body) / "worker.py"
        real = runner.subprocess.Popen
        monkeypatch.setattr(
            runner.subprocess, "Popen", lambda command, **more: real([sys.executable, str(script)], **more)
        )
        started.append(WorkerProcesses(tmp_path, workers))
        return started[-1]

    yield start
    for made in started:
        made.close()
        assert all(process.poll() is not None for process in made.processes)


ECHO = """
from silohash.exchange.message import Message
from silohash.runtime.runner import read_frame, write_frame, decode_task, encode_result
from silohash.runtime.silo import SiloResult
while True:
    try:
        task = decode_task(Message.decode(read_frame(read)))
    except EOFError:
        break
    time.sleep(0.2 if task.silo == 0 else 0.0)
    update = Message("update", str(task.silo), 0, counts={"items": 1})
    write_frame(write, encode_result(SiloResult(task.silo, update, {}, 0.0, {}, 0.0)))
"""


def tasks(count: int) -> list[SiloTask]:
    return [SiloTask("train", silo, Message("broadcast", "server", 0)) for silo in range(count)]


def test_results_come_in_the_order_of_the_tasks(processes) -> None:
    pool = processes(ECHO, 2)
    for _ in range(2):
        assert [result.silo for result in pool.run(tasks(5))] == [0, 1, 2, 3, 4]


def test_worker_that_dies_is_named_with_advice(processes) -> None:
    pool = processes("sys.exit(9)", 1)
    with pytest.raises(UserError, match=r"A worker process ended while it trained silo 0 .*train\.workers.*resume"):
        list(pool.run(tasks(2)))
