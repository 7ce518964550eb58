"""The rows of an index file that describe its items: ids, payloads and previews.

A payload is a JSON object, kept as text. Previews have a table of their own, so that a search reads them for its final
hits only. The table is created with the first preview, so files without previews remain as they were.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import InvalidName, LengthsDiffer, RepeatedValue, UnknownItem, UserError, WrongType
from silohash.base.forms import any_json
from silohash.base.names import tidy
from silohash.base.sqlite_files import damaged
from silohash.index.base import FIELDS, Keys, positions
from silohash.index.database import ENTRY_ROWS, Database, checksum_of, row_checksum

PREVIEWS = (
    "CREATE TABLE IF NOT EXISTS previews (key INTEGER PRIMARY KEY, picture BLOB NOT NULL, checksum INTEGER NOT NULL)"
)

Row: TypeAlias = tuple[int, str, str | None]
"""Key, id and payload of an item."""


class KeptRows:
    """Keep the ids, payloads and labels of all items of an index in memory, so that a search does not read the file.

    A key is never given to another item, so a kept row stays right for as long as its item exists. Changes of the index
    give a new object (`changed`), which shares the unchanged parts with the former one. An item takes the bytes of its id
    and payload, 20 more bytes, and 8 bytes per label.
    """

    def __init__(self, parts: Sequence[_Part] = ()) -> None:
        """Keep the rows of some parts, in the order of their keys."""
        self._keys = np.concatenate([np.empty(0, np.int64), *(part.keys for part in parts)])
        self._bounds = np.concatenate([np.empty((0, 3), np.uint32), *(part.bounds for part in parts)])
        self._lowest, self._highest = (int(self._keys[0]), int(self._keys[-1])) if len(self._keys) else (0, -1)
        self._is_gapless = self._highest - self._lowest == len(self._keys) - 1
        self._first = [0, *accumulate(len(part.keys) for part in parts)]
        slices = [slice(*pair) for pair in pairwise(self._first)]
        self._parts = [
            part._replace(keys=self._keys[where], bounds=self._bounds[where])
            for part, where in zip(parts, slices, strict=True)
        ]

    @property
    def last_key(self) -> int:
        """The highest key; -1 if no item is kept."""
        return self._highest

    @property
    def memory_bytes(self) -> int:
        """Memory used by the rows and their keys, in bytes."""
        return sum(part.memory_bytes for part in self._parts)

    def read(self, keys: Sequence[int]) -> list[tuple[str, dict[str, Any]]]:
        """Return the id and the payload of each item.

        Raises:
            KeyError: If an item is not kept.
        """
        places = self._places(keys)
        names: list[str] = []
        texts: list[bytes] = []
        for place, (start, middle, end) in zip(places, self._bounds[places].tolist(), strict=True):
            content = self._parts[bisect_right(self._first, place) - 1].content
            names.append(content[start:middle].decode())
            texts.append(content[middle:end])
        # Parsing all payloads at once is faster than one after the other.
        return list(zip(names, any_json(b"[" + b",".join(texts) + b"]"), strict=True))

    def _places(self, keys: Sequence[int]) -> list[int]:
        """Return the positions of keys among all keys."""
        if self._is_gapless:
            for key in keys:
                if not self._lowest <= key <= self._highest:
                    raise KeyError(key)
            return [key - self._lowest for key in keys]
        places, there = positions(self._keys, np.asarray(keys, np.int64))
        if not there.all():
            raise KeyError(keys[int(there.argmin())])
        return [int(place) for place in places]

    def label_keys(self, live: Keys) -> dict[str, Keys]:
        """Return the keys of the items with each label, out of ``live``, both in ascending order."""
        found: dict[str, list[Keys]] = {}
        for part in self._parts:
            for label, keys in part.labels.items():
                found.setdefault(label, []).append(keys)
        joined = {label: np.concatenate(keys) for label, keys in found.items()}
        kept = {label: keys[positions(live, keys)[1]] for label, keys in joined.items()}
        return {label: keys for label, keys in kept.items() if len(keys)}

    def values(self, name: str, after: int) -> Iterator[tuple[int, str]]:
        """Yield the key and the value of each item with a higher key and a value in a column, see `value_of`."""
        for part in self._parts:
            if not len(part.keys) or part.keys[-1] <= after:
                continue
            texts = (part.content[middle:end] for _, middle, end in part.bounds.tolist())
            for key, payload in zip(part.keys.tolist(), any_json(b"[" + b",".join(texts) + b"]"), strict=True):
                if key > after and (value := value_of(payload, name)):
                    yield key, value

    def changed(self, rows: Iterable[Row], live: Keys, most_bytes: int) -> KeptRows | None:
        """Return the rows after a change of the index; None if they take more than ``most_bytes``.

        ``rows`` are those of the items whose keys are higher than `last_key`, in the order of the keys. ``live`` are the
        keys of the items that exist, in ascending order. The rows of others are forgotten.
        """
        parts = [part.among(live) for part in self._parts]
        used, more = sum(part.memory_bytes for part in parts), iter(rows)
        while some := list(islice(more, ENTRY_ROWS)):
            parts.append(_Part.of(some))
            used += parts[-1].memory_bytes
            if used > most_bytes:
                return None
        return KeptRows(_with_few_parts(parts))


class _Part(NamedTuple):
    """Hold the rows of some items.

    Attributes:
        keys: ``(n,)`` keys in ascending order.
        bounds: ``(n, 3)`` uint32: where the id of each item and its payload begin in ``content``, and where it ends.
        content: The ids and payloads, as UTF-8, one after the other.
        labels: Maps each label to the keys of the items with it.
    """

    keys: Keys
    bounds: npt.NDArray[np.uint32]
    content: bytes
    labels: Mapping[str, Keys]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Part:
        """Return the part of some rows."""
        pieces: list[bytes] = []
        labels: dict[str, list[int]] = {}
        for key, name, text in rows:
            pieces += (name.encode(), (text or "{}").encode())
            for label in _labels(text):
                labels.setdefault(label, []).append(key)
        ends = np.cumsum([0, *map(len, pieces)]).astype(np.uint32)
        return cls(
            keys=np.array([key for key, *_ in rows], np.int64),
            bounds=np.column_stack([ends[:-1:2], ends[1::2], ends[2::2]]),
            content=b"".join(pieces),
            labels={label: np.array(keys, np.int64) for label, keys in labels.items()},
        )

    @property
    def memory_bytes(self) -> int:
        """Memory used, in bytes."""
        by_label = sum(keys.nbytes for keys in self.labels.values())
        return self.keys.nbytes + self.bounds.nbytes + len(self.content) + by_label

    def among(self, live: Keys) -> _Part:
        """Return the part of the items whose keys are among ``live``, in ascending order. Most parts do not change."""
        first, end = np.searchsorted(live, (self.keys[0], self.keys[-1] + 1))
        near = live[first:end]
        return self if np.array_equal(near, self.keys) else self.only(positions(near, self.keys)[1])

    def only(self, kept: npt.NDArray[np.bool_]) -> _Part:
        """Return the part of some of the items, given as a mask ``(n,)``. The payloads are not parsed again."""
        edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        content = b"".join(
            self.content[self.bounds[first, 0] : self.bounds[end - 1, 2]] for first, end in edges.tolist()
        )
        bounds = self.bounds[kept].astype(np.int64)
        starts = np.cumsum([0, *(bounds[:, 2] - bounds[:, 0])])[:-1]
        removed = self.keys[~kept]
        labels = {label: keys[~positions(removed, keys)[1]] for label, keys in self.labels.items()}
        return _Part(
            keys=self.keys[kept],
            bounds=(bounds - bounds[:, :1] + starts[:, None]).astype(np.uint32),
            content=content,
            labels={label: keys for label, keys in labels.items() if len(keys)},
        )

    def followed_by(self, other: _Part) -> _Part:
        """Return one part of the items of two. All keys of the other are higher."""
        none = np.empty(0, np.int64)
        labels = dict.fromkeys([*self.labels, *other.labels])
        return _Part(
            keys=np.concatenate([self.keys, other.keys]),
            bounds=np.concatenate([self.bounds, other.bounds + np.uint32(len(self.content))]),
            content=self.content + other.content,
            labels={
                name: np.concatenate([self.labels.get(name, none), other.labels.get(name, none)]) for name in labels
            },
        )


def _with_few_parts(parts: Sequence[_Part]) -> list[_Part]:
    """Return the rows of some parts in fewer parts, because many small changes would otherwise leave as many parts."""
    kept = [part for part in parts if len(part.keys)]
    while len(kept) > 1 and len(kept[-2].keys) <= len(kept[-1].keys) <= ENTRY_ROWS // 2:
        kept[-2:] = [kept[-2].followed_by(kept[-1])]
    return kept


class ItemRows:
    """Read and write the item rows of an open index file. Callers provide the transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, keys: Keys, names: Sequence[str], payloads: Sequence[str] | None) -> None:
        """Insert the ids and payloads of new items.

        Raises:
            UserError: If an id exists already.
        """
        texts: Sequence[str | None] = [None] * len(names) if payloads is None else payloads
        rows = (
            (key, name, text, row_checksum(key, name, text))
            for key, name, text in zip(keys.tolist(), names, texts, strict=True)
        )
        try:
            self._database.connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
        except sqlite3.IntegrityError as error:
            raise repeated_id() from error

    def write_previews(self, keys: Keys, pictures: Sequence[bytes | None]) -> None:
        """Insert the previews of new items. None stands for an item without a preview."""
        self._database.connection.execute(PREVIEWS)
        rows = (
            (key, picture, _picture_checksum(key, picture))
            for key, picture in zip(keys.tolist(), pictures, strict=True)
            if picture is not None
        )
        self._database.connection.executemany("INSERT INTO previews VALUES (?, ?, ?)", rows)

    def delete(self, keys: Keys) -> None:
        """Delete the ids, payloads and previews of items."""
        tables = ("items", "previews") if self._database.has_table("previews") else ("items",)
        for table in tables:
            deletion = f"DELETE FROM {table} WHERE key = ?"  # noqa: S608  one of two literals
            self._database.connection.executemany(deletion, ((key,) for key in keys.tolist()))

    def read(self, keys: Sequence[int]) -> list[tuple[str, str | None]]:
        """Return the id and payload of each item.

        If all items have explicit ids, this is one read, which does not need a transaction. Otherwise, items without
        a row are looked up in the log.

        Raises:
            UserError: If an item does not exist, or a row is damaged.
        """
        rows = self._select("WHERE key IN (SELECT value FROM json_each(?))", json.dumps(keys))
        found = {key: (name, text) for key, name, text in rows}
        if not self._database.head.named:
            others = np.array([key for key in keys if key not in found], np.int64)
            live = others[self._database.is_live(others)].tolist() if others.size else []
            found |= {key: (str(key), None) for key in live}
        for key in keys:
            if key not in found:
                raise UnknownItem(
                    f"There is no item with key {key} in {self._database.path}. It may have been removed."
                )
        return [found[key] for key in keys]

    def first_payloads(self, most: int) -> list[str]:
        """Return the payloads of at most ``most`` items that have one, in the order of their keys.

        Raises:
            UserError: If a row is damaged.
        """
        rows = self._select("WHERE payload IS NOT NULL ORDER BY key LIMIT ?", most)
        return [text for *_, text in rows if text is not None]

    def previews(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the previews of items by id. Items without a preview are left out.

        Raises:
            UserError: If a row is damaged.
        """
        if not self._database.has_table("previews"):
            return {}
        query = (
            "SELECT items.id, key, picture, previews.checksum FROM items JOIN previews USING (key) "
            "WHERE items.id IN (SELECT value FROM json_each(?))"
        )
        found: dict[str, bytes] = {}
        for name, key, picture, checksum in self._database.connection.execute(query, (json.dumps(list(ids)),)):
            self._check(key, _picture_checksum(key, picture), checksum)
            found[name] = picture
        return found

    def label_keys(self) -> dict[str, Keys]:
        """Return the keys of the items with each label, in ascending order.

        Raises:
            UserError: If a row is damaged.
        """
        found: dict[str, list[int]] = {}
        for key, _, text in self.after(-1):
            for label in _labels(text):
                found.setdefault(label, []).append(key)
        return {label: np.array(keys, np.int64) for label, keys in found.items()}

    def values(self, name: str, after: int) -> Iterator[tuple[int, str]]:
        """Yield the key and the value of each item with a higher key and a value in a column, see `value_of`.

        Raises:
            UserError: If a row is damaged.
        """
        for key, _, text in self.after(after):
            if value := value_of(json.loads(text or "{}"), name):
                yield key, value

    def after(self, key: int) -> Iterator[Row]:
        """Yield the key, id and payload of each item with a higher key, in the order of the keys.

        Raises:
            UserError: If a row is damaged.
        """
        return self._select("WHERE key > ? ORDER BY key", key)

    def _select(self, which: str, value: object) -> Iterator[Row]:
        """Yield the rows that a clause with one value selects, each of which is checked."""
        query = f"SELECT key, id, payload, checksum FROM items {which}"  # noqa: S608  a literal
        for key, name, text, checksum in self._database.connection.execute(query, (value,)):
            self._check(key, row_checksum(key, name, text), checksum)
            yield key, name, text

    def find(self, ids: Sequence[str]) -> Keys:
        """Return the keys of items by id, with -1 for ids that do not exist."""
        if not self._database.head.named:
            keys = np.array([_as_key(name) for name in ids], np.int64)
            return np.where(self._database.is_live(keys), keys, -1)
        known: dict[str, int] = {}
        for start in range(0, len(ids), ENTRY_ROWS):
            known |= self._keys_by_id(ids[start : start + ENTRY_ROWS])
        return np.array([known.get(name, -1) for name in ids], np.int64)

    def replaced(self, ids: Sequence[str], next_key: int) -> Keys:
        """Return the keys of existing items with the ids of items that are being added, the first of them as ``next_key``.

        Raises:
            UserError: If an id was given twice.
        """
        rows = self._keys_by_id(ids)
        if any(key >= next_key for key in rows.values()):
            raise repeated_id()
        return np.array(sorted(rows.values()), np.int64)

    def _keys_by_id(self, ids: Sequence[str]) -> dict[str, int]:
        query = "SELECT id, key FROM items WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._database.connection.execute(query, (json.dumps(list(ids)),)).fetchall())

    def _check(self, key: int, computed: int, stored: int) -> None:
        if computed != stored:
            raise damaged(self._database.path, f"the checksum of item {key} is wrong")


def check_items(
    count: int, ids: Sequence[str] | None, payloads: Sequence[str] | None, previews: Sequence[bytes | None] | None
) -> None:
    """Check the ids, payloads and previews of ``count`` new items.

    Raises:
        UserError: If their number is not ``count``, an id is not valid text, or a payload is not a JSON object.
    """
    for what, given in (("ids", ids), ("payloads", payloads), ("previews", previews)):
        if given is not None and len(given) != count:
            raise LengthsDiffer(f"There are {count} codes but {len(given)} {what}. Give one per code.")
    for name in ids or ():
        if not is_id(name):
            raise InvalidName(f"{name!r} cannot be the id of an item. Use Unicode text without NUL characters.")
    for position, text in enumerate(payloads or ()):
        if not _is_object(text):
            raise WrongType(f"The payload of item {position} is not a JSON object: {text[:40]!r}.")


def repeated_id() -> UserError:
    """Return the error for an id that is given twice."""
    return RepeatedValue("An id is given twice in one call. Give each item its own id.")


def is_id(name: str) -> bool:
    """Return whether a text can be the id of an item: it is not empty, has no NUL character, and is valid Unicode."""
    return bool(name) and "\0" not in name and name == name.encode("utf-8", "ignore").decode()


_as_compared = lru_cache(maxsize=1 << 16)(tidy)
"""Many items have the same labels."""


def _labels(text: str | None) -> Iterable[str]:
    if not text or '"labels"' not in text:
        return ()
    return dict.fromkeys(map(_as_compared, json.loads(text).get("labels", ())))


def value_of(payload: Mapping[str, Any], name: str) -> str:
    """Return the value of an item in a field of its payload or in a further column of the archive; empty without one."""
    return str((payload if name in FIELDS else payload.get("columns", {})).get(name) or "")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _as_key(name: str) -> int:
    """Return the key that an id spells, or -1."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 19 and str(int(name)) == name else -1


def _picture_checksum(key: int, picture: object) -> int:
    return checksum_of(key, picture.hex()) if isinstance(picture, bytes) else -1
