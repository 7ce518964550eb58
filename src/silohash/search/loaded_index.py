"""One modality of a silo in memory: its store, its index, and what searches need of all items."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from silohash.base.errors import UserError
from silohash.base.names import tidy
from silohash.index.base import Distances, Index, Keys, positions
from silohash.index.codes import Words, from_bytes
from silohash.index.database import ENTRY_ROWS
from silohash.index.digests import Digests, item_digests
from silohash.index.items import KeptRows
from silohash.index.small import SMALL_ITEMS, SMALL_ITEMS_IF_PREPARED, SmallIndex
from silohash.index.store import Backend, Store


@runtime_checkable
class _WithWords(Protocol):
    """An index that returns the codes of its items."""

    def words(self, keys: Keys) -> Words:
        """Return the codes under keys, ``(n, W)``."""
        ...


@runtime_checkable
class _Copied(Index, Protocol):
    """An index that can be copied in less time than it is loaded."""

    def copy(self) -> Self:
        """Return a copy, which can be changed while the index is searched."""
        ...


class LoadedIndex:
    """Hold the codes, keys and digests of one modality of a silo's items.

    An item takes one byte per eight bits of code, 8 bytes for its key and 9 bytes for its digest. If many queries follow,
    its id, payload and labels are in memory, too (`silohash.index.items.KeptRows`). Digests come from the store. Those that
    the store does not hold are computed when a search first needs them.
    """

    def __init__(
        self, silo: str, store: Store, backend: Backend, *, prepared: bool = False, former: LoadedIndex | None = None
    ) -> None:
        """Load the index of a store.

        Args:
            silo: Name of the silo.
            store: The open store.
            backend: Index backend, as in `Store.load`.
            prepared: Whether many queries follow. Loading the compiled scan then pays even for few items, and `keep_rows`
                is called.
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
        self.index = store.load(backend, small_items=small_items) if changed is None else changed
        self._silo = silo
        self._keys = self.index.keys
        self._first = int(self._keys[0]) if len(self._keys) else 0
        self._gapless = not len(self._keys) or int(self._keys[-1]) - self._first == len(self._keys) - 1
        self._digests: Digests = np.zeros(len(self._keys), np.uint64)
        self._known = np.zeros(len(self._keys), bool)
        self._all_known = self._read_digests() if former is None or changed is None else self._take_digests(former)
        self._label_keys: dict[str, Keys] | None = None
        self._label_counts: tuple[frozenset[str] | None, dict[str, int]] | None = None
        self._rows: KeptRows | None = None
        if prepared:
            self.keep_rows(former)
        self._lock = threading.Lock()

    def keep_rows(self, former: LoadedIndex | None = None) -> None:
        """Read the ids, payloads and labels of all items into memory, if they fit (`Store.kept_rows`).

        Damaged rows are not an error until a search needs them.
        """
        with suppress(UserError):
            self._rows = self.store.kept_rows(self._keys, None if former is None else former._rows)

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

    def nearest(self, words: Words, k: int, label: str | None = None) -> tuple[Keys, Distances]:
        """Return the k nearest codes, and all further codes at the distance of the last of them.

        Args:
            words: ``(W,)`` packed code.
            k: Number of codes.
            label: If set, only items with this label are searched.

        Returns:
            ``(n,)`` keys and ``(n,)`` distances, in any order.
        """
        allowed = None if label is None else self.keys_with(label)
        return self.index.search_with_ties(words[None], k, allowed=allowed)

    def within(self, words: Words, radius_bits: int, label: str | None = None) -> tuple[Keys, Distances]:
        """Return all codes within a distance of a code ``(W,)``. The label and the result are as in `nearest`."""
        allowed = None if label is None else self.keys_with(label)
        [found] = self.index.search_radius(words[None], radius_bits, allowed=allowed)
        return found.keys[0], found.distances[0]

    def words(self, name: str) -> Words:
        """Return the code of an item, ``(W,)``, from memory if the index keeps codes that can be read.

        Raises:
            UserError: If the index does not have an item with this id.
        """
        keys = self.store.keys_of([name])
        if keys[0] >= 0 and isinstance(self.index, _WithWords):
            return np.asarray(self.index.words(keys)[0])
        return np.asarray(self.store.words([name])[0])

    def digests(self, keys: Keys) -> Digests:
        """Return the digests of (silo, id) of items, ``(n,)``, as `item_digests`. The id of an item is hashed once.

        Args:
            keys: ``(n,)`` different keys of the index.
        """
        places = keys - self._first if self._gapless else np.searchsorted(self._keys, keys)
        if not self._all_known:
            with self._lock:
                new = places[~self._known[places]]
                if len(new):
                    ids = self.store.item_ids(self._keys[new])
                    self._digests[new] = item_digests([self._silo] * len(ids), ids)
                    self._known[new] = True
        return np.asarray(self._digests[places])

    def complete_digests(self) -> None:
        """Compute the digests that the store does not hold, so that no search has to.

        Raises:
            UserError: If the store is damaged, or its items have changed meanwhile.
        """
        if not self._all_known:
            missing = self._keys[~self._known]
            for start in range(0, len(missing), ENTRY_ROWS):
                self.digests(missing[start : start + ENTRY_ROWS])
            self._all_known = True

    def keys_with(self, label: str) -> Keys:
        """Return the keys of the items with a label. The labels of all items are read once."""
        return self._keys_by_label().get(tidy(label), np.empty(0, np.int64))

    def labels(self, approved: frozenset[str] | None = None) -> dict[str, int]:
        """Return the number of items with each label, in the order of the labels.

        They are counted once, and again when other items are approved.

        Args:
            approved: Ids of the items to count; None for all.
        """
        if self._label_counts is None or self._label_counts[0] != approved:
            among = None
            if approved is not None:
                known = self.store.keys_of(list(approved))
                among = np.sort(known[known >= 0])
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
        if not isinstance(self.index, _Copied):
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

    def _take_digests(self, former: LoadedIndex) -> bool:
        """Take the digests that were known before a change, compute those of new items, and return whether all are known."""
        places, there = positions(former._keys, self._keys)
        self._digests[there] = former._digests[places[there]]
        self._known[there] = former._known[places[there]]
        # If the store changed again, the digests that are still unknown are computed when a search needs them.
        with suppress(UserError):
            ids = self.store.item_ids(self._keys[~there])
            self._digests[~there] = item_digests([self._silo] * len(ids), ids)
            self._known[~there] = True
        return bool(self._known.all())

    def _read_digests(self) -> bool:
        """Read the digests from the store, and return whether it holds those of all items."""
        if self.store.manifest.silo != self._silo:
            return not len(self._keys)
        keys, digests = self.store.digests()
        if len(keys) == len(self._keys) and (keys == self._keys).all():
            self._digests = digests
            return True
        places, self._known = positions(keys, self._keys)
        self._digests[self._known] = digests[places[self._known]]
        return bool(self._known.all())
