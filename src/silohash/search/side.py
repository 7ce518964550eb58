"""One modality of a silo in memory: its store, its index, and what searches have cached."""

from __future__ import annotations

import threading

import numpy as np

from silohash.index.base import Index, Keys
from silohash.index.store import Engine, Store
from silohash.search.order import Digests, item_digests


class Side:
    """Hold the codes of one modality of a silo's items.

    Digests of items are computed when a search first needs them.
    """

    def __init__(self, silo: str, store: Store, engine: Engine) -> None:
        """Load the index of a store.

        Args:
            silo: name of the silo.
            store: the open store.
            engine: index engine, as in `Store.load`.

        Raises:
            UserError: if the store is damaged.
        """
        self.store = store
        self._version = store.version()
        self.index: Index = store.load(engine)
        self._silo = silo
        self._digests: Digests = np.zeros(0, np.uint64)
        self._known = np.zeros(0, bool)
        self._label_keys: dict[str, Keys] | None = None
        self._lock = threading.Lock()

    def outdated(self) -> bool:
        """Return whether items were added to the store or removed from it since the index was loaded."""
        return self.store.version() != self._version

    def digests(self, keys: Keys) -> Digests:
        """Return the digests of (silo, id) of items, ``(n,)``, as `order.item_digests`. The id of an item is hashed once.

        Args:
            keys: ``(n,)`` different keys.
        """
        with self._lock:
            more = int(keys.max(initial=-1)) + 1 - len(self._known)
            if more > 0:
                more = max(more, len(self._known))
                self._digests = np.pad(self._digests, (0, more))
                self._known = np.pad(self._known, (0, more))
            new = keys[~self._known[keys]]
            if len(new):
                ids = self.store.item_ids(new)
                self._digests[new] = item_digests([self._silo] * len(ids), ids)
                self._known[new] = True
            return np.asarray(self._digests[keys])

    def keys_with(self, label: str) -> Keys:
        """Return the keys of the items with a label. The labels of all items are read once."""
        return self._keys_by_label().get(label, np.empty(0, np.int64))

    def labels(self) -> dict[str, int]:
        """Return the number of items with each label, in the order of the labels. The labels are read once."""
        return {label: len(keys) for label, keys in sorted(self._keys_by_label().items())}

    def _keys_by_label(self) -> dict[str, Keys]:
        with self._lock:
            if self._label_keys is None:
                self._label_keys = self.store.label_keys()
            return self._label_keys
