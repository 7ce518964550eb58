"""The lasting form of an index: one SQLite file (write-ahead log), from which the index in memory is rebuilt.

The codes are a log, see `database`; reading it costs little more than copying the codes, so there is no second file
that could disagree with it. An item's id and payload (what the silo may show of it) are a row of their own. A change is
one transaction: it is whole or not there.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from silohash.index.base import Index, IndexManifest, Keys
from silohash.index.codes import Codes, Words, from_bytes, to_bytes
from silohash.index.database import ENTRY_ROWS, Database, checksum_of, create_file, damaged
from silohash.types import UserError

Engine = Literal["flat", "faiss"]


class Store:
    """An index file. Use it in a ``with`` block, or `close` it."""

    def __init__(self, path: Path) -> None:
        """As `open`."""
        self.path = path
        self._database = Database(path)

    @classmethod
    def create(cls, path: Path, manifest: IndexManifest) -> Store:
        """Creates an empty index file and opens it.

        Raises:
            UserError: if there is a file already, or the place may not be written.
        """
        create_file(path, manifest)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Store:
        """Opens an index file.

        Raises:
            UserError: if it is missing, damaged, of another kind or of a newer format.
        """
        return cls(path)

    def close(self) -> None:
        """Closes the file."""
        self._database.connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self.manifest.count

    @property
    def manifest(self) -> IndexManifest:
        """What the file holds, as this store last saw it."""
        return self._database.head.manifest

    def add_codes(self, codes: Codes, payload: Sequence[str] | None = None) -> Keys:
        """Adds codes after making sure that the index's model made them; else as `add`."""
        self.manifest.check(codes.model_digest, codes.bits)
        if codes.modality != self.manifest.modality:
            raise UserError(f"The index holds {self.manifest.modality} codes, these are {codes.modality} codes.")
        return self.add([str(name) for name in codes.ids], codes.words, payload)

    def add(self, ids: Sequence[str] | None, words: Words, payload: Sequence[str] | None = None) -> Keys:
        """Adds items; one whose id is there already takes the place of the old one, under a new key.

        Args:
            ids: one string an item, each once; None where the key shall be the id (then for every item of the index).
            words: ``(n, W)`` packed codes.
            payload: a JSON object an item, as text: what the silo may show of it.

        Returns:
            ``(n,)`` int64, the items' keys.

        Raises:
            UserError: if lengths differ, an id is given twice, a payload is no JSON object, or the disk is full.
        """
        packed = to_bytes(words, self.manifest.bits)
        _check_items(len(packed), ids, payload)
        if not len(packed):
            return np.empty(0, np.int64)
        with self._database.change() as before:
            if before.named not in (None, ids is not None):
                kind = "ids of their own" if before.named else "their keys as ids"
                raise UserError(f"The items of {self.path} have {kind}; add all items of an index in the same way.")
            keys = np.arange(before.next_key, before.next_key + len(packed), dtype=np.int64)
            removed = 0
            for start in range(0, len(packed), ENTRY_ROWS):
                some = slice(start, start + ENTRY_ROWS)
                if ids is not None and before.named is not None:
                    removed += self._drop(self._replaced(ids[some], before.next_key))
                if ids is not None or payload is not None:
                    names = [str(key) for key in keys[some].tolist()] if ids is None else ids[some]
                    self._write_items(keys[some], names, None if payload is None else payload[some])
                self._database.append(keys[some], packed[some])
            self._count(len(packed) - removed, next_key=before.next_key + len(packed), named=ids is not None)
        return keys

    def remove(self, ids: Sequence[str]) -> int:
        """Removes items by id and returns how many there were; ids that are not there are passed over."""
        with self._database.change():
            keys = np.unique(self._find(list(ids)))
            removed = self._drop(keys[keys >= 0])
            self._count(-removed)
        return removed

    def compact(self) -> None:
        """Forgets the codes of what was removed, and gives their space on the disk back."""
        self._database.rewrite()

    def load(self, engine: Engine = "flat", *, threads: int = 1) -> Index:
        """Builds the index in memory over the live codes; faiss serves where numba is not installed.

        Args:
            engine: "flat", or "faiss".
            threads: how many share the queries of a batch (the flat engine).

        Raises:
            UserError: if the file is damaged, or the engine is not installed.
        """
        with self._database.reading():
            index = empty_index(engine, self.manifest, threads)
            for keys, packed in self._database.live():
                index.add(keys, from_bytes(packed, self.manifest.bits))
        return index

    def keys_of(self, ids: Sequence[str]) -> Keys:
        """Returns the keys of items, ``(n,)`` int64.

        Raises:
            UserError: if an id is not there.
        """
        with self._database.reading():
            found = self._find(list(ids))
        if (found < 0).any():
            raise UserError(f'There is no item "{ids[int((found < 0).argmax())]}" in {self.path}.')
        return found

    def item_ids(self, keys: Keys) -> list[str]:
        """Returns the ids of items.

        Raises:
            UserError: if a key is not there.
        """
        return [name for name, _ in self._items(keys)]

    def payloads(self, keys: Keys) -> list[dict[str, Any]]:
        """Returns what the silo keeps to show of items; an empty mapping where there is nothing.

        Raises:
            UserError: if a key is not there.
        """
        return [json.loads(text) if text else {} for _, text in self._items(keys)]

    def _items(self, keys: Keys) -> list[tuple[str, str | None]]:
        """Returns id and payload of items."""
        wanted = np.asarray(keys, np.int64)
        query = "SELECT key, id, payload, checksum FROM items WHERE key IN (SELECT value FROM json_each(?))"
        found: dict[int, tuple[str, str | None]] = {}
        with self._database.reading():
            for key, name, text, checksum in self._database.connection.execute(query, (json.dumps(wanted.tolist()),)):
                if checksum_of(key, name, text) != checksum:
                    raise damaged(self.path, f"the row of item {key} has another checksum")
                found[key] = (name, text)
            if not self._database.head.named:
                others = np.array([key for key in wanted.tolist() if key not in found], np.int64)
                live = others[self._database.is_live(others)].tolist() if others.size else []
                found |= {key: (str(key), None) for key in live}
        for key in wanted.tolist():
            if key not in found:
                raise UserError(f"There is no item with key {key} in {self.path}; it may have been removed.")
        return [found[key] for key in wanted.tolist()]

    def _find(self, ids: list[str]) -> Keys:
        """Returns the keys of ids, -1 for those that are not there."""
        if not self._database.head.named:
            keys = np.array([_as_key(name) for name in ids], np.int64)
            return np.where(self._database.is_live(keys), keys, -1)
        known: dict[str, int] = {}
        for start in range(0, len(ids), ENTRY_ROWS):
            known |= self._rows_by_id(ids[start : start + ENTRY_ROWS])
        return np.array([known.get(name, -1) for name in ids], np.int64)

    def _rows_by_id(self, ids: Sequence[str]) -> dict[str, int]:
        query = "SELECT id, key FROM items WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._database.connection.execute(query, (json.dumps(list(ids)),)).fetchall())

    def _replaced(self, ids: Sequence[str], next_key: int) -> Keys:
        """Returns the keys of items whose ids are given anew; those from ``next_key`` on came with this very call."""
        rows = self._rows_by_id(ids)
        if any(key >= next_key for key in rows.values()):
            raise _twice()
        return np.array(sorted(rows.values()), np.int64)

    def _drop(self, keys: Keys) -> int:
        """Removes live keys, and returns their number."""
        if keys.size:
            connection = self._database.connection
            connection.executemany("DELETE FROM items WHERE key = ?", ((key,) for key in keys.tolist()))
            self._database.append(keys, None)
        return int(keys.size)

    def _write_items(self, keys: Keys, names: Sequence[str], payload: Sequence[str] | None) -> None:
        texts: Sequence[str | None] = [None] * len(names) if payload is None else payload
        rows = (
            (key, name, text, checksum_of(key, name, text))
            for key, name, text in zip(keys.tolist(), names, texts, strict=True)
        )
        try:
            self._database.connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
        except sqlite3.IntegrityError as error:
            raise _twice() from error

    def _count(self, more: int, **changes: Any) -> None:  # noqa: ANN401  fields of the head
        head = self._database.head
        manifest = replace(head.manifest, count=head.manifest.count + more)
        self._database.head = replace(head, manifest=manifest, **changes)


def empty_index(engine: Engine, manifest: IndexManifest, threads: int = 1) -> Index:
    """Returns an empty index of an engine, with room for the manifest's items.

    Raises:
        UserError: if there is no such engine, or what it needs is not installed.
    """
    if engine not in ("flat", "faiss"):
        raise UserError(f'There is no index engine "{engine}"; there are: flat, faiss.')
    if engine == "flat" and importlib.util.find_spec("numba") is not None:
        from silohash.index.flat import FlatIndex

        return FlatIndex(manifest.bits, capacity=manifest.count, threads=threads)
    if importlib.util.find_spec("faiss") is None:
        raise UserError(f'The index engine "{engine}" is not installed. Install numba (or faiss-cpu).')
    from silohash.index.faiss import FaissIndex

    return FaissIndex(manifest.bits)


def _check_items(count: int, ids: Sequence[str] | None, payload: Sequence[str] | None) -> None:
    for what, given in (("ids", ids), ("payloads", payload)):
        if given is not None and len(given) != count:
            raise UserError(f"There are {count} codes but {len(given)} {what}; each code needs one.")
    for name in ids or ():
        if not name or "\0" in name or name != name.encode("utf-8", "ignore").decode():
            raise UserError(f"{name!r} cannot be an item's id; an id is some Unicode text.")
    for place, text in enumerate(payload or ()):
        try:
            whole = isinstance(json.loads(text), dict)
        except ValueError:
            whole = False
        if not whole:
            raise UserError(f"The payload of item {place} is no JSON object: {text[:40]!r}.")


def _as_key(name: str) -> int:
    """Returns the key that an id spells, or -1."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 19 and str(int(name)) == name else -1


def _twice() -> UserError:
    return UserError("An id is given twice in one call; each item needs an id of its own.")
