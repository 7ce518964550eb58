"""What a site runs in a FLARE job: it passes tasks to the silo's trainer, which is a process of its own.

FLARE ends the whole job if the site's process of the job dies. The trainer, which needs the memory and can fail, is a child
of that process. If it dies, the answer says that it did, and the next task starts another one.
"""

import sys
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from silohash.methods.message import Message
from silohash.training.engines.flare.engine import MESSAGE, TASK
from silohash.training.engines.processes import ProcessEndedError, ProcessPool
from silohash.training.sites.kits import SITE_FILE

POLL_SECONDS = 0.2


class TrainerProcess:
    """Pass tasks to the installed trainer, which reads the silo's own file, one at a time.

    A task cannot choose what is started.
    """

    def __init__(self, file: Path, notify: Callable[[str], None]) -> None:
        self.file, self.notify = file, notify
        self.pool: ProcessPool | None = None

    def answer(self, request: bytes, withdrawn: Callable[[], bool]) -> bytes | None:
        """Return the trainer's answer to a task, or a message that says that it died; None if the task was withdrawn."""
        if self.pool is None:
            self.pool = ProcessPool([sys.executable, "-m", "silohash.training.sites.trainer", str(self.file)], 1)
        answer = self.pool.submit(lambda exchange: exchange(request))
        while not withdrawn():
            try:
                return answer.result(timeout=POLL_SECONDS)
            except NotYet:
                continue
            except ProcessEndedError as error:
                self.notify(f"The trainer ended with exit status {error.status}.")
                notes = {"failure": f"Its trainer ended (exit status {error.status})."}
                return Message(kind="failure", sender="site", round=-1, notes=notes).encode()
        answer.cancel()
        self.stop()
        return None

    def stop(self) -> None:
        """Stop the trainer. The next task starts another one."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None


class TrainerExecutor(Executor):  # type: ignore[misc]  # FLARE has no types
    """Pass tasks to the trainer of the silo."""

    def __init__(self) -> None:
        super().__init__()
        self.trainer: TrainerProcess | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Stop the trainer at the end of the job."""
        if event_type in (EventType.END_RUN, EventType.ABOUT_TO_END_RUN) and self.trainer is not None:
            self.trainer.stop()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the trainer's answer to a task, or that it died."""
        request = shareable.get(MESSAGE)
        if task_name != TASK or not isinstance(request, bytes):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if self.trainer is None:
            folder = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
            self.trainer = TrainerProcess(folder / SITE_FILE, lambda text: self.log_error(fl_ctx, text))
        content = self.trainer.answer(request, lambda: bool(abort_signal.triggered))
        if content is None:
            return make_reply(ReturnCode.TASK_ABORTED)
        reply = make_reply(ReturnCode.OK)
        reply[MESSAGE] = content
        return reply
