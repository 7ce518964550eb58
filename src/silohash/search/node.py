"""The part of a search that runs at a silo: check the query, scan the silo's own index, release what its policy allows."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.index.base import Index, Keys
from silohash.index.codes import word_count, word_type
from silohash.index.preview import preview_url
from silohash.index.store import Engine, Store
from silohash.search.hits import Hits, Query, silent
from silohash.search.order import Digests, item_digests, keyed_order
from silohash.search.policy import Policy
from silohash.types import MODALITIES, Modality, UserError

Distances = npt.NDArray[np.int32]


class _Side:
    """Hold one modality of a silo: its store, the index in memory, and what searches have cached.

    Digests of items are computed when ties first need them.
    """

    def __init__(self, silo: str, store: Store, engine: Engine) -> None:
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

    def order(self, keys: Keys, tie_key: bytes) -> Digests:
        """Return the sort values of items at the same distance, ``(n,)``. The id of an item is read and hashed once."""
        with self._lock:
            more = int(keys.max(initial=-1)) + 1 - len(self._known)
            if more > 0:
                more = max(more, len(self._known))
                self._digests = np.pad(self._digests, (0, more))
                self._known = np.pad(self._known, (0, more))
            new = np.unique(keys[~self._known[keys]])
            if len(new):
                ids = self.store.item_ids(new)
                self._digests[new] = item_digests([self._silo] * len(ids), ids)
                self._known[new] = True
            return keyed_order(self._digests[keys], tie_key)

    def keys_with(self, label: str) -> Keys:
        """Return the keys of the items with a label. The labels of all items are read once."""
        with self._lock:
            if self._label_keys is None:
                self._label_keys = self.store.label_keys()
            return self._label_keys.get(label, np.empty(0, np.int64))


class SiloNode:
    """Answer queries for one silo.

    Attributes:
        name: name of the silo.
        policy: the limits of what the silo releases.
    """

    def __init__(
        self,
        name: str,
        stores: Mapping[Modality, Store],
        policy: Policy | None = None,
        *,
        engine: Engine = "flat",
        unusable: Mapping[Modality, str] | None = None,
    ) -> None:
        """Load the indexes of the silo. An index that cannot be loaded is not an error until it is searched.

        Args:
            name: name of the silo.
            stores: the store of each modality that the silo holds.
            policy: the limits of what the silo releases; the default policy if None.
            engine: index engine, as in `Store.load`.
            unusable: for each modality whose index exists or should exist but cannot be searched, the reason.
        """
        self.name = name
        self.policy = policy or Policy()
        self._engine = engine
        self._stores = tuple(stores.values())
        self._sides: dict[Modality, _Side] = {}
        self._unusable = dict(unusable or {})
        for modality, store in stores.items():
            try:
                self._sides[modality] = _Side(name, store, engine)
            except UserError as error:
                self._unusable[modality] = str(error)

    def warm_up(self) -> bool:
        """Run the loops of an index once, and return whether there was an index with items.

        Compiling the loops takes seconds if this machine has not searched before. Done during a search, it could outlast
        the search's deadline.
        """
        for side in self._sides.values():
            if len(side.index):
                nothing = np.zeros((1, word_count(side.index.bits)), word_type(side.index.bits))
                side.index.search(nothing, 1)
                side.index.search_radius(nothing, 0)
                return True
        return False

    @property
    def model_digest(self) -> str:
        """Digest of the model that computed the silo's codes.

        Raises:
            UserError: if no index of the silo can be searched.
        """
        for side in self._sides.values():
            return side.store.manifest.model_digest
        raise UserError(next(iter(self._unusable.values()), "It does not have an index."))

    def captions(self, most: int) -> list[str]:
        """Return captions of the silo's items, in the order in which they were indexed, if its policy releases them."""
        if "caption" not in self.policy.fields:
            return []
        try:
            payloads = [payload for side in [*self._sides.values()][:1] for payload in side.store.first_payloads(most)]
        except UserError:  # a search answers with the reason
            return []
        return [str(payload["caption"]) for payload in payloads if payload.get("caption")]

    def close(self) -> None:
        """Close the silo's index files."""
        for store in self._stores:
            store.close()

    def answer(self, query: Query) -> Hits:
        """Return the silo's nearest ``query.reach`` items, or as many of them as its policy releases.

        Items are ordered by (distance, `order.tie_order`). A tie at the cut is resolved by that order too: a radius search
        fetches all items at the distance of the cut, so that the silo keeps exactly those that the merge would keep. Items
        that were added or removed since the last query are taken into account.

        Returns:
            The hits, or a silent result with the reason if the silo refuses the query.
        """
        try:
            return self._search(self._side(query), query)
        except UserError as error:
            return silent(self.name, str(error))

    def _side(self, query: Query) -> _Side:
        """Return the side to search, after checking the policy and the model of the query."""
        if query.modality not in self.policy.modalities:
            raise UserError(f"Its policy does not allow searching for {query.modality}s.")
        if query.label is not None and "labels" not in self.policy.fields:
            raise UserError("Its policy does not release labels, so a search cannot filter by them.")
        if query.modality not in self._sides:
            raise UserError(self._unusable.get(query.modality, f"It does not have {query.modality}s to search."))
        side = self._sides[query.modality]
        side.store.manifest.check(query.model_digest, query.bits)
        if side.outdated():
            side = self._sides[query.modality] = _Side(self.name, side.store, self._engine)
        return side

    def _search(self, side: _Side, query: Query) -> Hits:
        k = min(query.reach, self.policy.max_results)
        radius_bits = self.policy.radius_bits(query.radius_bits)
        allowed = None if query.label is None else side.keys_with(query.label)
        found = side.index.search(query.words[None], k, allowed=allowed)
        keys, distances = found.keys[0], found.distances[0]
        inside = keys >= 0 if radius_bits is None else (keys >= 0) & (distances <= radius_bits)
        keys, distances = keys[inside], distances[inside]
        left_out: dict[int, int] = {}
        if len(keys) == k and found.ties_at_cut[0]:
            keys, distances, left_out = _whole_tie(side, query, keys, distances, allowed)
        order = side.order(keys, query.tie_key)
        ids = side.store.item_ids(keys)
        ranked = sorted(range(len(keys)), key=lambda p: (int(distances[p]), int(order[p]), ids[p]))[:k]
        names = [ids[p] for p in ranked]
        return Hits(
            ids=tuple(names),
            distances=tuple(int(distances[p]) for p in ranked),
            silos=(self.name,) * len(ranked),
            payloads=tuple(self._released(side, query, keys[ranked], names)),
            left_out=left_out,
            limited_silos=self._limits(query, len(ranked)),
            model_digests=frozenset({side.store.manifest.model_digest}),
        )

    def _released(self, side: _Side, query: Query, keys: Keys, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return what the policy releases of each hit. Previews are read if the query requests them."""
        payloads = side.store.payloads(keys)
        if query.previews and "preview" in self.policy.fields:
            previews = self._previews(ids)
            for name, payload in zip(ids, payloads, strict=True):
                if name in previews:
                    payload["preview"] = preview_url(previews[name])
        return [self.policy.released(payload) for payload in payloads]

    def _previews(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the previews of items, which are stored once, beside the first modality that the silo holds."""
        first = next(modality for modality in MODALITIES if modality in self._sides)
        return self._sides[first].store.previews(ids)

    def _limits(self, query: Query, released: int) -> dict[str, str]:
        """Return the reason for releasing fewer items than requested, if it is the policy."""
        if released == self.policy.max_results < query.reach:
            return {self.name: f"It limits results to {released:,} per query."}
        limit = self.policy.max_distance_bits
        if limit is not None and released < query.reach and (query.radius_bits is None or limit < query.radius_bits):
            return {self.name: f"It limits results to a distance of {limit} bits."}
        return {}


def _whole_tie(
    side: _Side, query: Query, keys: Keys, distances: Distances, allowed: Keys | None
) -> tuple[Keys, Distances, dict[int, int]]:
    """Return the nearest items with the tie at the cut resolved by the keyed order, and how many of the tie are left out."""
    cut = int(distances[-1])
    near = distances < cut
    [within] = side.index.search_radius(query.words[None], cut, allowed=allowed)
    tied = within.keys[0][within.distances[0] == cut]
    wanted = len(keys) - int(near.sum())
    order = side.order(tied, query.tie_key)
    chosen = tied[np.argsort(order, kind="stable")[:wanted]]
    return (
        np.concatenate([keys[near], chosen]),
        np.concatenate([distances[near], np.full(len(chosen), cut, np.int32)]),
        {cut: len(tied) - len(chosen)},
    )
