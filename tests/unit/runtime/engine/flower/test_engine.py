"""The engine over Flower's messages, with silos that answer, are late, or are gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest

from silohash.exchange.message import Message
from silohash.runtime.engine.flower.engine import FlowerEngine
from silohash.runtime.engine.port import Absence, Limits, SiloResult, SiloTask
from silohash.runtime.engine.wire import decode_task, encode_result
from silohash.types import UserError

NAMES = ("north", "south", "west")
Answers = Callable[[str, Message], bytes | str | None]


class Post:
    """Delivers each message at once. A silo without an answer replies when it is released.

    Args:
        answers: the reply to a message of a silo, why there is none, or None while it is late.
    """

    def __init__(self, answers: Answers, connected: Collection[str] = NAMES) -> None:
        self.answers, self.there = answers, connected
        self.sent: dict[str, tuple[str, bytes, float | None]] = {}
        self.released: set[str] = set()
        self.ended: list[str] = []

    def connected(self) -> Collection[str]:
        return self.there

    def send(self, silo: str, content: bytes, seconds: float | None) -> str | None:
        if silo not in self.there:
            return None
        number = f"message {len(self.sent)}"
        self.sent[number] = (silo, content, seconds)
        return number

    def receive(self, messages: Collection[str]) -> Mapping[str, bytes | str]:
        back: dict[str, bytes | str] = {}
        for number in reversed(list(messages)):  # the last that was sent is the first that is answered
            assert number not in self.ended, "a reply is only given once"
            silo, content, _ = self.sent[number]
            message = Message.decode(content)
            answer = result_of(message) if number in self.released else self.answers(silo, message)
            if answer is not None:
                back[number] = answer
                self.ended.append(number)
        return back


def result_of(message: Message, **changes: object) -> bytes:
    task = decode_task(message)
    update = Message("update", NAMES[task.silo], task.broadcast.round, {"w": np.ones(2)}, counts={"items": 3})
    return encode_result(replace(SiloResult(task.silo, update, {}, 0.5, {}, 0.1), **changes))


def good(name: str, message: Message) -> bytes:
    return result_of(message)


def made(answers: Answers, connected: Collection[str] = NAMES) -> tuple[FlowerEngine, Post]:
    post = Post(answers, connected)
    engine = FlowerEngine(post, "first")
    engine.start(NAMES)
    return engine, post


def tasks(*silos: int) -> list[SiloTask]:
    return [SiloTask("train", silo, Message("broadcast", "server", 4)) for silo in silos]


def test_answers_come_in_the_order_of_the_tasks_whatever_the_order_of_the_replies() -> None:
    engine, post = made(good)
    answers = list(engine.send(tasks(2, 0, 1), Limits(10.0, 2)))
    assert [(answer.silo, answer.update.sender) for answer in answers] == [(2, "west"), (0, "north"), (1, "south")]
    assert post.ended == ["message 2", "message 1", "message 0"]
    for silo, content, seconds in post.sent.values():
        message = Message.decode(content)
        assert (message.notes["run"], message.notes["task"], message.round) == ("first", "train", 4)
        assert NAMES[message.counts["silo"]] == silo
        assert seconds == 20.0


def test_arrays_and_references_arrive_as_they_were_sent() -> None:
    engine, post = made(good)
    weights = {"w": np.array([1.5, -0.0, np.pi], np.float32), "n": np.arange(3, dtype=np.int64)}
    kept, best = {"stored": np.array([3, 1])}, {"stored": np.array([1, 0])}
    task = SiloTask("train", 1, Message("broadcast", "server", 4, params=weights), kept=kept, best=best)
    list(engine.send([task]))
    ((_, content, seconds),) = post.sent.values()
    read = decode_task(Message.decode(content))
    assert seconds is None
    assert {name: array.tobytes() for name, array in read.broadcast.params.items()} == {
        name: array.tobytes() for name, array in weights.items()
    }
    assert read.kept["stored"].tolist() == [3, 1]
    assert read.best["stored"].tolist() == [1, 0]


def test_late_silo_is_absent_and_not_sent_a_task_until_its_reply_has_come() -> None:
    engine, post = made(lambda name, message: None if name == "south" else result_of(message))
    answers = list(engine.send(tasks(0, 1, 2), Limits(0.05, 2)))
    assert answers[1] == Absence(1, "did not answer within 0.05 seconds")
    assert [type(answer) for answer in answers] == [SiloResult, Absence, SiloResult]
    assert engine.live([0, 1, 2]) == [0, 2]
    assert engine.status() == {1: "has not finished an earlier task"}
    list(engine.send(tasks(0, 2), Limits(10.0, 2)))
    post.released.add("message 1")
    assert engine.live([0, 1, 2]) == [0, 1, 2]
    post.answers = good
    (answer,) = engine.send(tasks(1))
    assert isinstance(answer, SiloResult)
    assert post.ended.count("message 1") == 1


def test_late_silo_whose_message_runs_out_of_time_is_sent_tasks_again() -> None:
    engine, post = made(lambda name, message: None)
    (answer,) = engine.send(tasks(1), Limits(0.05, 0))
    assert answer == Absence(1, "did not answer within 0.05 seconds")
    assert engine.live([1]) == []
    post.answers = lambda name, message: "could not carry out its task"
    assert engine.live([1]) == [1]


def test_silos_that_are_not_connected_are_not_live() -> None:
    engine, post = made(good, connected=("north", "stranger"))
    assert engine.live([0, 1, 2]) == [0]
    assert engine.status() == {1: "is not connected", 2: "is not connected"}
    assert list(engine.send(tasks(1), Limits(1.0, 0))) == [Absence(1, "is no longer connected")]
    assert post.sent == {}


BROKEN: dict[str, tuple[Callable[[Message], bytes | str], str]] = {
    "gone": (lambda message: "is no longer connected", "is no longer connected"),
    "damaged": (lambda message: result_of(message)[:-7], "sent a damaged message"),
    "empty": (lambda message: b"", "sent a damaged message"),
    "failure": (
        lambda message: Message("failure", "site", -1, notes={"failure": "Its trainer ended."}).encode(),
        "reports: Its trainer ended.",
    ),
    "other silo": (lambda message: result_of(message, silo=2), "answered another task (silo 2, round 4)"),
    "other round": (
        lambda message: result_of(message, update=Message("update", "south", 3, counts={"items": 3})),
        "answered another task (silo 1, round 3)",
    ),
    "other name": (
        lambda message: result_of(message, update=Message("update", "north", 4, counts={"items": 3})),
        "answered another task (silo 1, round 4)",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_answer_is_an_absence_with_the_reason(kind: str) -> None:
    spoil, reason = BROKEN[kind]
    engine, _ = made(lambda name, message: spoil(message) if name == "south" else result_of(message))
    answers = list(engine.send(tasks(0, 1, 2), Limits(10.0, 1)))
    assert answers[1] == Absence(1, reason)
    assert [type(answer) for answer in answers] == [SiloResult, Absence, SiloResult]
    assert engine.live([1]) == [1]


def test_quorum() -> None:
    engine, _ = made(lambda name, message: "is no longer connected." if name != "north" else result_of(message))
    with pytest.raises(
        UserError, match=r"^1 of 3 silos answered, and 2 must: south is no longer connected; west is .*continues"
    ):
        list(engine.send(tasks(0, 1, 2), Limits(10.0, 2)))
    assert len(list(engine.send(tasks(0, 1, 2), Limits(10.0, 1)))) == 3


def test_tasks_that_are_given_up_keep_their_silos_busy() -> None:
    engine, post = made(lambda name, message: result_of(message) if name == "north" else None)
    answers = engine.send(tasks(0, 1, 2), Limits(10.0))
    assert next(answers).silo == 0
    engine.stop()
    assert engine.live([0, 1, 2]) == [0]
    post.released |= {"message 1", "message 2"}
    assert engine.live([0, 1, 2]) == [0, 1, 2]
    assert engine.status() == {}
