"""The web server of the commands: it stops at a signal after the requests that are being answered."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn


class Server(uvicorn.Server):
    """A server that stops once at SIGINT or SIGTERM, however often the signal comes.

    uvicorn's own breaks off at the second signal, and raises the first one again when it has stopped.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests that are being answered."""
        self.should_exit = True


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM, except while a server handles them, so that the process ends in good order."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
