"""Locks of folders, so that one command at a time writes to a folder.

The operating system releases a lock when the process that holds it ends, in whatever way. Reading does not take a lock.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from silohash.base.errors import InUse, UserError
from silohash.base.files import explaining_disk_errors, read_json, remove_leftovers, write_json
from silohash.base.types import Notify
from silohash.base.visible import visible

# A search imports this module without taking a lock, and should not wait for the import of filelock.
if TYPE_CHECKING:
    from filelock import FileLock

LOCK = ".lock"
HOLDER = ".lock.json"
"""Name of the file that describes the process that holds the lock. It means nothing while the lock is free."""

LOCK_FILES = frozenset({LOCK, HOLDER})
RUN_SUBFOLDERS = ("index", "model", "onnx")
"""Folders in a run whose files are replaced while the lock of the run is held."""
INPUTS = ".inputs"
"""Folder in a run from which worker processes read the training inputs while they train."""
COMMAND_LENGTH = 300
"""Maximum length of a command line in a message, in characters."""

_held: set[tuple[int, Path]] = set()
"""The threads that hold the locks of folders."""


@contextmanager
def locked(
    folder: Path,
    remedy: str = "Wait until it has finished.",
    *,
    wait_seconds: float = 0.0,
    notify: Notify = lambda text: None,
    temporary: bool = False,
) -> Iterator[bool]:
    """Hold the lock of a folder while the block runs.

    A thread that already holds the lock may enter again; the block learns whether the lock was taken now. A folder that is
    created for the lock is removed afterwards if nothing else was written to it. A temporary one exists for the lock alone,
    and is removed even if another process created it.

    Raises:
        UserError: If another process still holds the lock after ``wait_seconds``, with the process, its host, its command
            and the time at which it took the lock, and the ``remedy``; or if the folder may not be written.
    """
    place = folder.resolve()
    mine = threading.get_ident(), place
    if mine in _held:
        yield False
        return
    missing = [parent for parent in (place, *place.parents) if not parent.exists()]
    with explaining_disk_errors(folder):
        lock = _taken(folder, remedy, wait_seconds, notify)
    try:
        _held.add(mine)
        program, *arguments = sys.argv or ["python"]
        name = "silohash" if "silohash" in program else Path(program).name or "python"
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
        about = _Holder(os.getpid(), socket.gethostname(), since, shlex.join([name, *arguments]))
        write_json(place / HOLDER, asdict(about))
        yield True
    finally:
        _held.discard(mine)
        _leave(lock, place, missing or [place] * temporary)


@contextmanager
def locked_run(folder: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a run, as `locked` does, and first remove what killed processes left in its folder."""
    remedy = "Wait until it has finished, or use another folder."
    with locked(folder, remedy, wait_seconds=wait_seconds) as taken:
        if taken:
            for part in (folder, *(folder / name for name in RUN_SUBFOLDERS)):
                remove_leftovers(part, alone=True)
            shutil.rmtree(folder / INPUTS, ignore_errors=True)
        yield


def _taken(folder: Path, remedy: str, wait_seconds: float, notify: Notify) -> FileLock:
    """Return the lock of a folder, which this process now holds."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder.resolve() / LOCK)
    try:
        try:
            _acquire(lock, folder, 0.0)
        except Timeout:
            if not wait_seconds:
                raise
            notify(f"Waiting for {holder(folder)}, which uses {folder} ...")
            _acquire(lock, folder, wait_seconds)
    except Timeout as error:
        raise InUse(f"{folder} is in use by {holder(folder)}. {remedy}") from error
    return lock


def _acquire(lock: FileLock, folder: Path, wait_seconds: float) -> None:
    """Acquire a lock. Its folder is created again whenever its last holder has removed it."""
    deadline = time.monotonic() + wait_seconds
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        except FileNotFoundError:
            continue
        return


def _leave(lock: FileLock, place: Path, created: list[Path]) -> None:
    """Release the lock, and remove the lock files and the created folders if nothing else was written."""
    # The files are removed while the lock is held, because afterwards they may be those of its next holder.
    with suppress(OSError):
        (place / HOLDER).unlink(missing_ok=True)
    with suppress(OSError):
        if {entry.name for entry in place.iterdir()} <= LOCK_FILES:
            (place / LOCK).unlink(missing_ok=True)
    lock.release()
    # A folder that is not empty stays, and so do its parents.
    with suppress(OSError):
        for folder in created:
            folder.rmdir()


@dataclass(frozen=True)
class _Holder:
    """The content of the file that describes a lock's holder."""

    process: int
    host: str
    since: str
    command: str


def holder(folder: Path) -> str:
    """Return in words which process holds the lock of a folder, as the process itself described it."""
    try:
        about = read_json(folder / HOLDER, _Holder)
    except UserError:
        return "another process"
    return f"process {about.process} on {_short(about.host)} since {_short(about.since)} ({_short(about.command)})"


def _short(value: str) -> str:
    """Return a value as one short line without invisible characters."""
    text = visible(value)
    return text if len(text) <= COMMAND_LENGTH else f"{text[:COMMAND_LENGTH]}…"
