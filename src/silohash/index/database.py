"""The SQLite file beneath a `Store`: its head, its log of codes, its transactions, and what its errors mean.

The log is append-only: an entry adds a run of keys with their codes, or removes some keys. Keys are given in ascending
order and never again. Entries and head carry a checksum, so that a damaged file is refused, never answered from.
"""

from __future__ import annotations

import errno
import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.files import explaining_disk_errors
from silohash.index.base import FORMAT_VERSION, IndexManifest, Keys, positions
from silohash.index.codes import CodeBytes, byte_count
from silohash.types import UserError

APPLICATION_ID = 0x51105A54
ENTRY_ROWS = 1 << 16
WAIT_SECONDS = 30.0

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
CREATE TABLE head (content TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE log (entry INTEGER PRIMARY KEY, keys BLOB NOT NULL, codes BLOB, checksum INTEGER NOT NULL);
CREATE TABLE items (key INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, payload TEXT, checksum INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class Head:
    """The one row that says what the file holds.

    Attributes:
        manifest: as users see it.
        next_key: the key of the next item.
        entries: length of the log.
        named: whether items have ids of their own (else an id is the key); None before the first item.
    """

    manifest: IndexManifest
    next_key: int = 0
    entries: int = 0
    named: bool | None = None


class Database:
    """An open index file. ``head`` is what it holds; it changes only inside `change`."""

    def __init__(self, path: Path) -> None:
        """Opens the file.

        Raises:
            UserError: if it is missing, damaged, of another kind or of a newer format.
        """
        if not path.is_file():
            raise UserError(f"There is no index {path}. Build it first.")
        self.path = path
        self._lock = threading.RLock()
        with self.explained():
            self.connection = connect(path)
            try:
                self._check_kind()
                self.head = self._read_head()
            except BaseException:
                self.connection.close()
                raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        """One thread at a time, with SQLite's errors turned into sentences."""
        with self._lock, explaining_database_errors(self.path):
            yield

    @contextmanager
    def change(self) -> Iterator[Head]:
        """A transaction that writes: all of it, or nothing. Yields the head as it was before."""
        with self.explained():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                before = self.head = self._read_head()
                yield before
                write_head(self.connection, self.head)
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                self.head = self._read_head()
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction that reads one state of the file, whoever else writes."""
        with self.explained():
            self.connection.execute("BEGIN")
            try:
                self.head = self._read_head()
                yield
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def append(self, keys: Keys, packed: CodeBytes | None) -> None:
        """Logs that keys were added with codes ``(n, bytes)``, or removed (None)."""
        entry = self.head.entries + 1
        run, codes = keys.astype("<i8").tobytes(), None if packed is None else packed.tobytes()
        row = (entry, run, codes, _entry_checksum(entry, run, codes))
        self.connection.execute("INSERT INTO log VALUES (?, ?, ?, ?)", row)
        self.head = replace(self.head, entries=entry)

    def removed(self) -> Keys:
        """Returns the removed keys, ascending."""
        runs = [keys for _, keys, _ in self._entries("WHERE codes IS NULL")]
        return np.unique(np.concatenate(runs)) if runs else np.empty(0, np.int64)

    def is_live(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Tells for each key, ``(n,)``, whether its item is there."""
        return (keys >= 0) & (keys < self.head.next_key) & ~positions(self.removed(), keys)[1]

    def live(self) -> Iterator[tuple[Keys, CodeBytes]]:
        """Yields the live keys, ascending, with their codes ``(n, bytes)``; proves that nothing is missing."""
        removed, width = self.removed(), byte_count(self.head.manifest.bits)
        count = entries = 0
        for entry, keys, codes in self._entries():
            entries += 1
            if entry != entries:
                raise damaged(self.path, f"entry {entries} of its log is missing")
            if codes is not None:
                packed = np.frombuffer(codes, np.uint8).reshape(-1, width)
                live = ~positions(removed, keys)[1]
                count += int(np.count_nonzero(live))
                yield (keys, packed) if live.all() else (keys[live], packed[live])
        if (entries, count) != (self.head.entries, self.head.manifest.count):
            raise damaged(self.path, f"it holds {count} items and should hold {self.head.manifest.count}")

    def rewrite(self) -> None:
        """Writes the log anew, without what was removed, and gives the space back."""
        with self.change():
            runs = list(self.live())
            self.connection.execute("DELETE FROM log")
            self.head = replace(self.head, entries=0)
            if runs:
                keys, packed = (np.concatenate(parts) for parts in zip(*runs, strict=True))
                for start in range(0, len(keys), ENTRY_ROWS):
                    self.append(keys[start : start + ENTRY_ROWS], packed[start : start + ENTRY_ROWS])
        with self.explained():
            self.connection.execute("VACUUM")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _entries(self, which: str = "") -> Iterator[tuple[int, Keys, bytes | None]]:
        for row in self.connection.execute(f"SELECT entry, keys, codes, checksum FROM log {which} ORDER BY entry"):  # noqa: S608
            entry, run, codes, checksum = row
            whole = isinstance(run, bytes) and isinstance(codes, bytes | None)
            if not whole or _entry_checksum(entry, run, codes) != checksum:
                raise damaged(self.path, f"entry {entry} of its log has another checksum")
            yield entry, np.frombuffer(run, "<i8").astype(np.int64, copy=False), codes

    def _check_kind(self) -> None:
        kind = self.connection.execute("PRAGMA application_id").fetchone()[0]
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if kind != APPLICATION_ID:
            raise UserError(f"{self.path} is no silohash index. Check the path, or build the index again.")
        if version > FORMAT_VERSION:
            raise UserError(
                f"{self.path} has format {version}, and this silohash reads up to {FORMAT_VERSION}. "
                "Install a newer silohash."
            )

    def _read_head(self) -> Head:
        rows = self.connection.execute("SELECT content, checksum FROM head").fetchall()
        if len(rows) != 1 or checksum_of(rows[0][0]) != rows[0][1]:
            raise damaged(self.path, "its head has another checksum")
        content = json.loads(rows[0][0])
        return Head(**{**content, "manifest": IndexManifest.from_json(content["manifest"])})


def create_file(path: Path, manifest: IndexManifest) -> None:
    """Creates an empty index file, whole or not at all.

    Raises:
        UserError: if there is a file already, or the place may not be written.
    """
    if path.exists():
        raise UserError(f"There is a file {path} already. Open it, or remove it first.")
    beside = path.with_name(f".{path.name}.part")
    with explaining_disk_errors(path), explaining_database_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _unlink(beside)
            connection = connect(beside, mode="rwc")
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
                connection.executescript(SCHEMA)
                write_head(connection, Head(replace(manifest, count=0)))
            finally:
                connection.close()
            beside.replace(path)
        finally:
            _unlink(beside)


def connect(path: Path, *, mode: str = "rw") -> sqlite3.Connection:
    """Opens a connection whose transactions are begun and ended by hand."""
    place = f"{path.resolve().as_uri()}?mode={mode}"
    return sqlite3.connect(place, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    """Puts a new head in the place of the old one."""
    content = json.dumps(asdict(head), sort_keys=True)
    connection.execute("DELETE FROM head")
    connection.execute("INSERT INTO head VALUES (?, ?)", (content, checksum_of(content)))


def checksum_of(*values: object) -> int:
    """Returns a checksum of texts and numbers."""
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))


def damaged(path: Path, how: str) -> UserError:
    """Returns the error for a file that cannot be trusted."""
    return UserError(f"The index {path} is damaged ({how}). Restore it from a copy, or build the index again.")


@contextmanager
def explaining_database_errors(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into sentences that say what to do.

    Raises:
        UserError: in their place.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            raise UserError(
                f"The index {path} is being changed by another program. Try again when it is done."
            ) from error
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR}:
            raise UserError(f"The index {path} could not be read or written ({error}). Check its folder.") from error
        if code == sqlite3.SQLITE_FULL:
            with explaining_disk_errors(path):
                raise OSError(errno.ENOSPC, str(error)) from error
        raise damaged(path, str(error)) from error


def _entry_checksum(entry: int, run: bytes, codes: bytes | None) -> int:
    return zlib.crc32(codes or b"", zlib.crc32(run, checksum_of(entry, codes is None)))


def _unlink(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
