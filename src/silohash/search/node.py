"""One silo's side of a search: it checks the question, scans its own index, and shows what its policy allows."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from silohash.index.base import Index
from silohash.index.store import Engine, Store
from silohash.search.hits import Hits, Query, silent
from silohash.search.order import Digests, item_digests, keyed_order
from silohash.search.policy import Policy
from silohash.types import Modality, UserError

Keys = npt.NDArray[np.int64]


class _Side:
    """One modality of a silo: its store, the index over it, and the items' digests as far as ties have needed them."""

    def __init__(self, silo: str, store: Store, engine: Engine) -> None:
        self.store = store
        self.index: Index = store.load(engine)
        self._silo = silo
        self._digests: Digests = np.zeros(0, np.uint64)
        self._known = np.zeros(0, bool)
        self._lock = threading.Lock()

    def order(self, keys: Keys, tie_key: bytes) -> Digests:
        """Returns the place values of items among equals, ``(n,)``; an item's id is read and hashed once."""
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


class SiloNode:
    """A silo that answers questions.

    Attributes:
        name: the silo's name.
        policy: what it shows.
    """

    def __init__(
        self,
        name: str,
        stores: Mapping[Modality, Store],
        policy: Policy | None = None,
        *,
        engine: Engine = "flat",
    ) -> None:
        """Loads the silo's indexes.

        Args:
            name: the silo's name.
            stores: the store of each side that the silo holds.
            policy: what it shows; the default policy if None.
            engine: the index engine, as in `Store.load`.
        """
        self.name = name
        self.policy = policy or Policy()
        self._engine = engine
        self._sides = {modality: _Side(name, store, engine) for modality, store in stores.items()}

    @property
    def model_digest(self) -> str:
        """The model that made the silo's codes."""
        return next(iter(self._sides.values())).store.manifest.model_digest

    def refresh(self) -> None:
        """Loads the indexes again, after items were added to a store or removed from it."""
        self._sides = {modality: _Side(self.name, side.store, self._engine) for modality, side in self._sides.items()}

    def answer(self, query: Query) -> Hits:
        """Returns the silo's nearest ``query.reach`` items, or as many of them as its policy shows.

        Items are in the order of (distance, `order.tie_order`). A tie at the cut is broken by that order too: the whole
        tie is fetched by a search in the radius of the cut, so that what one silo leaves out is no worse than what the
        merge would have left out.

        Returns:
            The hits; or a silent answer with the reason, if the silo refuses.
        """
        try:
            side = self._side(query)
            return self._search(side, query)
        except UserError as error:
            return silent(self.name, str(error))

    def _side(self, query: Query) -> _Side:
        """Returns the side that is asked, after checking that it may be and that the codes are of one model."""
        if query.modality not in self._sides:
            raise UserError(f"It holds no {query.modality} index.")
        if query.modality not in self.policy.modalities:
            raise UserError(f"Its policy does not let {query.modality}s be searched.")
        side = self._sides[query.modality]
        side.store.manifest.check(query.model_digest, query.bits)
        return side

    def _search(self, side: _Side, query: Query) -> Hits:
        k = min(query.reach, self.policy.max_results)
        radius_bits = self.policy.radius_bits(query.radius_bits)
        found = side.index.search(query.words[None], k)
        keys, distances = found.keys[0], found.distances[0]
        inside = keys >= 0 if radius_bits is None else (keys >= 0) & (distances <= radius_bits)
        keys, distances = keys[inside], distances[inside]
        left_out: dict[int, int] = {}
        if len(keys) == k and found.ties_at_cut[0]:
            keys, distances, left_out = _whole_tie(side, query, keys, distances)
        order = side.order(keys, query.tie_key)
        ids = side.store.item_ids(keys)
        ranked = sorted(range(len(keys)), key=lambda p: (int(distances[p]), int(order[p]), ids[p]))[:k]
        keys = keys[ranked]
        return Hits(
            ids=tuple(str(ids[p]) for p in ranked),
            distances=tuple(int(distances[p]) for p in ranked),
            silos=(self.name,) * len(ranked),
            payloads=tuple(self.policy.released(payload) for payload in side.store.payloads(keys)),
            left_out=left_out,
            limited_silos=self._limits(query, len(ranked)),
            model_digests=frozenset({side.store.manifest.model_digest}),
        )

    def _limits(self, query: Query, shown: int) -> dict[str, str]:
        """Returns why fewer items were shown than asked for, if the policy is why."""
        if shown == self.policy.max_results < query.reach:
            return {self.name: f"It shows at most {shown:,} items for one question."}
        limit = self.policy.max_distance_bits
        if limit is not None and shown < query.reach and (query.radius_bits is None or limit < query.radius_bits):
            return {self.name: f"It shows no item farther than {limit} bits."}
        return {}


def _whole_tie(
    side: _Side, query: Query, keys: Keys, distances: npt.NDArray[np.int32]
) -> tuple[Keys, npt.NDArray[np.int32], dict[int, int]]:
    """Returns the nearest items with the tie at the cut chosen by the keyed order, and how many of the tie stay out."""
    cut = int(distances[-1])
    near = distances < cut
    [within] = side.index.search_radius(query.words[None], cut)
    tied = within.keys[0][within.distances[0] == cut]
    wanted = len(keys) - int(near.sum())
    order = side.order(tied, query.tie_key)
    chosen = tied[np.argsort(order, kind="stable")[:wanted]]
    return (
        np.concatenate([keys[near], chosen]),
        np.concatenate([distances[near], np.full(len(chosen), cut, np.int32)]),
        {cut: len(tied) - len(chosen)},
    )
