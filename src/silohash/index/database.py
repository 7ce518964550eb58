"""The SQLite file behind a `Store`: its head, its log of codes, its transactions, and its error messages.

The log is append-only. An entry adds a run of keys with their codes, or removes keys. Keys are assigned in ascending order
and are never reused. The head and every entry have a checksum, so that a damaged file is refused instead of searched.

Digests of items (`digests`) are stored per entry, in a table that is created with the first of them. They can be computed
from the ids again, so a digest that does not belong to its entry is ignored instead of refused. The magnitudes of the
outputs whose signs are the codes are stored in the same way, of all items or of none: a file keeps them if it was created
with their table.
"""

import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base import sqlite_files
from silohash.base.analysis import Analysis
from silohash.base.errors import AlreadyExists, DamagedFile, NotIndexed, OtherVersion, UnreadableFile, WrongKindOfFile
from silohash.base.files import explaining_disk_errors, open_private
from silohash.index.base import FORMAT_VERSION, IndexManifest, Keys, distinct, positions
from silohash.index.codes import CodeBytes, Magnitudes, byte_count
from silohash.index.digests import Digests

APPLICATION_ID = 0x51105A54
ENTRY_ROWS = 1 << 16

Stamp: TypeAlias = tuple[int, int, int]
"""Number of the connection, of the changes that others made since it was opened, and of the changes made by it."""

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
CREATE TABLE head (content TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE log (entry INTEGER PRIMARY KEY, keys BLOB NOT NULL, codes BLOB, checksum INTEGER NOT NULL);
CREATE TABLE items (key INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, payload TEXT, checksum INTEGER NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (
    id, caption, labels, file, whole, content = '', columnsize = 0, detail = column, tokenize = 'ascii'
);
"""

DIGESTS, MAGNITUDES = (
    f"CREATE TABLE IF NOT EXISTS {name} (entry INTEGER PRIMARY KEY, {name} BLOB NOT NULL, checksum INTEGER NOT NULL)"
    for name in ("digests", "magnitudes")
)

KEY_BYTES = DIGEST_BYTES = 8


@dataclass(frozen=True)
class Head:
    """Hold the single row that describes the file.

    Attributes:
        manifest: The manifest shown to users.
        next_key: The key of the next item.
        entries: Number of entries in the log.
        named: Whether items have explicit ids. If False, an item's id is its key. None before the first item.
    """

    manifest: IndexManifest
    next_key: int = 0
    entries: int = 0
    named: bool | None = None


class Changes(NamedTuple):
    """Hold what was added to an index and removed from it.

    Attributes:
        keys: ``(n,)`` added keys in ascending order. Some of them may have been removed again.
        packed: ``(n, bytes)`` their codes.
        removed: ``(m,)`` removed keys.
        total: Number of items after the changes.
    """

    keys: Keys
    packed: CodeBytes
    removed: Keys
    total: int


class Database:
    """Manage an open index file. ``head`` describes its contents and changes only within `change`."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            UserError: If it is missing, damaged, not an index, or in another version of the format.
        """
        if not path.is_file():
            raise NotIndexed(f"The index {path} does not exist. Build it first.")
        self.path = path
        self._lock = threading.RLock()
        self._signature: sqlite_files.Signature | None = None
        self._connections = self._changes = 0
        with self.explained():
            self._connect()
            try:
                self._check_kind()
                self.head = self._read_head()
            except BaseException:
                self.connection.close()
                raise

    def _connect(self) -> None:
        """Open the connection. If the folder cannot be written, open the file as one that does not change."""
        self._connections += 1
        # SQLite needs to write beside a file in write-ahead mode, even to read it.
        try:
            self.connection = sqlite_files.connect_and_read(self.path)
        except sqlite3.OperationalError as error:
            if sqlite_files.primary_code(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
                raise
            log = self.path.with_name(f"{self.path.name}-wal")
            if log.exists() and log.stat().st_size:
                raise UnreadableFile(
                    f"The index {self.path} has changes in {log.name} that cannot be read, because the folder cannot be "
                    "written. Search the run once where its folder can be written, then copy it again."
                ) from error
            self._signature = sqlite_files.signature(self.path)
            self.connection = sqlite_files.connect(self.path, mode="ro", immutable=True)

    def _reconnect_if_changed(self) -> None:
        """Open the file again if it was opened as one that does not change, and has changed."""
        if self._signature is not None and self._signature != sqlite_files.signature(self.path):
            self.connection.close()
            self._signature = None
            self._connect()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Admit one thread at a time, and translate SQLite errors into messages."""
        with self._lock, sqlite_files.explaining_database_errors(self.path):
            yield

    @contextmanager
    def change(self) -> Iterator[Head]:
        """Run a write transaction, which is applied as a whole or not at all. Yield the head before the change."""
        with self.explained():
            try:
                # The lock is taken before the head is read, so that no other program can change the head in between.
                with sqlite_files.transaction(self.connection):
                    before = self.head = self._read_head()
                    yield before
                    write_head(self.connection, self.head)
            except BaseException:
                self.head = self._read_head()
                raise
            self._changes += 1

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run a read transaction, which sees one consistent state of the file while others write."""
        with self.explained():
            self._reconnect_if_changed()
            self.connection.execute("BEGIN")
            try:
                self.head = self._read_head()
                yield
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def current_head(self) -> Head:
        """Return the head as it is now in the file, which another program may have changed."""
        with self.explained():
            self._reconnect_if_changed()
            return self._read_head()

    def stamp(self) -> Stamp:
        """Return a value that differs after every change of the file, by this object or by another program.

        It takes microseconds, whereas `current_head` reads and parses the head. A change that leaves all items as they were,
        such as releasing disk space, gives another value, too.
        """
        # Each search asks, so the context manager `explained` is entered only if it is needed.
        try:
            with self._lock:
                self._reconnect_if_changed()
                [version] = self.connection.execute("PRAGMA data_version").fetchone()
                found = self._connections, version, self._changes
        except sqlite3.DatabaseError:
            with sqlite_files.explaining_database_errors(self.path):
                raise
        return found

    def has_table(self, name: str) -> bool:
        """Return whether the file has a table."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self.connection.execute(query, (name,)).fetchone() is not None

    @property
    def keeps_magnitudes(self) -> bool:
        """Whether the file holds the magnitudes of all items."""
        return self.has_table("magnitudes")

    def append(
        self, keys: Keys, packed: CodeBytes | None, digests: Digests | None = None, magnitudes: Magnitudes | None = None
    ) -> None:
        """Append a log entry: keys added with codes ``(n, bytes)``, or keys removed if ``packed`` is None.

        ``digests``, ``(n,)``, and ``magnitudes``, ``(n, bits)``, are those of the added items; None if they are not stored.
        """
        entry = self.head.entries + 1
        run, codes = keys.astype("<i8").tobytes(), None if packed is None else packed.tobytes()
        row = (entry, run, codes, _entry_checksum(entry, run, codes))
        self.connection.execute("INSERT INTO log VALUES (?, ?, ?, ?)", row)
        if digests is not None:
            self.connection.execute(DIGESTS)
            self._insert("digests", entry, run, digests.astype("<u8").tobytes())
        if magnitudes is not None:
            self._insert("magnitudes", entry, run, magnitudes.tobytes())
        self.head = replace(self.head, entries=entry)

    def digests(self) -> tuple[Keys, Digests]:
        """Return the keys of items and their stored digests. See `Store.digests`."""
        keys, digests = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for _, run, content in self._stored("digests", DIGEST_BYTES):
            if content is not None:
                keys.append(np.frombuffer(run, "<i8"))
                digests.append(np.frombuffer(content, "<u8"))
        return np.concatenate(keys), np.concatenate(digests)

    def magnitudes(self, after_entry: int = 0) -> tuple[Keys, Magnitudes]:
        """Return the keys of items and their stored magnitudes, ``(n, bits)``. See `Store.magnitudes`.

        Raises:
            UserError: If some of them are damaged.
        """
        bits = self.head.manifest.bits
        keys, magnitudes = [np.empty(0, np.int64)], [np.empty((0, bits), np.uint8)]
        for entry, run, content in self._stored("magnitudes", bits, after_entry):
            if content is None:
                raise sqlite_files.damaged(self.path, f"the magnitudes of log entry {entry} have a wrong checksum")
            keys.append(np.frombuffer(run, "<i8"))
            magnitudes.append(np.frombuffer(content, np.uint8).reshape(-1, bits))
        return np.concatenate(keys), np.concatenate(magnitudes)

    def _insert(self, table: str, entry: int, run: bytes, content: bytes) -> None:
        """Store what belongs to the keys of an entry."""
        row = (entry, content, zlib.crc32(content, zlib.crc32(run)))
        self.connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", row)  # noqa: S608  a literal

    def _stored(self, table: str, width_bytes: int, after_entry: int = 0) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield entries, their keys and what a table holds of them; None in place of what is damaged."""
        if not self.has_table(table):
            return
        query = (
            f"SELECT entry, log.keys, {table}, {table}.checksum FROM {table} JOIN log USING (entry) "  # noqa: S608  a literal
            "WHERE entry > ? ORDER BY entry"
        )
        for entry, run, content, checksum in self.connection.execute(query, (after_entry,)):
            typed = isinstance(run, bytes) and isinstance(content, bytes)
            whole = typed and len(content) * KEY_BYTES == len(run) * width_bytes
            yield entry, run, content if whole and zlib.crc32(content, zlib.crc32(run)) == checksum else None

    def removed(self) -> Keys:
        """Return the removed keys, in ascending order."""
        runs = [keys for _, keys, _ in self._entries("WHERE codes IS NULL")]
        return distinct(np.concatenate(runs)) if runs else np.empty(0, np.int64)

    def is_live(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Return whether the item of each key exists, ``(n,)`` bool."""
        return (keys >= 0) & (keys < self.head.next_key) & ~positions(self.removed(), keys)[1]

    def live(self) -> Iterator[tuple[Keys, CodeBytes]]:
        """Yield the live keys in ascending order with their codes ``(n, bytes)``.

        Raises:
            UserError: If an entry or an item is missing.
        """
        removed, width = self.removed(), byte_count(self.head.manifest.bits)
        count = entries = 0
        for entry, keys, codes in self._entries():
            entries += 1
            if entry != entries:
                raise sqlite_files.damaged(self.path, f"log entry {entries} is missing")
            if codes is not None:
                packed = np.frombuffer(codes, np.uint8).reshape(-1, width)
                live = ~positions(removed, keys)[1]
                count += int(np.count_nonzero(live))
                yield (keys, packed) if live.all() else (keys[live], packed[live])
        if (entries, count) != (self.head.entries, self.head.manifest.count):
            raise sqlite_files.damaged(self.path, f"it holds {count} items instead of {self.head.manifest.count}")

    def changes_since(self, next_key: int, entries: int, count: int) -> Changes | None:
        """Return what has changed since the head had these values; None if the log does not tell, as after `rewrite`.

        Keys are assigned one after the other, and each is removed at most once. If the entries hold as many new keys as were
        assigned, and the numbers of items agree, no addition and no removal is missing.
        """
        runs, width = list(self._entries(f"WHERE entry > {int(entries)}")), byte_count(self.head.manifest.bits)
        keys = np.concatenate([np.empty(0, np.int64), *(keys for _, keys, codes in runs if codes is not None)])
        removed = np.concatenate([np.empty(0, np.int64), *(keys for _, keys, codes in runs if codes is None)])
        packed = np.frombuffer(b"".join(codes for *_, codes in runs if codes is not None), np.uint8)
        now = self.head.manifest.count
        whole = len(keys) == self.head.next_key - next_key and count + len(keys) - len(removed) == now
        return Changes(keys, packed.reshape(-1, width), removed, now) if whole and (keys >= next_key).all() else None

    def rewrite(self) -> None:
        """Rewrite the log without removed items, and release their disk space."""
        with self.change():
            runs, (known, digests) = list(self.live()), self.digests()
            valued, magnitudes = self.magnitudes()
            for table in ("log", *filter(self.has_table, ("digests", "magnitudes"))):
                self.connection.execute(f"DELETE FROM {table}")  # noqa: S608  one of three literals
            self.head = replace(self.head, entries=0)
            if runs:
                keys, packed = (np.concatenate(parts) for parts in zip(*runs, strict=True))
                for start in range(0, len(keys), ENTRY_ROWS):
                    some = keys[start : start + ENTRY_ROWS]
                    places, found = positions(known, some)
                    rows, there = positions(valued, some)
                    self.append(
                        some,
                        packed[start : start + ENTRY_ROWS],
                        digests[places] if found.all() else None,
                        magnitudes[rows] if there.all() else None,
                    )
        with self.explained():
            self.connection.execute("VACUUM")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _entries(self, which: str = "") -> Iterator[tuple[int, Keys, bytes | None]]:
        for row in self.connection.execute(f"SELECT entry, keys, codes, checksum FROM log {which} ORDER BY entry"):  # noqa: S608
            entry, run, codes, checksum = row
            whole = isinstance(run, bytes) and isinstance(codes, bytes | None)
            if not whole or _entry_checksum(entry, run, codes) != checksum:
                raise sqlite_files.damaged(self.path, f"the checksum of log entry {entry} is wrong")
            yield entry, np.frombuffer(run, "<i8").astype(np.int64, copy=False), codes

    def _check_kind(self) -> None:
        kind = self.connection.execute("PRAGMA application_id").fetchone()[0]
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if kind != APPLICATION_ID:
            raise WrongKindOfFile(f"{self.path} is not a silohash index. Check the path, or build the index again.")
        if version != FORMAT_VERSION:
            raise OtherVersion(
                f"{self.path} has format version {version}, but this silohash reads version {FORMAT_VERSION}. "
                "Build the index again."
            )

    def _read_head(self) -> Head:
        rows = self.connection.execute("SELECT content, checksum FROM head").fetchall()
        if len(rows) != 1 or checksum_of(rows[0][0]) != rows[0][1]:
            raise sqlite_files.damaged(self.path, "the checksum of its head is wrong")
        content = json.loads(rows[0][0])
        try:
            manifest = dict(content["manifest"])
            analysis = Analysis(**{**manifest["analysis"], "languages": tuple(manifest["analysis"]["languages"])})
            return Head(**{**content, "manifest": IndexManifest(**{**manifest, "analysis": analysis})})
        except (TypeError, KeyError) as error:
            raise DamagedFile(f"The manifest of the index is damaged ({error}). Build the index again.") from error


def create_file(path: Path, manifest: IndexManifest, *, magnitudes: bool = False) -> None:
    """Create an empty index file, which keeps the magnitudes of items or not, completely or not at all.

    Raises:
        UserError: If the file exists or cannot be written.
    """
    if path.exists():
        raise AlreadyExists(f"The file {path} already exists. Open it, or remove it first.")
    beside = path.with_name(f".{path.name}.part")
    with explaining_disk_errors(path), sqlite_files.explaining_database_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _unlink(beside)
            # SQLite would create the file for everyone to read. The files beside it get the mode of the file.
            os.close(open_private(beside, os.O_CREAT | os.O_WRONLY))
            connection = sqlite_files.connect(beside, mode="rw")
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
                connection.executescript(f"{SCHEMA}{MAGNITUDES};" if magnitudes else SCHEMA)
                write_head(connection, Head(replace(manifest, count=0)))
            finally:
                connection.close()
            beside.replace(path)
        finally:
            _unlink(beside)


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    """Replace the head."""
    content = json.dumps(asdict(head), sort_keys=True)
    connection.execute("DELETE FROM head")
    connection.execute("INSERT INTO head VALUES (?, ?)", (content, checksum_of(content)))


def checksum_of(*values: object) -> int:
    """Return a checksum of strings and numbers."""
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))


def row_checksum(key: int, name: str, payload: str | None) -> int:
    """Return the checksum of the row of an item: that of `checksum_of`, computed faster."""
    return zlib.crc32(f"{key}\0{name}\0{payload}".encode("utf-8", "surrogatepass"))


def _entry_checksum(entry: int, run: bytes, codes: bytes | None) -> int:
    return zlib.crc32(codes or b"", zlib.crc32(run, checksum_of(entry, codes is None)))


def _unlink(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
