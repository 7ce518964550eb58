"""The port: every engine of this machine offers its six calls; that of this process does one task after the other."""

from __future__ import annotations

import inspect

import pytest

from silohash.methods.message import Message
from silohash.training.engines.port import WAIT_FOR_ALL, Engine, InProcess, SiloResult, SiloTask
from silohash.training.engines.worker_processes import WorkerProcesses

CALLS = {"start", "live", "send", "cancel", "status", "stop"}


@pytest.mark.parametrize("engine", [InProcess, WorkerProcesses])
def test_engines_offer_the_six_calls(engine: type) -> None:
    assert {name for name in vars(Engine) if not name.startswith("_")} == CALLS
    for call in CALLS:
        assert inspect.signature(getattr(engine, call)) == inspect.signature(getattr(Engine, call))


def test_by_default_all_silos_are_waited_for() -> None:
    assert WAIT_FOR_ALL.deadline_seconds is None
    assert WAIT_FOR_ALL.quorum == 1


class Echo:
    def __init__(self) -> None:
        self.done: list[int] = []

    def do(self, task: SiloTask) -> SiloResult:
        self.done.append(task.silo)
        return SiloResult(task.silo, Message("update", str(task.silo), 0), {}, 0.0, {}, 0.0)


def test_tasks_are_made_and_done_one_by_one() -> None:
    worker, made = Echo(), []

    def tasks():
        for silo in (2, 0):
            made.append(silo)
            yield SiloTask("train", silo, Message("broadcast", "server", 0))

    engine = InProcess(worker)
    engine.start(["a", "b", "c"])
    answers = engine.send(tasks())
    assert (made, worker.done) == ([], [])
    assert next(answers).silo == 2
    assert (made, worker.done) == ([2], [2])
    assert [answer.silo for answer in answers] == [0]
    engine.stop()


def test_all_silos_are_live() -> None:
    engine = InProcess(Echo())
    assert engine.live([2, 0]) == [2, 0]
    assert engine.status() == {}
    engine.cancel()
    assert engine.live(range(3)) == [0, 1, 2]
