"""The port: every engine of this machine offers its six calls; that of this process does one task after the other."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import TooFewSilos, UserError
from silohash.methods.message import Message
from silohash.training.engines.port import (
    WAIT_FOR_ALL,
    Absence,
    Answer,
    Attendance,
    Engine,
    InProcess,
    Limits,
    SiloResult,
    SiloTask,
    TaskKind,
    check_quorum,
)
from silohash.training.engines.worker_processes import WorkerProcesses
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays

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


FEDAVG = {"name": "fedavg"}
FEDCAFE = {"name": "fedcafe", "memory": "class_mean", "min_count": 1}


class Losing(InProcess):
    """An engine that loses the answers of some silos, and to which others are not connected.

    Args:
        lost: the kind of task of each silo whose answer is lost, with the silo's number.
        away: numbers of the silos that are not connected.
    """

    def __init__(self, worker: Worker, lost: set[tuple[TaskKind, int]], away: set[int]) -> None:
        super().__init__(worker)
        self.lost, self.away, self.cancelled, self.tasks = lost, away, 0, []

    def live(self, silos: Sequence[int]) -> list[int]:
        return [silo for silo in silos if silo not in self.away]

    def status(self) -> Mapping[int, str]:
        return dict.fromkeys(self.away, "is not connected")

    def cancel(self) -> None:
        self.cancelled += 1

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        for task in tasks:
            self.tasks.append((task.kind, task.silo))
            lost = (task.kind, task.silo) in self.lost
            yield Absence(task.silo, "did not answer") if lost else self.worker.do(task)


class Counting(Losing):
    """An engine that checks the quorum after the last answer, as those of several machines do."""

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        absent: list[str] = []
        sent = 0
        for answer in super().send(tasks, limits):
            sent += 1
            absent += [f"silo {answer.silo} {answer.reason}"] if isinstance(answer, Absence) else []
            yield answer
        check_quorum(absent, sent, limits)


def trained(
    lost: set[tuple[TaskKind, int]] = frozenset(), away: set[int] = frozenset(), *, method: Mapping[str, Any] = FEDAVG,
    held_bytes: int = 1 << 27, quorum: int = 1, validation: int = 5, connection: type[Losing] = Losing,
):  # fmt: skip
    inputs, listener = prepared((30, 20, 10), federated={**method, "rounds": 1}, validation=validation), Records()
    worker = Worker(inputs, torch.device("cpu"))
    engine = connection(worker, lost, away)
    settings = RoundSettings(
        rounds=1, silos=[name for name, _, _ in inputs.silos], validate=bool(validation), held_bytes=held_bytes,
        limits=Limits(quorum=quorum),
    )  # fmt: skip
    state = worker.first_state()
    try:
        state = run_rounds(
            state, federated=inputs.resolved.federated, engine=engine, settings=settings, observers=[listener]
        )
    except UserError as error:
        return error, engine
    return state, listener.records[0], engine


@pytest.mark.parametrize("held_bytes", [0, 1 << 27])
@pytest.mark.parametrize("method", [FEDAVG, FEDCAFE], ids=lambda method: method["name"])
def test_silo_without_an_answer_is_left_out_like_a_rejected_one(method: Mapping[str, Any], held_bytes: int) -> None:
    state, record, _ = trained({("train", 1)}, method=method, held_bytes=held_bytes)
    assert [silo.rejected for silo in record.silos] == [None, "did not answer", None]
    assert [(silo.items, silo.loss is None) for silo in record.silos] == [(30, False), (0, True), (10, False)]
    away, other, engine = trained(away={1}, method=method, held_bytes=held_bytes)
    assert ("train", 1) not in engine.tasks
    assert [silo.rejected for silo in other.silos] == [None, "is not connected", None]
    for name, array in state.server.params.items():
        np.testing.assert_allclose(array, away.server.params[name], rtol=1e-5, atol=1e-7)
    everyone, _, _ = trained(method=method, held_bytes=held_bytes)
    assert not same_arrays(state.server.params, everyone.server.params)


def test_silo_that_is_lost_between_statistics_and_update_is_left_out() -> None:
    state, record, engine = trained({("finish", 1)}, method=FEDCAFE)
    assert ("finish", 1) in engine.tasks
    assert [silo.rejected for silo in record.silos] == [None, "did not answer", None]
    everyone, _, _ = trained(method=FEDCAFE)
    assert not same_arrays(state.server.params, everyone.server.params)


def test_quorum_holds_between_statistics_and_update_too() -> None:
    error, engine = trained({("finish", 1), ("finish", 2)}, method=FEDCAFE, quorum=2, connection=Counting)
    assert "1 of 3 silos answered, and 2 must: silo 1 did not answer; silo 2 did not answer" in str(error)
    assert engine.cancelled == 1


class Arriving(Losing):
    """An engine to which a silo connects while a round begins."""

    def status(self) -> Mapping[int, str]:
        found = super().status()
        self.away = set()
        return found

    def live(self, silos: Sequence[int]) -> list[int]:
        away = self.status()
        return [silo for silo in silos if silo not in away]


def test_silo_that_connects_while_a_round_begins_takes_part_in_the_next() -> None:
    attendance = Attendance(Arriving(None, set(), {1}), WAIT_FOR_ALL)
    assert attendance.invited([0, 1, 2]) == [0, 2]
    assert attendance.absent == {1: "is not connected"}
    assert attendance.invited([0, 1, 2]) == [0, 1, 2]


def test_validation_counts_the_silos_that_answer() -> None:
    _, everyone, _ = trained()
    _, without, _ = trained({("validate", 0)})
    assert None not in (everyone.validation, without.validation)
    assert everyone.validation != without.validation
    assert [silo.rejected for silo in without.silos] == [None, None, None]


@pytest.mark.whole_run
def test_round_without_absences_is_that_of_the_loop() -> None:
    state, _, engine = trained()
    assert engine.cancelled == 0
    assert same_arrays(
        state.server.params, run_loop(prepared((30, 20, 10), validation=5, federated={"rounds": 1})).server.params
    )


def test_quorum_of_live_silos() -> None:
    error, engine = trained(away={0, 2}, quorum=2)
    assert str(error) == (
        "1 of 3 silos can take part, and 2 must: silo 0 is not connected. Start the silos, then resume the run."
    )
    assert (engine.tasks, engine.cancelled) == ([], 1)
    assert len(trained(away={0, 2}, quorum=1)) == 3


def test_round_without_any_answer() -> None:
    error, engine = trained({("train", silo) for silo in range(3)})
    assert str(error) == "Round 1: no silo answered. Start the silos, then resume the run."
    assert engine.cancelled == 1


def test_silos_that_are_not_drawn_need_not_be_live() -> None:
    attendance = Attendance(Losing(None, set(), {0}), replace(WAIT_FOR_ALL, quorum=5))
    assert attendance.invited([1, 2]) == [1, 2]
    assert attendance.absent == {}
    task = SiloTask("weigh", 1, Message("broadcast", "server", 0))
    attendance.engine.lost = {("weigh", 1)}
    assert list(attendance.results([task])) == []
    assert attendance.absent == {1: "did not answer"}


@pytest.mark.parametrize(("absent", "quorum"), [(0, 3), (1, 2), (2, 1), (3, 0), (0, 9)])
def test_quorum_that_is_reached(absent: int, quorum: int) -> None:
    check_quorum(["south was away"] * absent, 3, Limits(quorum=quorum))


def test_quorum_that_is_not_reached() -> None:
    with pytest.raises(
        TooFewSilos, match=r"^1 of 3 silos answered, and 2 must: south was away; west hung\. Start the run"
    ):
        check_quorum(["south was away", "west hung"], 3, Limits(quorum=2))
