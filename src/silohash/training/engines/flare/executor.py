"""What a site runs in a FLARE job: it passes tasks to the silo's trainer, which is a process of its own.

FLARE ends the whole job if the site's process of the job dies. The trainer, which can fail, is therefore a child.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from silohash.training.engines.flare.engine import MESSAGE, TASK
from silohash.training.sites.kits import SITE_FILE
from silohash.training.sites.trainer_process import TrainerProcess


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
