"""The engine port over the messages of a Flower job. It runs in the process of whoever started the run."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from silohash.runtime.engine.attendance import check_quorum
from silohash.runtime.engine.port import WAIT_FOR_ALL, Absence, Answer, Limits, SiloTask
from silohash.runtime.engine.wire import decode_answer, encode_distant_task

AWAY = "is not connected"
"""Why a silo is not live whose process has not connected, or is gone."""

BUSY = "has not finished an earlier task"
"""Why a silo is not live that did not answer in time, and may still be at work."""

LATENESS = 2.0
"""Multiple of the time for an answer after which a task that is not answered is given up for good."""

POLL_SECONDS = 0.2


class Letters(Protocol):
    """The interface of what carries messages to silos, and their replies."""

    def connected(self) -> Collection[str]:
        """Return the names of the silos that are connected."""
        ...

    def send(self, silo: str, content: bytes, seconds: float | None) -> str | None:
        """Send a message.

        Args:
            silo: name of the silo.
            content: the message.
            seconds: time after which it is no longer delivered, and a reply no longer accepted; None for half a day.

        Returns:
            The message's id, or None if it cannot be sent.
        """
        ...

    def receive(self, messages: Collection[str]) -> Mapping[str, bytes | str]:
        """Return what has come back for messages since the last call.

        Args:
            messages: ids of the messages.

        Returns:
            By the id of each message that has come to an end, the reply, or why there is none.
        """
        ...


class FlowerEngine:
    """Send tasks to silos as messages.

    A silo works on one message at a time, and a message cannot be withdrawn. A silo that is late is therefore not sent
    another task until its late reply, which is not used, has come, or the message has run out of time.

    Args:
        letters: carries the messages.
        run: name of the run, under which silos store what they keep.
    """

    def __init__(self, letters: Letters, run: str) -> None:
        self.letters, self.run = letters, run
        self.names: tuple[str, ...] = ()
        self._under_way: dict[str, int] = {}
        self._late: dict[str, int] = {}
        self._arrived: dict[str, bytes | str] = {}

    def start(self, silos: Sequence[str]) -> None:
        """Note the names of the silos."""
        self.names = tuple(silos)

    def live(self, silos: Sequence[int]) -> list[int]:
        """Return the silos that are connected and have finished their earlier tasks."""
        away = self.status()
        return [silo for silo in silos if silo not in away]

    def status(self) -> Mapping[int, str]:
        """Return which silos are not connected, or still at work on a task whose answer is no longer waited for."""
        self._receive()
        connected = self.letters.connected()
        away = {silo: AWAY for silo, name in enumerate(self.names) if name not in connected}
        return dict.fromkeys(self._late.values(), BUSY) | away

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Send all tasks at once, and yield the answers in the order of the tasks.

        Raises:
            UserError: if fewer silos than the quorum answer, or the server cannot be reached.
        """
        seconds = limits.deadline_seconds
        until = math.inf if seconds is None else time.monotonic() + seconds
        sent = [(task, self._send(task, seconds)) for task in tasks]
        absent: list[str] = []
        try:
            for task, message in sent:
                answer = self._answer(task, message, until)
                if isinstance(answer, Absence):
                    late = answer.reason or f"did not answer within {seconds:g} seconds"
                    answer = replace(answer, reason=late)
                    absent.append(f"{self.names[answer.silo]} {late.removesuffix('.')}")
                yield answer
        finally:
            self.cancel()
        check_quorum(absent, len(sent), limits)

    def cancel(self) -> None:
        """No longer wait for the tasks that are under way. Their silos finish them, and their answers are not used."""
        self._late.update(self._under_way)
        self._under_way.clear()
        self._arrived.clear()

    def stop(self) -> None:
        """No longer wait for any task."""
        self.cancel()

    def _send(self, task: SiloTask, seconds: float | None) -> str | None:
        broadcast = replace(task.broadcast, notes={**task.broadcast.notes, "run": self.run})
        content = encode_distant_task(replace(task, broadcast=broadcast))
        message = self.letters.send(self.names[task.silo], content, None if seconds is None else seconds * LATENESS)
        if message is not None:
            self._under_way[message] = task.silo
        return message

    def _receive(self) -> None:
        """Take what has come back, and forget late replies."""
        waited_for = [*self._under_way, *self._late]
        for message, content in (self.letters.receive(waited_for) if waited_for else {}).items():
            if self._late.pop(message, None) is None and message in self._under_way:
                del self._under_way[message]
                self._arrived[message] = content

    def _answer(self, task: SiloTask, message: str | None, until: float) -> Answer:
        """Wait for the answer to a task, at most until a time. An absence without a reason says that it did not come."""
        if message is None:
            return Absence(task.silo, "is no longer connected")
        while message not in self._arrived:
            self._receive()
            if message in self._arrived:
                break
            if time.monotonic() >= until:
                return Absence(task.silo, "")
            time.sleep(POLL_SECONDS)
        content = self._arrived.pop(message)
        if isinstance(content, str):
            return Absence(task.silo, content)
        return decode_answer(task, self.names[task.silo], content)
