"""One process at a time in a folder, by a lock that the system lets go of when its holder ends, however it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from silohash.files import explaining_disk_errors
from silohash.types import UserError

POLL_SECONDS = 0.05


@contextmanager
def locked(folder: Path, refusal: str, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Holds the lock of a folder (``.lock`` in it) while the block runs.

    Args:
        folder: is made if it is not there.
        refusal: the sentence for when another process holds the lock.
        wait_seconds: how long to wait for it to let go.

    Raises:
        UserError: if another process holds it still.
    """
    import fcntl

    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("ab")
    with stream:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise UserError(refusal) from error
                time.sleep(POLL_SECONDS)
        yield
