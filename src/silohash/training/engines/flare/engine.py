"""The engine port over the tasks of an NVIDIA FLARE job. It runs in the server's process of the job."""

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silohash.base.errors import JobFailed
from silohash.training.engines.port import WAIT_FOR_ALL, Absence, Answer, Engine, Limits, SiloTask, check_quorum
from silohash.training.engines.wire import decode_answer, encode_distant_task

TASK = "silohash"
"""Name of the only task that sites know."""

MESSAGE = "message"
"""Key of the encoded message in what FLARE transports."""

MISSES = 2
"""A silo that misses this many answers in a row is not waited for, until it is heard of again."""

ENDED = "FLARE has ended the job"
"""Beginning of the message of a round that FLARE interrupts."""

NOT_IN_JOB = "does not take part in the job"
"""Why a silo is not live that was not connected when the job began, or refuses it, or whose process of the job has ended."""

SILENT = "is not waited for, because it did not answer"
"""Beginning of the reason why a silo is not live that missed several answers."""

POLL_SECONDS = 0.1


@dataclass
class _Sent:
    """A task under way, and what came back for it."""

    task: SiloTask
    flare: Task
    arrived: threading.Event = field(default_factory=threading.Event)
    content: bytes | None = None
    failure: str = ""

    def receive(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Take the first result, and release FLARE's copy."""
        result = client_task.result
        client_task.result = None
        if self.arrived.is_set():
            return
        code = result.get_return_code() if result is not None else ReturnCode.EMPTY_RESULT
        content = None if result is None else result.get(MESSAGE)
        if code == ReturnCode.OK and isinstance(content, bytes):
            self.content = content
        else:
            self.failure = f"could not carry out its task ({code})"
        self.arrived.set()


class FlareEngine(Engine):
    """Send tasks to the sites of a FLARE job, which store what they keep under the name of the run."""

    def __init__(self, controller: Controller, context: FLContext, abort: Signal, run: str) -> None:
        self.controller, self.context, self.abort, self.run = controller, context, abort, run
        self.names: tuple[str, ...] = ()
        self.missed: dict[int, int] = {}
        self._under_way: list[_Sent] = []

    def start(self, silos: Sequence[str]) -> None:
        """Note the names of the silos."""
        self.names = tuple(silos)

    def heard_of(self, name: str) -> None:
        """Wait for a silo again, because it sent something."""
        if name in self.names:
            self.missed.pop(self.names.index(name), None)

    def status(self) -> Mapping[int, str]:
        """Return which silos do not take part in the job, or do not answer."""
        members = {client.name for client in self.context.get_engine().get_clients()}
        reasons = {silo: NOT_IN_JOB for silo, name in enumerate(self.names) if name not in members}
        quiet = {silo: f"{SILENT} {missed} times" for silo, missed in dict(self.missed).items() if missed >= MISSES}
        return quiet | reasons

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Send all tasks at once, and yield the answers in the order of the tasks, unless FLARE ends the job."""
        seconds = math.inf if limits.deadline_seconds is None else limits.deadline_seconds
        until = time.monotonic() + seconds
        self._under_way = [self._send(task) for task in tasks]
        sent = list(self._under_way)
        absent: list[str] = []
        try:
            for one in sent:
                answer = self._answer(one, until, seconds)
                if isinstance(answer, Absence):
                    absent.append(f"{self.names[answer.silo]} {answer.reason.removesuffix('.')}")
                one.content = None
                yield answer
        finally:
            self.cancel()
        check_quorum(absent, len(sent), limits)

    def cancel(self) -> None:
        """Withdraw the tasks that are not answered. FLARE tells the sites to stop them."""
        for one in self._under_way:
            if not one.arrived.is_set():
                self.controller.cancel_task(one.flare, fl_ctx=self.context)
        self._under_way = []

    def stop(self) -> None:
        """Withdraw all tasks. The sites end their trainers with the job."""
        self.cancel()

    def _send(self, task: SiloTask) -> _Sent:
        broadcast = replace(task.broadcast, notes={**task.broadcast.notes, "run": self.run})
        data = Shareable()
        data[MESSAGE] = encode_distant_task(replace(task, broadcast=broadcast))
        flare = Task(name=TASK, data=data, timeout=0)
        sent = _Sent(task, flare)
        flare.result_received_cb = sent.receive
        self.controller.send(task=flare, fl_ctx=self.context, targets=[self.names[task.silo]])
        return sent

    def _answer(self, sent: _Sent, until: float, seconds: float) -> Answer:
        silo, left = sent.task.silo, True
        while left and not sent.arrived.wait(POLL_SECONDS):
            if self.abort.triggered:
                raise JobFailed(f"{ENDED}. Start the run again: it continues after its last round.")
            left = time.monotonic() < until and sent.flare.completion_status is None
        if not sent.arrived.is_set():
            self.missed[silo] = self.missed.get(silo, 0) + 1
            late = time.monotonic() >= until
            return Absence(silo, f"did not answer within {seconds:g} seconds" if late else "is no longer connected")
        self.missed.pop(silo, None)
        if sent.content is None:
            return Absence(silo, sent.failure)
        return decode_answer(sent.task, self.names[silo], sent.content)
