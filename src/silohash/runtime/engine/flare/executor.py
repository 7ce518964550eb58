"""What a site runs in a FLARE job: it passes tasks to the silo's trainer, which is a process of its own.

FLARE ends the whole job if the site's process of the job dies. The trainer, which needs the memory and can fail, is
therefore a child. If it dies, the site answers that it did, and the next task starts another one.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from silohash.exchange.message import Message
from silohash.runtime.engine.flare.engine import MESSAGE, TASK
from silohash.runtime.engine.flare.kits import SITE_FILE
from silohash.runtime.engine.processes import ProcessEndedError, ProcessPool

POLL_SECONDS = 0.2


class TrainerExecutor(Executor):  # type: ignore[misc]  # FLARE has no types
    """Pass tasks to the trainer of the silo. A job cannot choose what is started."""

    def __init__(self) -> None:
        super().__init__()
        self.trainer: ProcessPool | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Stop the trainer at the end of the job."""
        if event_type in (EventType.END_RUN, EventType.ABOUT_TO_END_RUN):
            self._stop()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the trainer's answer to a task, or that it died."""
        request = shareable.get(MESSAGE)
        if task_name != TASK or not isinstance(request, bytes):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if self.trainer is None:
            file = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / SITE_FILE
            self.trainer = ProcessPool([sys.executable, "-m", "silohash.runtime.sites.trainer", str(file)], 1)
        answer = self.trainer.submit(lambda exchange: exchange(request))
        while not abort_signal.triggered:
            try:
                return _reply(answer.result(timeout=POLL_SECONDS))
            except NotYet:
                continue
            except ProcessEndedError as error:
                self.log_error(fl_ctx, f"The trainer ended with exit status {error.status}.")
                return _reply(_failure(f"Its trainer ended (exit status {error.status})."))
        self._abandon(answer)
        return make_reply(ReturnCode.TASK_ABORTED)

    def _abandon(self, answer: Future[bytes]) -> None:
        """Stop a trainer whose task is withdrawn. The next task starts another one."""
        answer.cancel()
        self._stop()

    def _stop(self) -> None:
        if self.trainer is not None:
            self.trainer.close()
            self.trainer = None


def _failure(reason: str) -> bytes:
    return Message(kind="failure", sender="site", round=-1, notes={"failure": reason}).encode()


def _reply(content: bytes) -> Shareable:
    reply = make_reply(ReturnCode.OK)
    reply[MESSAGE] = content
    return reply
