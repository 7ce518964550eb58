"""Open SQLite files, tell when they have changed, and explain what can go wrong with them."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from silohash.base.errors import DamagedFile, InUse, UnreadableFile, UserError
from silohash.base.files import closed_on_error, explaining_disk_errors

WAIT_SECONDS = 30.0
"""How long a connection waits for another program that writes to the file."""

Signature: TypeAlias = tuple[int, int, int]
"""Number, size and time of change of a file."""


def signature(path: Path) -> Signature:
    """Return values of a file that change when it is written or replaced."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


def connect(
    path: Path, *, mode: str = "rw", immutable: bool = False, wait_seconds: float = WAIT_SECONDS
) -> sqlite3.Connection:
    """Open a connection with manual transactions in a mode of SQLite: "rw", "rwc" to create the file, or "ro".

    An immutable file is read as if it never changes, without locks and without files beside it.
    """
    place = f"{path.resolve().as_uri()}?mode={mode}{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(place, uri=True, timeout=wait_seconds, isolation_level=None, check_same_thread=False)


def connect_and_read(path: Path) -> sqlite3.Connection:
    """Open a connection and read a first value, which fails if SQLite cannot write beside the file."""
    with closed_on_error(connect(path)) as connection:
        connection.execute("PRAGMA user_version").fetchone()
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a write transaction, which is applied as a whole or not at all."""
    # A transaction that reads before it writes fails at once if another process is writing; this one waits.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has ended the transaction itself after some errors, such as a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def damaged(path: Path, how: str) -> UserError:
    """Return the error for a damaged file."""
    return DamagedFile(f"The index {path} is damaged ({how}). Restore it from a copy, or build the index again.")


@contextmanager
def explaining_database_errors(path: Path) -> Iterator[None]:
    """Translate SQLite errors into messages that say what to do.

    Raises:
        UserError: In place of a database error.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        code = primary_code(error)
        if code == sqlite3.SQLITE_BUSY:
            raise InUse(f"Another program is changing the index {path}. Try again when it has finished.") from error
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR}:
            raise UnreadableFile(
                f"The index {path} cannot be read or written ({error}). Check the permissions of its folder."
            ) from error
        if code == sqlite3.SQLITE_FULL:
            with explaining_disk_errors(path):
                raise OSError(errno.ENOSPC, str(error)) from error
        raise damaged(path, str(error)) from error


def primary_code(error: sqlite3.DatabaseError) -> int:
    """Return the primary result code of an error."""
    # Errors that Python raises itself, such as that of a text that is not UTF-8, have no code.
    return (error.sqlite_errorcode if hasattr(error, "sqlite_errorcode") else sqlite3.SQLITE_CORRUPT) & 0xFF
