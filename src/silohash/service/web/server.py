"""The web server of the commands: it stops at a signal after the requests that are being answered."""

from __future__ import annotations

from types import FrameType

import uvicorn


class Server(uvicorn.Server):
    """A server that stops once at SIGINT or SIGTERM, however often the signal comes.

    uvicorn's own breaks off at the second signal, and raises the first one again when it has stopped.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests that are being answered."""
        self.should_exit = True
