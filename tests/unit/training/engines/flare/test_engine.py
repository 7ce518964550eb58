"""The engine over FLARE's tasks, with a controller that answers as sites do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from silohash.base.errors import JobFailed, TooFewSilos
from silohash.methods.message import Message
from silohash.training.engines.port import Absence, Limits, SiloResult, SiloTask
from silohash.training.engines.wire import decode_task, encode_result

pytest.importorskip("nvflare")

from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from silohash.training.engines.flare.engine import MESSAGE, FlareEngine

NAMES = ("north", "south", "west")
Answers = Callable[[str, Message], Shareable | None]


@dataclass
class Controller:
    """Answers each task at once, or never."""

    answers: Answers

    def __post_init__(self) -> None:
        self.cancelled: list[str] = []
        self.targets: dict[int, str] = {}

    def send(self, *, task: Task, fl_ctx: object, targets: list[str]) -> None:
        (target,) = targets
        self.targets[id(task)] = target
        result = self.answers(target, Message.decode(task.data[MESSAGE]))
        if result is not None:
            for _ in range(2):  # a site may repeat itself
                task.result_received_cb(client_task=SimpleNamespace(result=result), fl_ctx=fl_ctx)

    def cancel_task(self, task: Task, fl_ctx: object) -> None:
        self.cancelled.append(self.targets[id(task)])


def reply(content: bytes) -> Shareable:
    made = make_reply(ReturnCode.OK)
    made[MESSAGE] = content
    return made


def result_of(message: Message, **changes: object) -> bytes:
    task = decode_task(message)
    update = Message("update", NAMES[task.silo], task.broadcast.round, {"w": np.ones(2)}, counts={"items": 3})
    return encode_result(replace(SiloResult(task.silo, update, {}, 0.5, {}, 0.1), **changes))


def good(name: str, message: Message) -> Shareable:
    return reply(result_of(message))


def made(answers: Answers, connected: tuple[str, ...] = NAMES) -> tuple[FlareEngine, Controller, Signal]:
    controller, abort = Controller(answers), Signal()
    clients = [SimpleNamespace(name=name) for name in connected]
    context = SimpleNamespace(get_engine=lambda: SimpleNamespace(get_clients=lambda: clients))
    engine = FlareEngine(controller, context, abort, "first")  # type: ignore[arg-type]
    engine.start(NAMES)
    return engine, controller, abort


def tasks(*silos: int) -> list[SiloTask]:
    return [SiloTask("train", silo, Message("broadcast", "server", 4)) for silo in silos]


def test_answers_come_in_the_order_of_the_tasks_with_the_name_of_the_run() -> None:
    seen = []

    def noting(name: str, message: Message) -> Shareable:
        seen.append((name, message.notes["run"], message.round))
        return good(name, message)

    engine, controller, _ = made(noting)
    answers = list(engine.send(tasks(2, 0), Limits(10.0, 2)))
    assert [(answer.silo, answer.update.sender) for answer in answers] == [(2, "west"), (0, "north")]
    assert seen == [("west", "first", 4), ("north", "first", 4)]
    assert controller.cancelled == []


def test_silent_silo_is_absent_at_the_deadline_and_later_not_waited_for() -> None:
    engine, controller, _ = made(lambda name, message: None if name == "south" else good(name, message))
    for _ in range(2):
        assert engine.live([0, 1, 2]) == [0, 1, 2]
        answers = list(engine.send(tasks(0, 1, 2), Limits(0.3, 2)))
        assert answers[1] == Absence(1, "did not answer within 0.3 seconds")
        assert [answer.silo for answer in answers] == [0, 1, 2]
    assert controller.cancelled == ["south", "south"]
    assert engine.live([0, 1, 2]) == [0, 2]
    assert engine.status() == {1: "is not waited for, because it did not answer 2 times"}
    engine.heard_of("south")
    engine.heard_of("unknown")
    assert engine.live([1]) == [1]


def test_quorum() -> None:
    engine, _, _ = made(lambda name, message: good(name, message) if name == "north" else None)
    with pytest.raises(TooFewSilos, match=r"1.*3.*2.*south.*west"):
        list(engine.send(tasks(0, 1, 2), Limits(0.2, 2)))
    assert len(list(engine.send(tasks(0, 1, 2), Limits(0.2, 1)))) == 3


BROKEN: dict[str, tuple[Callable[[Message], Shareable], str]] = {
    "damaged": (lambda message: reply(result_of(message)[:-7]), "sent a damaged message"),
    "no result": (lambda message: reply(message.encode()), "sent a damaged message"),
    "failure": (
        lambda message: reply(Message("failure", "site", -1, notes={"failure": "Its trainer ended."}).encode()),
        "reports: Its trainer ended.",
    ),
    "other silo": (lambda message: reply(result_of(message, silo=2)), "answered another task (silo 2, round 4)"),
    "other round": (
        lambda message: reply(result_of(message, update=Message("update", "south", 3, counts={"items": 3}))),
        "answered another task (silo 1, round 3)",
    ),
    "other name": (
        lambda message: reply(result_of(message, update=Message("update", "north", 4, counts={"items": 3}))),
        "answered another task (silo 1, round 4)",
    ),
    "missing count": (
        lambda message: reply(result_of(message, update=Message("update", "south", 4))),
        "left out items in its counts",
    ),
    "code": (
        lambda message: make_reply(ReturnCode.EXECUTION_EXCEPTION),
        "could not carry out its task (EXECUTION_EXCEPTION)",
    ),
    "no message": (lambda message: make_reply(ReturnCode.OK), "could not carry out its task (OK)"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_answer_is_an_absence_with_the_reason(kind: str) -> None:
    spoil, reason = BROKEN[kind]
    engine, _, _ = made(lambda name, message: spoil(message) if name == "south" else good(name, message))
    answers = list(engine.send(tasks(0, 1, 2), Limits(10.0, 1)))
    assert answers[1] == Absence(1, reason)
    assert [type(answer) for answer in answers] == [SiloResult, Absence, SiloResult]
    assert engine.live([1]) == [1]


def test_end_of_the_job_ends_the_round() -> None:
    engine, controller, abort = made(lambda name, message: None)
    abort.trigger(True)
    with pytest.raises(JobFailed):
        list(engine.send(tasks(0, 1)))
    assert controller.cancelled == ["north", "south"]


def test_silos_that_are_not_in_the_job_are_not_live() -> None:
    engine, _, _ = made(good, connected=("north", "stranger"))
    assert engine.live([0, 1, 2]) == [0]
    assert engine.status() == {1: "does not take part in the job", 2: "does not take part in the job"}


def test_stop_withdraws_tasks_under_way() -> None:
    engine, controller, _ = made(lambda name, message: good(name, message) if name == "north" else None)
    answers = engine.send(tasks(0, 1))
    assert next(answers).silo == 0
    engine.stop()
    assert controller.cancelled == ["south"]
