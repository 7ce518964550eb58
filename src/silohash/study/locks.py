"""Folder locks. The operating system releases a lock when the process that holds it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from silohash.files import explaining_disk_errors
from silohash.types import UserError

LOCK = ".lock"


@contextmanager
def locked(folder: Path, refusal: str, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder while the block runs.

    Args:
        folder: created if it does not exist.
        refusal: the message if another process holds the lock.
        wait_seconds: how long to wait for the other process.

    Raises:
        UserError: if another process still holds the lock.
    """
    lock = FileLock(folder / LOCK, timeout=wait_seconds)
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout as error:
            raise UserError(refusal) from error
    try:
        yield
    finally:
        lock.release()
