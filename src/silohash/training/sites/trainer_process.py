"""The trainer of a silo as a child process: what an engine's process at a silo passes tasks to.

The trainer needs the memory and can fail. If it dies, the answer says that it did, and the next task starts another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

from silohash.methods.message import Message
from silohash.training.engines.processes import ProcessEndedError, ProcessPool

POLL_SECONDS = 0.2


class TrainerProcess:
    """Pass tasks to the installed trainer, one at a time. A task cannot choose what is started.

    Args:
        file: The silo's own file.
        notify: Called with a line when the trainer has died.
    """

    def __init__(self, file: Path, notify: Callable[[str], None]) -> None:
        self.file, self.notify = file, notify
        self.pool: ProcessPool | None = None

    def answer(self, request: bytes, withdrawn: Callable[[], bool]) -> bytes | None:
        """Return the trainer's answer to a task, or a message that says that it died.

        Args:
            request: The encoded task.
            withdrawn: Tells whether the task is withdrawn meanwhile. The trainer is then stopped.

        Returns:
            The encoded message; None if the task was withdrawn.
        """
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
