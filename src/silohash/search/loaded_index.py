"""One modality of a silo in memory: its store, its index, and what searches need of all items."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from secrets import token_hex
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from silohash.base.errors import UserError
from silohash.base.types import Modality, Rows
from silohash.index.base import Allowed, Distances, Index, Keys, distinct, positions
from silohash.index.codes import Magnitudes, Words, from_bytes
from silohash.index.copies import Backend, load_index
from silohash.index.database import ENTRY_ROWS
from silohash.index.digests import Digests, item_digests
from silohash.index.items import KeptRows
from silohash.index.small import SMALL_ITEMS, SMALL_ITEMS_IF_PREPARED, SmallIndex
from silohash.index.store import Store
from silohash.search.filters import LABELS, Column, Condition, Mask
from silohash.search.order import magnitude_sums, output_cosines

MOST_WORD_BYTES = 64 << 20
"""Most memory of an index for which items have the words of former queries."""

FEW = 64
"""Of so many items, one is few: its position takes as much memory as a bit for each of them."""


@runtime_checkable
class _Readable(Index, Protocol):
    """An index that returns the codes of its items."""

    def words(self, keys: Keys) -> Words:
        """Return the codes under keys, ``(n, W)``."""
        ...


@runtime_checkable
class _Open(_Readable, Protocol):
    """An index that can be copied in less time than it is loaded, too."""

    def copy(self) -> Self:
        """Return a copy, which can be changed while the index is searched."""
        ...


@dataclass(frozen=True)
class ItemSet:
    """Some items of an index, by their positions in the order of the keys.

    Attributes:
        rows: ``(n,)`` their positions, in ascending order, if they are few; otherwise empty.
        bits: ``(8 * ceil(N / 64),)`` uint8 with one bit per item of the index, the lowest first; None if they are few.
    """

    rows: Rows
    bits: npt.NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, rows: Rows, total: int) -> ItemSet:
        """Return the items at positions, which ascend, of an index of ``total`` items."""
        if len(rows) * FEW < total:
            return cls(rows)
        mask = np.zeros(-(-total // 64) * 64, bool)
        mask[rows] = True
        return cls(rows[:0], np.packbits(mask, bitorder="little"))

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.rows) if self.bits is None else int(np.bitwise_count(self.bits.view(np.uint64)).sum())

    def every(self) -> Rows:
        """Return the positions of all items, in ascending order."""
        if self.bits is None:
            return self.rows
        # Most groups of 64 items are empty once the bits of several words are combined.
        groups = self.bits.view(np.uint64)
        places = np.flatnonzero(groups)
        found = np.flatnonzero(np.unpackbits(groups[places].view(np.uint8), bitorder="little").view(bool))
        return np.asarray((places[found >> 6] << 6) + (found & 63))

    def holds(self, rows: Rows) -> Mask:
        """Return which items at positions ``(n,)`` are among these."""
        if self.bits is None:
            return positions(self.rows, rows)[1]
        return np.asarray(self.bits[rows >> 3] >> (rows & 7).astype(np.uint8) & 1, bool)


def in_all(sets: Sequence[ItemSet]) -> ItemSet:
    """Return the items that are in each of some sets of one index; of no sets none."""
    few = sorted((each for each in sets if each.bits is None), key=lambda each: len(each.rows))
    many = [each.bits for each in sets if each.bits is not None]
    rows = few[0].rows if few else np.empty(0, np.int64)
    if many and not few:
        found = ItemSet(rows, bits := reduce(np.bitwise_and, many))
        return found if len(found) * FEW >= 8 * len(bits) else ItemSet(found.every())
    for other in sets:
        rows = rows if other is few[0] else rows[other.holds(rows)]
    return ItemSet(rows)


class LoadedIndex:
    """Hold the codes, keys and digests of one modality of a silo's items.

    An item takes one byte per eight bits of code, 8 bytes for its key and 8 bytes for its digest. If many queries follow,
    its id, payload and labels are in memory, too (`silohash.index.items.KeptRows`), and if outputs order items, one byte per
    bit.
    """

    def __init__(
        self,
        silo: str,
        store: Store,
        backend: Backend,
        *,
        prepared: bool = False,
        outputs: bool = False,
        former: LoadedIndex | None = None,
    ) -> None:
        """Load the index of a store.

        Args:
            silo: Name of the silo.
            store: The open store.
            backend: Index backend, as in `load_index`.
            prepared: Whether many queries follow. Loading the compiled scan then pays even for few items, and the ids,
                payloads and labels of all items are read into memory, if they fit (`Store.kept_rows`).
            outputs: Whether to load the magnitudes of the items' outputs, if the store keeps them.
            former: The same index before its store changed. What it has loaded is not read again, and it can be searched
                meanwhile.

        Raises:
            UserError: If the store is damaged.
        """
        self.store = store
        self._stamp = store.stamp()
        self._version = store.version()
        if former is not None and former._stamp[0] != self._stamp[0]:
            # Keys of another file are not those of this one, so nothing of it can be taken over.
            former = None
        small_items = SMALL_ITEMS_IF_PREPARED if prepared else SMALL_ITEMS
        changed = None if former is None else former._with_changes(small_items)
        self.index = load_index(store, backend, small_items=small_items, trie=prepared) if changed is None else changed
        # Numbers of items removed so far, before and after loading, because one can be removed meanwhile.
        removed = [next_key - count for next_key, _, count in (self._version, store.version())]
        self._edition = f"{self._stamp[0]}.{removed[0]}.{removed[1]}"
        self._in_memory = isinstance(backend, str) or backend.in_memory
        self._silo = silo
        self._keys = self.index.keys
        self._first = int(self._keys[:1].sum())  # 0 without items
        self._gapless = int(self._keys[-1:].sum()) - self._first == max(0, len(self._keys) - 1)
        known = None if changed is None else former
        self._digests = self._all_digests(known)
        self._magnitudes = self._all_magnitudes(known, wanted=outputs)
        self._label_keys: dict[str, Keys] | None = None
        self._words: dict[tuple[str, frozenset[str]], ItemSet] = {}
        self._approved: tuple[Collection[str], Keys] | None = None
        self._shared: tuple[LoadedIndex, Mask] | None = None
        self._label_counts: tuple[frozenset[str] | None, dict[str, int]] | None = None
        self._rows: KeptRows | None = None
        self._columns: dict[str, Column] = {}
        self._read_columns: dict[str, Column] = {} if former is None else dict(former._read_columns)
        if prepared:
            # Damaged rows are not an error until a search needs them.
            with suppress(UserError):
                self._rows = store.kept_rows(self._keys, None if former is None else former._rows)
        self._lock = threading.Lock()

    @property
    def edition(self) -> str:
        """A value that differs after an item was replaced or removed, and always if the codes are on a server."""
        return self._edition if self._in_memory else token_hex(4)

    def rows(self, keys: list[int]) -> list[tuple[str, dict[str, Any]]]:
        """Return the id and the payload of items, from memory if they are kept there.

        Raises:
            UserError: If a key does not exist.
        """
        if self._rows is not None:
            # The store may have changed while it was loaded, so that a row is missing in memory.
            with suppress(KeyError):
                return self._rows.read(keys)
        return self.store.rows(keys)

    def outdated(self) -> bool:
        """Return whether items were added to the store or removed from it since the index was loaded."""
        stamp = self.store.stamp()
        if stamp == self._stamp:
            return False
        # Reading the version takes longer than the stamp, which may differ without a change of items.
        if self.store.version() != self._version:
            return True
        self._stamp = stamp
        return False

    def nearest(
        self, words: Words, k: int, among: Allowed | None = None, limit_bits: int | None = None
    ) -> tuple[Keys, Distances]:
        """Return the k codes nearest to a code ``(W,)``, and all further codes at the distance of the last of them.

        With ``among``, only these items are searched (`chosen`). Codes beyond ``limit_bits`` are left out.

        Returns:
            ``(n,)`` keys and ``(n,)`` distances, in any order.
        """
        return self.index.search_with_ties(words[None], k, allowed=among, limit_bits=limit_bits)

    def within(self, words: Words, radius_bits: int, among: Allowed | None = None) -> tuple[Keys, Distances]:
        """Return all codes within a distance of a code ``(W,)``. The filter and the result are as in `nearest`."""
        [found] = self.index.search_radius(words[None], radius_bits, allowed=among)
        return found.keys[0], found.distances[0]

    def words(self, name: str) -> Words:
        """Return the code of an item, ``(W,)``, from memory if the index keeps codes that can be read.

        Raises:
            UserError: If the index does not have an item with this id.
        """
        keys = self.store.keys_of([name])
        if keys[0] >= 0 and self._codes is not None:
            return np.asarray(self._codes.words(keys)[0])
        return np.asarray(self.store.words([name])[0])

    def order_values(self, keys: Keys, words: Words, magnitudes: Magnitudes) -> npt.NDArray[np.int64] | None:
        """Return what orders the items with some keys at the same distance (`magnitude_sums`), ``(n,)``.

        Returns None if the codes are on a server, from which they are not read.
        """
        return None if self._codes is None else magnitude_sums(self._codes.words(keys), words, magnitudes)

    @cached_property
    def _codes(self) -> _Readable | None:
        """The index, if it returns codes. A search does not wait for this check, which takes long."""
        return self.index if isinstance(self.index, _Readable) else None

    @property
    def has_outputs(self) -> bool:
        """Whether the outputs of all items are known."""
        return self._magnitudes is not None

    def cosines(self, keys: Keys, words: Words, magnitudes: Magnitudes) -> npt.NDArray[np.int64]:
        """Return the cosines of a query's outputs with those of the items with some keys (`output_cosines`), ``(n,)``."""
        assert self._magnitudes is not None  # noqa: S101  see `has_outputs`
        assert self._codes is not None  # noqa: S101
        return output_cosines(self._codes.words(keys), self._magnitudes[self.rows_of(keys)], words, magnitudes)

    def digests(self, keys: Keys) -> Digests:
        """Return the digests of (silo, id) of the items with some keys, ``(n,)``, as `item_digests`."""
        return np.asarray(self._digests[self.rows_of(keys)])

    def rows_of(self, keys: Keys) -> Rows:
        """Return the positions of live keys among all keys."""
        return keys - self._first if self._gapless else np.searchsorted(self._keys, keys)

    def column(self, name: str) -> Column:
        """Return a column of the items: their labels, another field, or a further column. Each is read once.

        After a change of the store, only new items are read.
        """
        if name not in self._columns:
            column = self._labels_as_column() if name == LABELS else self._read_column(name)
            rows, there = positions(self._keys, column.rows)
            self._columns[name] = replace(column, rows=rows[there], codes=column.codes[there])
        return self._columns[name]

    def _read_column(self, name: str) -> Column:
        """Return a field or a further column, with keys in place of positions."""
        known = self._read_columns.get(name)
        last = -1 if known is None or not len(known.rows) else int(known.rows[-1])
        self._read_columns[name] = Column.of((self._rows or self.store).values(name, last), known)
        return self._read_columns[name]

    def _labels_as_column(self) -> Column:
        """Return the labels, with keys in place of positions."""
        keys = self._keys_by_label()
        codes = np.repeat(np.arange(len(keys), dtype=np.int32), [*map(len, keys.values())])
        return Column(tuple(keys), np.concatenate([np.empty(0, np.int64), *keys.values()]), codes, exact=True)

    def passing(
        self, conditions: Sequence[Condition], approved: Collection[str] | None = None, excluded: Sequence[Rows] = ()
    ) -> Mask:
        """Return which items, in the order of their keys, pass some conditions, are approved and are not excluded.

        ``approved`` is None if all are, and ``excluded`` has groups of positions.
        """
        found = np.ones(len(self._keys), bool)
        for condition in conditions:
            found &= self.column(condition.column).passing(condition, len(found))
        if approved is not None:
            known = np.zeros(len(found), bool)
            known[self.rows_of(self.approved(approved))] = True
            found &= known
        for rows in excluded:
            found[rows] = False
        return found

    def also_in(self, other: LoadedIndex) -> Mask:
        """Return which items are in the index of another modality too, in the order of their keys. It is found once."""
        if self._shared is None or self._shared[0] is not other:
            self._shared = other, np.isin(self._digests, other._digests)
        return self._shared[1]

    def allowed(self, passing: Mask) -> Keys:
        """Return the keys of the items that pass, in ascending order."""
        return self._keys[passing]

    def chosen(self, items: ItemSet | None, passing: Mask | None = None) -> Allowed | None:
        """Return those of some items that pass, as an index takes them; None for all items.

        An index in memory takes a mask as it is, and reading the positions of many items would take longer than a scan.
        """
        if items is None:
            return passing if passing is None or self._codes is not None else self._keys[passing]
        if items.bits is None or self._codes is None:
            rows = items.every()
            return self._keys[rows if passing is None else rows[passing[rows]]]
        mask = np.unpackbits(items.bits, count=len(self._keys), bitorder="little").view(bool)
        return mask if passing is None else mask & passing

    def among(self, items: ItemSet, keys: Keys) -> ItemSet:
        """Return those of some items whose keys are among others, which ascend."""
        rows = items.every()
        return ItemSet.of(rows[positions(keys, self._keys[rows])[1]], len(self._keys))

    def live(self, keys: Keys) -> Keys:
        """Return those keys whose items exist, each once and in ascending order."""
        kept = distinct(keys)
        return kept[positions(self._keys, kept)[1]]

    def with_word(self, term: str, fields: Collection[str]) -> ItemSet:
        """Return the items with a term in their id or in some fields. They are kept for other queries."""
        which = term, frozenset(fields)
        found = self._words.get(which)
        if found is None:
            rows, there = positions(self._keys, self.store.keys_with(term, fields))
            found = ItemSet.of(rows[there], len(self._keys))
            used = sum((each.rows if each.bits is None else each.bits).nbytes for each in [*self._words.values()])
            if used > MOST_WORD_BYTES:
                self._words = {}
            self._words[which] = found
        return found

    def approved(self, ids: Collection[str]) -> Keys:
        """Return the keys of the items with some ids, in ascending order. Those of the last call are kept."""
        kept = self._approved
        if kept is None or kept[0] != ids:
            kept = self._approved = ids, self.live(self.store.keys_of(list(ids)))
        return kept[1]

    def labels(self, approved: frozenset[str] | None = None) -> dict[str, int]:
        """Return the number of items with each label, in the order of the labels, of the approved ids; None for all.

        They are counted once, and again when other items are approved.
        """
        if self._label_counts is None or self._label_counts[0] != approved:
            among = None if approved is None else self.approved(approved)
            counts = {
                label: len(keys) if among is None else int(positions(among, keys)[1].sum())
                for label, keys in sorted(self._keys_by_label().items())
            }
            self._label_counts = approved, {label: count for label, count in counts.items() if count}
        return self._label_counts[1]

    def _keys_by_label(self) -> dict[str, Keys]:
        with self._lock:
            if self._label_keys is None:
                kept = self._rows
                self._label_keys = self.store.label_keys() if kept is None else kept.label_keys(self._keys)
            return self._label_keys

    def _with_changes(self, small_items: int) -> Index | None:
        """Return a copy of the index with the changes of the store since it was loaded; None if all must be loaded again."""
        if not isinstance(self.index, _Open):
            return None
        changes = self.store.changes_since(self._version)
        if changes is None or len(changes.keys) > ENTRY_ROWS:
            return None
        if isinstance(self.index, SmallIndex) and changes.total > small_items:
            return None
        index = self.index.copy()
        index.add(changes.keys, from_bytes(changes.packed, index.bits))
        index.remove(changes.removed)
        return index if len(index) == changes.total else None

    def _all_magnitudes(self, former: LoadedIndex | None, *, wanted: bool) -> Magnitudes | None:
        """Return the magnitudes of all items, ``(n, bits)``; None if they are not wanted, not stored, or on a server."""
        if not wanted or self._codes is None:
            return None
        parts, first = [], 0
        if former is not None and former._magnitudes is not None:
            parts, first = [(former._keys, former._magnitudes)], former._version[1]
        stored = self.store.magnitudes(first)
        if stored is None:
            return None
        found = np.empty((len(self._keys), self.index.bits), np.uint8)
        missing = np.ones(len(found), bool)
        for keys, values in [*parts, stored]:
            places, there = positions(keys, self._keys)
            found[there] = values[places[there]]
            missing &= ~there
        return None if missing.any() else found

    def _all_digests(self, former: LoadedIndex | None) -> Digests:
        """Return the digests of all items: those known before a change, else those in the store, else those of their ids."""
        if former is not None:
            keys, digests = former._keys, former._digests
        elif self.store.manifest.silo == self._silo:
            keys, digests = self.store.digests()
        else:
            keys, digests = self._keys[:0], np.empty(0, np.uint64)
        places, there = positions(keys, self._keys)
        found = np.empty(len(self._keys), np.uint64)
        found[there] = digests[places[there]]
        missing = np.flatnonzero(~there)
        for start in range(0, len(missing), ENTRY_ROWS):
            some = missing[start : start + ENTRY_ROWS]
            ids = self.store.item_ids(self._keys[some])
            found[some] = item_digests([self._silo] * len(ids), ids)
        return found


Indexes: TypeAlias = Mapping[Modality, LoadedIndex]
"""The open indexes of a silo."""


def most_frequent(labels: dict[str, int], most: int) -> dict[str, int]:
    """Return at most so many labels with the numbers of their items, the most frequent ones, in their order."""
    if len(labels) <= most:
        return labels
    frequent = {*sorted(labels, key=lambda label: -labels[label])[:most]}
    return {label: count for label, count in labels.items() if label in frequent}
