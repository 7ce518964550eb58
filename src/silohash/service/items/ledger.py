"""What a silo knows of the items of its items folder: a small SQLite file beside the silo's index.

An item is noted as pending before it is written to the index, and as indexed afterwards. Items that are pending at the start
of a process are indexed again or removed, so that index and folder agree after a crash.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from silohash.base.sqlite_files import connect, explaining_database_errors, transaction

LEDGER = "items.sqlite"

State: TypeAlias = Literal["pending", "indexed", "skipped", "removed"]

SCHEMA = Path(__file__).with_name("ledger.sql").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Entry:
    """Describe what is known of one item.

    Attributes:
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
        self.path = path
        self._lock = threading.Lock()
        with explaining_database_errors(path):
            self._connection = connect(path, mode="rwc")
            self._connection.execute("PRAGMA journal_mode = WAL").fetchall()
            self._connection.execute("PRAGMA synchronous = NORMAL")  # folder and index are durable, and are compared
            self._connection.execute(SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def stamps(self, *, again: bool = False) -> dict[str, str]:
        """Return the stamp of each item by id, which is empty if the item is pending or, with ``again``, skipped."""
        query = "SELECT id, CASE WHEN state = 'pending' OR ? AND state = 'skipped' THEN '' ELSE stamp END FROM items"
        return dict(self._rows(query, again))

    def entry(self, name: str) -> Entry | None:
        """Return what is known of an item, or None."""
        return next(iter(self._entries("id = ?", name)), None)

    def page(self, after: str, most: int) -> list[Entry]:
        """Return at most ``most`` items whose ids come after a text, in the order of the ids. Removed items are left out."""
        return self._entries("id > ? AND state != 'removed' ORDER BY id LIMIT ?", after, most)

    def counts(self) -> dict[str, int]:
        """Return the number of items in each state."""
        return dict(self._rows("SELECT state, count(*) FROM items GROUP BY state"))

    def indexed_ids(self) -> set[str]:
        """Return the ids of all items that are or may be in the index."""
        return {name for (name,) in self._rows("SELECT id FROM items WHERE state IN ('indexed', 'pending')")}

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries, in place of former ones of the same items."""
        rows = [astuple(entry) for entry in entries]
        with self._lock, explaining_database_errors(self.path), transaction(self._connection):
            self._connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)", rows)

    def forget(self, ids: Sequence[str]) -> None:
        """Remove the entries of items."""
        self._rows("DELETE FROM items WHERE id IN (SELECT value FROM json_each(?))", json.dumps(list(ids)))

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock, explaining_database_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def _entries(self, which: str, *values: object) -> list[Entry]:
        rows = self._rows(f"SELECT * FROM items WHERE {which}", *values)  # noqa: S608  literals of this class
        return [Entry(*(*row[:-1], bool(row[-1]))) for row in rows]
