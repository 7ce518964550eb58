"""The engine of this process: one task after the other, each when its result is asked for."""

from __future__ import annotations

from silohash.methods.message import Message
from silohash.training.engines.in_process import InProcess
from silohash.training.engines.port import SiloResult, SiloTask


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
