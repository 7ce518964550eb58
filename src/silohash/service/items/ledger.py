"""What a silo knows of the items of its items folder: a small SQLite file beside the silo's index.

An item is noted as pending before it is written to the index, and as indexed afterwards. Items that are pending at the start
of a process are indexed again or removed, so that index and folder agree after a crash.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from silohash.base.sqlite_files import explaining_database_errors, transaction

LEDGER = "items.sqlite"
WAIT_SECONDS = 30.0

State: TypeAlias = Literal["pending", "indexed", "skipped", "removed"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    id TEXT PRIMARY KEY, stamp TEXT NOT NULL, state TEXT NOT NULL, problem TEXT NOT NULL, replaced INTEGER NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Entry:
    """Describe what is known of one item.

    Attributes:
        id: Id of the item.
        stamp: Stamp of the item as it was indexed, see `FolderItem`.
        state: "pending" while it is being indexed; "skipped" if it cannot be indexed; "removed" if it hides an item of the
            first indexing.
        problem: Why it is skipped; otherwise empty.
        replaced: Whether the first indexing had an item with the same id.
    """

    id: str
    stamp: str
    state: State
    problem: str = ""
    replaced: bool = False


class Ledger:
    """Read and write the file. Several threads may use it."""

    def __init__(self, path: Path) -> None:
        """Open the file, which is created if it does not exist.

        Raises:
            UserError: If it is damaged or cannot be written.
        """
        self.path = path
        self._lock = threading.Lock()
        with explaining_database_errors(path):
            self._connection = sqlite3.connect(path, WAIT_SECONDS, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL").fetchall()
            self._connection.execute("PRAGMA synchronous = NORMAL")  # folder and index are durable, and are compared
            self._connection.execute(SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def stamps(self, *, again: bool = False) -> dict[str, str]:
        """Return the stamps of all items that need no further work, by id, and empty stamps of those that do.

        Args:
            again: Whether skipped items are to be tried again. Otherwise only pending items need work.
        """
        query = "SELECT id, CASE WHEN state = 'pending' OR ? AND state = 'skipped' THEN '' ELSE stamp END FROM items"
        with self._reading() as connection:
            return dict(connection.execute(query, [again]).fetchall())

    def entry(self, name: str) -> Entry | None:
        """Return what is known of an item, or None."""
        with self._reading() as connection:
            row = connection.execute("SELECT * FROM items WHERE id = ?", (name,)).fetchone()
        return None if row is None else _entry(row)

    def page(self, after: str, most: int) -> list[Entry]:
        """Return at most ``most`` items whose ids come after a text, in the order of the ids. Removed items are left out."""
        with self._reading() as connection:
            query = "SELECT * FROM items WHERE id > ? AND state != 'removed' ORDER BY id LIMIT ?"
            rows = connection.execute(query, (after, most)).fetchall()
        return [_entry(row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Return the number of items in each state."""
        with self._reading() as connection:
            return dict(connection.execute("SELECT state, count(*) FROM items GROUP BY state").fetchall())

    def indexed_ids(self) -> set[str]:
        """Return the ids of all items that are or may be in the index."""
        with self._reading() as connection:
            rows = connection.execute("SELECT id FROM items WHERE state IN ('indexed', 'pending')").fetchall()
        return {row[0] for row in rows}

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries, in place of former ones of the same items."""
        rows = [(each.id, each.stamp, each.state, each.problem, int(each.replaced)) for each in entries]
        with self._writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)", rows)

    def forget(self, ids: Sequence[str]) -> None:
        """Remove the entries of items."""
        with self._writing() as connection:
            connection.execute(
                "DELETE FROM items WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
            )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, explaining_database_errors(self.path):
            yield self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection, transaction(connection):
            yield connection


def _entry(row: tuple[str, str, State, str, int]) -> Entry:
    return Entry(row[0], row[1], row[2], row[3], bool(row[4]))
