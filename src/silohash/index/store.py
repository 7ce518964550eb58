"""The permanent form of an index: one SQLite file in write-ahead mode, from which the index in memory is built.

Codes are stored as a log, see `database`. Reading the log costs little more than copying the codes, so no second file is
needed that could disagree with it. Ids, payloads and previews are stored in rows, see `items`, and the words of ids and
payloads in a full-text table, see `words`. Every change is one transaction, which is applied as a whole or not at all.

Codes, keys and digests of items are in memory. They take one byte per eight bits of code, and 16 bytes, per item. A search
reads the rows of its final hits only. A process that answers many searches keeps all rows in memory (`Store.kept_rows`).
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from silohash.base.errors import IndexDiffers, MixedKinds, UnknownItem
from silohash.index import IN_MEMORY
from silohash.index.base import Index, IndexManifest, Keys, distinct, positions
from silohash.index.codes import CodeBytes, Codes, Magnitudes, Words, byte_count, check_magnitudes, from_bytes, to_bytes
from silohash.index.config import installed_backend
from silohash.index.database import ENTRY_ROWS, Changes, Database, Stamp, create_file
from silohash.index.digests import Digests, item_digests
from silohash.index.items import ItemRows, KeptRows, check_items
from silohash.index.server import ServerIndex
from silohash.index.small import SMALL_ITEMS, TRIE_ITEMS, SmallIndex
from silohash.index.words import ItemWords

Noise: TypeAlias = Callable[[CodeBytes], CodeBytes]

MOST_MAGNITUDE_BYTES = 256 << 20
"""Most bytes of magnitudes in an index file, which are those of 4 million items at 64 bits. A larger index keeps none."""

MOST_KEPT_BYTES = 512 << 20
"""Most memory for the ids, payloads and labels of the items of one index. A larger index reads them from its file."""


class Store:
    """An open index file. Use it in a ``with`` block, or call `close`.

    Attributes:
        noise: Changes codes that are loaded to be searched or released, ``(n, bytes)``; None to leave them as they are.
    """

    def __init__(self, path: Path) -> None:
        """Open an index file.

        Raises:
            UserError: If it is missing, damaged, not an index, or in a newer format.
        """
        self.path = path
        self._database = Database(path)
        self._rows = ItemRows(self._database)
        self._words = ItemWords(self._database)
        self._copy: ServerIndex | None = None
        self.noise: Noise | None = None

    @classmethod
    def create(cls, path: Path, manifest: IndexManifest, *, magnitudes: bool = False) -> Self:
        """Create an empty index file and open it.

        If ``magnitudes`` is set, the file keeps those of all items, up to `MOST_MAGNITUDE_BYTES`.

        Raises:
            UserError: If the file exists or cannot be written.
        """
        create_file(path, manifest, magnitudes=magnitudes)
        return cls(path)

    def close(self) -> None:
        """Close the file, and the connection to a server that searches it."""
        self.keep_open(None)
        self._database.connection.close()

    def keep_open(self, copy: ServerIndex | None) -> None:
        """Close the connection to a copy of the codes on a server, and keep another until the file is closed."""
        former, self._copy = self._copy, copy
        if former is not None:
            former.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.manifest.count

    @property
    def manifest(self) -> IndexManifest:
        """The manifest of the file, as of the last access by this store."""
        return self._database.head.manifest

    def version(self) -> tuple[int, int, int]:
        """Return a value that changes whenever items are added or removed, by this program or by another."""
        head = self._database.current_head()
        return head.next_key, head.entries, head.manifest.count

    def stamp(self) -> Stamp:
        """Return a value that differs after every change of the file. It is cheap, and may differ without a change of items.

        If it differs, compare `version`.
        """
        return self._database.stamp()

    def add_codes(
        self, codes: Codes, payloads: Sequence[str] | None = None, previews: Sequence[bytes | None] | None = None
    ) -> Keys:
        """Add codes, after checking that they come from the model of the index. See `add`.

        Raises:
            UserError: If the model, the code length or the modality differs, or as in `add`.
        """
        self.manifest.check(codes.model_digest, codes.bits)
        if codes.modality != self.manifest.modality:
            raise IndexDiffers(
                f"The index holds {self.manifest.modality} codes, but these are {codes.modality} codes. "
                "Add them to the index of their own modality."
            )
        return self.add([str(name) for name in codes.ids], codes.words, payloads, previews, codes.magnitudes)

    def add(
        self,
        ids: Sequence[str] | None,
        words: Words,
        payloads: Sequence[str] | None = None,
        previews: Sequence[bytes | None] | None = None,
        magnitudes: Magnitudes | None = None,
    ) -> Keys:
        """Add items. An item with an existing id replaces the old item and gets a new key.

        Args:
            ids: One unique string per item. If None, the key of an item is its id, which must then hold for all items of
                the index.
            words: ``(n, W)`` packed codes.
            payloads: One JSON object per item, as text: what the silo may show of the item.
            previews: The content of one small picture file per item, or None for items without a picture.
            magnitudes: ``(n, bits)`` magnitudes of the outputs whose signs are the codes. A file that keeps them for all
                items keeps none any more after items were added without.

        Returns:
            ``(n,)`` int64 keys of the items.

        Raises:
            UserError: If lengths differ, an id is given twice, a payload is not a JSON object, or the disk is full.
        """
        packed = to_bytes(words, self.manifest.bits)
        check_items(len(packed), ids, payloads, previews)
        check_magnitudes(magnitudes, len(packed), self.manifest.bits)
        if not len(packed):
            return np.empty(0, np.int64)
        with self._database.change() as before:
            if before.named not in (None, ids is not None):
                kind = "explicit ids" if before.named else "their keys as ids"
                raise MixedKinds(f"The items of {self.path} have {kind}. Add all items of an index in the same way.")
            keys = np.arange(before.next_key, before.next_key + len(packed), dtype=np.int64)
            removed = 0
            if magnitudes is None or (before.manifest.count + len(packed)) * self.manifest.bits > MOST_MAGNITUDE_BYTES:
                self._database.connection.execute("DROP TABLE IF EXISTS magnitudes")
            kept = magnitudes if self._database.keeps_magnitudes else None
            for start in range(0, len(packed), ENTRY_ROWS):
                part = slice(start, start + ENTRY_ROWS)
                if ids is not None and before.named is not None:
                    removed += self._drop(self._rows.replaced(ids[part], before.next_key))
                values = (_part(given, part) for given in (ids, payloads, previews, kept))
                self._append(keys[part], packed[part], *values)
            self._count(len(packed) - removed, next_key=before.next_key + len(packed), named=ids is not None)
        return keys

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Remove items by id, and return the ids that existed, each once and in the given order."""
        wanted = list(dict.fromkeys(ids))
        with self._database.change():
            keys = self._rows.find(wanted)
            self._count(-self._drop(np.sort(keys[keys >= 0])))
        return [name for name, key in zip(wanted, keys.tolist(), strict=True) if key >= 0]

    def compact(self) -> None:
        """Erase removed items and their words from the file, and release their disk space."""
        with self._database.change():
            self._words.rewrite(self._rows.after(-1))
        self._database.rewrite()

    def load(self, backend: str = "flat", *, small_items: int | None = None, trie: bool = False) -> Index:
        """Build the index in memory from the live codes.

        The flat backend is a `SmallIndex` for up to ``small_items`` items, by default `SMALL_ITEMS`. The compiled scan is
        faster if many queries follow. For more items, faiss replaces it if numba is not installed. With ``trie``, the flat
        backend is a trie from `TRIE_ITEMS` items on, which takes about a second per million items to build.

        Raises:
            UserError: If the file is damaged, or the backend is unknown or not installed.
        """
        with self._database.reading():
            few = SMALL_ITEMS if small_items is None else small_items
            small = backend == "flat" and self.manifest.count <= few
            if trie and self.manifest.count >= TRIE_ITEMS and installed_backend(backend) == "flat":
                backend = "trie"
            index: Index = SmallIndex(self.manifest.bits) if small else empty_index(backend, self.manifest)
            for keys, packed in self._database.live():
                index.add(keys, from_bytes(self._noised(packed), self.manifest.bits))
        return index

    def changes_since(self, version: tuple[int, int, int]) -> Changes | None:
        """Return what was added and removed since `version` had a value; None if the file does not tell."""
        with self._database.reading():
            changes = self._database.changes_since(*version)
            return None if changes is None else changes._replace(packed=self._noised(changes.packed))

    def keys_of(self, ids: Sequence[str]) -> Keys:
        """Return the keys of items, ``(n,)`` int64, with -1 for ids that do not exist."""
        with self._database.reading():
            return self._rows.find(ids)

    def has(self, name: str) -> bool:
        """Return whether there is an item with an id."""
        return bool(self.keys_of([name])[0] >= 0)

    def words(self, ids: Sequence[str]) -> Words:
        """Return the codes of items, ``(n, W)``. The whole log is read.

        Raises:
            UserError: If an item does not exist.
        """
        with self._database.reading():
            keys = self._rows.find(ids)
            if (keys < 0).any():
                raise UnknownItem(f'There is no item "{ids[int((keys < 0).argmax())]}" in {self.path}. Check its id.')
            found = np.zeros((len(keys), byte_count(self.manifest.bits)), np.uint8)
            for live, packed in self._database.live():
                places, there = positions(live, keys)
                found[there] = packed[places[there]]
            return from_bytes(self._noised(found), self.manifest.bits)

    def codes(self) -> Iterator[tuple[Keys, Words]]:
        """Yield the live keys in ascending order with their codes. Use the store for nothing else meanwhile.

        Raises:
            UserError: If the file is damaged.
        """
        with self._database.reading():
            for keys, packed in self._database.live():
                yield keys, from_bytes(packed, self.manifest.bits)

    def removed_keys(self) -> Keys:
        """Return the removed keys that the file still notes, in ascending order. Compacting it forgets them."""
        with self._database.reading():
            return self._database.removed()

    def item_ids(self, keys: Keys) -> list[str]:
        """Return the ids of items.

        Raises:
            UserError: If a key does not exist.
        """
        with self._database.reading():
            return [name for name, _ in self._rows.read(keys.tolist())]

    def payloads(self, keys: Keys) -> list[dict[str, Any]]:
        """Return what the silo stores to show of items: one mapping per item, empty if nothing is stored.

        Raises:
            UserError: If a key does not exist.
        """
        with self._database.reading():
            return [json.loads(text) if text else {} for _, text in self._rows.read(keys.tolist())]

    def kept_rows(
        self, live: Keys, former: KeptRows | None = None, *, most_bytes: int = MOST_KEPT_BYTES
    ) -> KeptRows | None:
        """Return the ids, payloads and labels of all items in memory, whose keys are ``live``, in ascending order.

        With the ``former`` rows, before a change of this file, only the rows of new items are read. Returns None if the rows
        take more than ``most_bytes``, or if the items do not have ids of their own and thus no rows.

        Raises:
            UserError: If a row is damaged.
        """
        with self._database.reading():
            if not self._database.head.named:
                return None
            former = former or KeptRows()
            return former.changed(self._rows.after(former.last_key), live, most_bytes)

    def rows(self, keys: list[int]) -> list[tuple[str, dict[str, Any]]]:
        """Return the id and the payload of items, in one read.

        Raises:
            UserError: If a key does not exist.
        """
        with self._database.explained() if self._database.head.named else self._database.reading():
            rows = self._rows.read(keys)
        # Parsing all payloads at once is faster than one after the other.
        payloads = json.loads(f"[{','.join(text or '{}' for _, text in rows)}]")
        return [(name, payload) for (name, _), payload in zip(rows, payloads, strict=True)]

    def digests(self) -> tuple[Keys, Digests]:
        """Return the keys of items whose digests of (silo, id) are stored, in ascending order, and the digests.

        Items that were removed may be among them.
        """
        with self._database.reading():
            return self._database.digests()

    def magnitudes(self, after_entry: int = 0) -> tuple[Keys, Magnitudes] | None:
        """Return the keys of items in ascending order, and the magnitudes of their outputs; None if they are not kept.

        Items that were removed may be among them. Those of the log's entries up to ``after_entry`` are left out.

        Raises:
            UserError: If some of them are damaged.
        """
        with self._database.reading():
            return self._database.magnitudes(after_entry) if self._database.keeps_magnitudes else None

    def first_payloads(self, most: int) -> list[dict[str, Any]]:
        """Return the payloads of at most ``most`` items that have one, in the order of their keys."""
        with self._database.reading():
            return [json.loads(text) for text in self._rows.first_payloads(most)]

    def previews(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the stored previews of items by id. Items without a preview are left out."""
        with self._database.reading():
            return self._rows.previews(ids)

    def label_keys(self) -> dict[str, Keys]:
        """Return the keys of the items with each label that payloads hold, in ascending order."""
        with self._database.reading():
            return self._rows.label_keys()

    def values(self, name: str, after: int) -> list[tuple[int, str]]:
        """Return the key and the value of each item with a higher key and a value in a field or a further column."""
        with self._database.reading():
            return list(self._rows.values(name, after))

    def keys_with(self, term: str, fields: Collection[str]) -> Keys:
        """Return the keys of items with a term in their id or in one of some fields. Removed items may be among them."""
        with self._database.reading():
            return self._words.keys_with(term, fields)

    def keys_of_text(self, name: str, terms: Sequence[str]) -> Keys:
        """Return the keys of items whose id is a name, or whose whole caption has some terms, as `keys_with`.

        Each search with words asks, so there is one statement and no transaction.
        """
        with self._database.explained():
            found = self._words.keys_of_text(name, terms)
            spelled = [] if self._database.head.named else self._rows.find([name]).tolist()
            return distinct(np.array([*found.tolist(), *(key for key in spelled if key >= 0)], np.int64))

    def _noised(self, packed: CodeBytes) -> CodeBytes:
        return packed if self.noise is None else self.noise(packed)

    def _append(
        self,
        keys: Keys,
        packed: CodeBytes,
        ids: Sequence[str] | None,
        payloads: Sequence[str] | None,
        previews: Sequence[bytes | None] | None,
        magnitudes: Magnitudes | None,
    ) -> None:
        """Write one log entry and the rows that its items need."""
        if any(given is not None for given in (ids, payloads, previews)):
            names = [str(key) for key in keys.tolist()] if ids is None else ids
            self._rows.write(keys, names, payloads)
            texts: Sequence[str | None] = [None] * len(names) if payloads is None else payloads
            self._words.write(zip(keys.tolist(), names, texts, strict=True))
        if previews is not None:
            self._rows.write_previews(keys, previews)
        silo = self.manifest.silo
        digests = item_digests([silo] * len(ids), ids) if silo and ids is not None else None
        self._database.append(keys, packed, digests, magnitudes)

    def _drop(self, keys: Keys) -> int:
        """Remove live keys, and return their number."""
        if keys.size:
            self._rows.delete(keys)
            self._database.append(keys, None)
        return int(keys.size)

    def _count(self, change: int, **changes: Any) -> None:  # noqa: ANN401  fields of the head
        head = self._database.head
        manifest = replace(head.manifest, count=head.manifest.count + change)
        self._database.head = replace(head, manifest=manifest, **changes)


def empty_index(backend: str, manifest: IndexManifest, *, threads: int = 1) -> Index:
    """Return an empty index with room for the manifest's items. If numba is not installed, faiss replaces "flat".

    The flat backend divides the queries of a batch among ``threads`` threads.

    Raises:
        UserError: If the backend is unknown or not installed.
    """
    index_class = IN_MEMORY.resolve(installed_backend(backend))
    created: Index = index_class(manifest.bits, capacity=manifest.count, threads=threads)
    return created


def _part(values: Sequence[Any] | Magnitudes | None, part: slice) -> Any:  # noqa: ANN401  the type of the values
    return None if values is None else values[part]
