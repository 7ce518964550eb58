"""The part of a search that runs at a silo: check the query, scan the silo's own index, release what its policy allows."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import numpy as np

from silohash.base.attempts import attempted
from silohash.base.errors import LimitReached, NotFound, NotPermitted, NotSearchable, UserError
from silohash.base.types import MODALITIES, Modality, modalities_of
from silohash.index.codes import word_count, word_type
from silohash.index.copies import Backend
from silohash.index.preview import preview_url
from silohash.index.store import Store
from silohash.search import browse, nearest
from silohash.search.composed import compared_text, parsed_text
from silohash.search.filters import Condition, Mask, columns_in, labeled
from silohash.search.hits import Hits, Query, changed, silent
from silohash.search.ledger import Ledger
from silohash.search.loaded_index import Indexes, LoadedIndex
from silohash.search.policy import (
    BROWSING_REFUSED,
    FILTERED_NEAREST,
    MEASURED,
    SIMILAR_REFUSED,
    Approvals,
    Policy,
    Quota,
)
from silohash.search.reasons import Reason
from silohash.search.requests import Browse, Code, Item, SiloStatus
from silohash.search.summary import summary_of

if TYPE_CHECKING:
    # Its module needs torch, without which a silo can search by codes.
    from silohash.run.model.matcher import Matcher

QUICK_ITEMS = 2_000_000
"""Number of codes that are scanned in well under a millisecond."""

ATTEMPTS = 3
"""Number of times a query is tried, if items are removed while it is answered."""


class SiloNode:
    """Answer queries for one silo.

    Attributes:
        name: Name of the silo.
        policy: The limits of what the silo releases.
        other_models: Digests of further models with which the silo can be searched, by other nodes.
        matcher: Scores the silo's items; None if its model does not score pairs, or a query only has a code.
    """

    other_models: tuple[str, ...] = ()
    matcher: Matcher | None = None

    def __init__(
        self,
        name: str,
        stores: Mapping[Modality, Store],
        policy: Policy | None = None,
        *,
        backend: Backend = "flat",
        unusable: Mapping[Modality, str] | None = None,
        prepared: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        """Load the indexes of the silo. An index that cannot be loaded is not an error until it is searched.

        Without a policy, the silo has the default one, and without a ledger that it needs, one in memory. ``unusable`` has
        the reason for each modality whose index exists or should exist but cannot be searched. If many queries follow
        (``prepared``), call `prepare` before the first.
        """
        self.name = name
        self.policy = policy or Policy()
        self._quota = Quota(self.policy.max_queries_per_minute, self.policy.max_queries_per_day)
        self._ledger = ledger or (Ledger() if self.policy.needs_ledger else None)
        self._released, self._limited = frozenset(self.policy.fields), self.policy.limits_codes
        self._outputs = bool(self.policy.similar) and not self._limited  # they tell more of codes than distances do
        self._alterations, self._refused_sources = self.policy.alterations, self.policy.refused_sources
        self._approvals = None if self.policy.approve is None else Approvals(self.policy.approve)
        self._backend, self._prepared = backend, prepared
        self._reloading = threading.Lock()
        self._secret = token_hex(16)
        self._stores = tuple(stores.values())
        self._loaded: dict[Modality, LoadedIndex] = {}
        self._counted: tuple[tuple[object, ...], dict[str, dict[str, int]]] | None = None
        self._unusable = dict(unusable or {})
        for modality, store in stores.items():
            try:
                if self._ledger is not None:
                    store.noise = self._ledger.noise(store.manifest.bits, self.policy, in_memory=self._in_memory)
                self._loaded[modality] = self._index_of(store)
            except UserError as error:
                self._unusable[modality] = str(error)

    @property
    def _in_memory(self) -> bool:
        return isinstance(self._backend, str) or self._backend.in_memory

    def _index_of(self, store: Store, former: LoadedIndex | None = None) -> LoadedIndex:
        """Load the index of a store. The exceptions are those of `LoadedIndex`."""
        return LoadedIndex(
            self.name, store, self._backend, prepared=self._prepared, outputs=self._outputs, former=former
        )

    def warm_up(self) -> bool:
        """Run the loops of an index once, and return whether there was an index with items.

        Compiling the loops takes seconds if this machine has not searched before. Done during a search, it could outlast
        the search's deadline.
        """
        for loaded in self._loaded.values():
            if len(loaded.index):
                nothing = np.zeros((1, word_count(loaded.index.bits)), word_type(loaded.index.bits))
                loaded.index.search_with_ties(nothing, 1)
                return True
        return False

    def prepare(self) -> None:
        """Load all that a query needs, so that the first is answered as fast as the next.

        These are the loops of the scan, also for searches by label, and the labels of the summary.
        An index that cannot be read is not an error until it is searched.
        """
        for modality, loaded in self._loaded.items():
            nothing = np.zeros(word_count(loaded.index.bits), word_type(loaded.index.bits))
            with suppress(UserError):
                loaded.index.search_with_ties(nothing[None], 1, allowed=np.ones(len(loaded.index), bool))
            manifest = loaded.store.manifest
            query = Query(words=nothing, bits=manifest.bits, model_digest=manifest.model_digest, target=modality, k=1)
            with suppress(UserError):
                self._search({modality: loaded}, query, ())
        first = next(iter(self._loaded.values()), None)
        if first is not None and "labels" in self.policy.fields:
            with suppress(UserError):
                first.labels(self.approved_ids())  # for the summary, during which no query is answered

    def share_limits(self, other: SiloNode) -> None:
        """Count the queries of each asker together with another node of the same silo."""
        self._quota = other._quota

    @property
    def quick(self) -> bool:
        """Whether a query takes about a millisecond or less, so that it does not need a thread of its own (see `gather`)."""
        return self._in_memory and self.codes <= QUICK_ITEMS and self.policy.max_near_queries is None

    @property
    def codes(self) -> int:
        """Number of codes of all modalities."""
        return sum(len(loaded.index) for loaded in self._loaded.values())

    @property
    def model_digest(self) -> str:
        """Digest of the model that computed the silo's codes.

        Raises:
            UserError: If no index of the silo can be searched.
        """
        for loaded in self._loaded.values():
            return loaded.store.manifest.model_digest
        raise NotSearchable(next(iter(self._unusable.values()), "It does not have an index."))

    def captions(self, most: int) -> list[str]:
        """Return captions of the silo's items, in the order in which they were indexed, if its policy releases them."""
        if "caption" not in self.policy.fields or self._approvals is not None:
            return []
        first = [loaded.store for loaded in self._loaded.values()][:1]
        # Captions are only offered as examples; a search answers with the reason of an error.
        payloads = attempted(
            lambda: [p for store in first for p in store.first_payloads(most)], UserError, otherwise=[]
        )
        return [str(payload["caption"]) for payload in payloads if payload.get("caption")]

    def loaded(self, modality: Modality, query: Query | None = None) -> LoadedIndex:
        """Return the index of a modality as it is now, after checking that it can compare the code of a given query.

        Raises:
            UserError: If the policy does not allow searching for the modality, or its index cannot be used.
        """
        if modality not in self.policy.modalities:
            raise NotPermitted(f"Its policy does not allow searching for {modality}s.")
        if modality not in self._loaded:
            raise NotSearchable(self._unusable.get(modality, f"It does not have {modality}s to search."))
        if query is not None:
            self._loaded[modality].store.manifest.check(query.model_digest, query.bits)
        if self._loaded[modality].outdated():
            # Of several queries at the same time, one loads the index, and the others find it loaded.
            with self._reloading:
                former = self._loaded[modality]
                if former.outdated():
                    self._loaded[modality] = self._index_of(former.store, former)
        return self._loaded[modality]

    def indexes(
        self, modalities: Iterable[Modality] = MODALITIES, query: Query | None = None
    ) -> tuple[dict[Modality, LoadedIndex], dict[Modality, str]]:
        """Return the indexes of modalities as they are now, and the reasons why others cannot be used, see `loaded`."""
        indexes: dict[Modality, LoadedIndex] = {}
        reasons: dict[Modality, str] = {}
        for modality in modalities:
            try:
                indexes[modality] = self.loaded(modality, query)
            except UserError as error:
                reasons[modality] = str(error)
        return indexes, reasons

    def has(self, modality: Modality) -> bool:
        """Return whether the silo has an index of a modality, or should have one."""
        return modality in self._loaded or modality in self._unusable

    def admit(self, asker: str) -> None:
        """Count a request of an asker.

        Raises:
            UserError: If the asker has reached a limit of the policy.
        """
        self._quota.admit(asker)

    def approves(self, name: str) -> bool:
        """Return whether the policy allows releasing the item with an id.

        Raises:
            UserError: If the list of approved items cannot be read.
        """
        approved = self.approved_ids()
        return approved is None or name in approved

    def approved_ids(self) -> frozenset[str] | None:
        """Return the ids of the items that may be released; None for all. The exceptions are those of `approves`."""
        return None if self._approvals is None else self._approvals.ids()

    def close(self) -> None:
        """Close the silo's index files, and release its codes."""
        for store in self._stores:
            store.close()
        self._loaded.clear()
        if self._ledger is not None:
            self._ledger.close()

    def answer(self, query: Query | Browse) -> Hits:
        """Return the silo's nearest ``query.reach`` items, or as many of them as its policy releases.

        Items are ordered by (distance, `order.tie_order`), which also resolves a tie at the cut (see `nearest`), so that the
        silo keeps exactly those that the merge would keep. Items that were added or removed since the last query are taken
        into account.

        Returns:
            The hits, or a silent result with the reason if the silo refuses the query. If items are searched and only one
            of their modalities can be used, ``limited_silos`` has the reason.
        """
        try:
            self.admit(query.asker)
        except UserError as error:
            return silent(self.name, Reason(str(error), "limited"))
        reason = ""
        # An item can be removed between the scan and the reading of its row; the next attempt does not find it.
        for _ in range(ATTEMPTS):
            try:
                indexes, reasons = self._indexes_for(query)
                if isinstance(query, Browse):
                    return self._newest(indexes, query, reasons)
                if self._ledger is not None:
                    self._ledger.admit(query, self.policy)
                return self._released_hits(indexes, query, reasons)
            except LimitReached as error:
                return silent(self.name, Reason(str(error), "limited"))
            except UserError as error:
                reason = str(error)
                if not self._changed():
                    break
        return silent(self.name, reason)

    def item(self, name: str) -> Item:
        """Return what the silo releases of an item, with its preview.

        Raises:
            NotFound: If the silo does not have the item, or does not allow searching for it.
            UserError: If the silo's index cannot be used.
        """
        usable, _ = self._usable(MODALITIES)
        indexes = {held: loaded for held, loaded in usable.items() if self.approves(name) and loaded.store.has(name)}
        if not indexes:
            raise NotFound(f'The silo {self.name} does not have an item "{name}". Check its id.')
        first = next(iter(indexes.values()))
        payload = first.store.payloads(first.store.keys_of([name]))[0]
        self._add_previews([name], [payload])
        return Item(id=name, silo=self.name, modalities=tuple(indexes), payload=self.policy.released(payload))

    def code(self, name: str, modality: Modality | None = None) -> Code:
        """Return the code of an item in a modality; by default that of its picture if there is one, otherwise of its text.

        Raises:
            NotFound: If the silo does not have the code.
            UserError: If the policy does not allow it, or the silo's index cannot be used.
        """
        if not self.policy.similar:
            raise NotPermitted(SIMILAR_REFUSED)
        indexes = self._usable(MODALITIES)[0] if self.approves(name) else {}
        for held, loaded in indexes.items():
            if modality in (None, held) and loaded.store.has(name):
                manifest = loaded.store.manifest
                return Code(
                    words=loaded.words(name), bits=manifest.bits, model_digest=manifest.model_digest, modality=held
                )
        what = "a code" if modality is None else f"the code of {'a picture' if modality == 'image' else 'a text'}"
        raise NotFound(f'The silo {self.name} does not have {what} for the item "{name}". Check its id.')

    def status(self) -> SiloStatus:
        """Return the summary of the silo. If it cannot be searched, the summary has the reason instead of an error."""
        return summary_of(self)

    def _usable(
        self, modalities: Iterable[Modality], query: Query | None = None
    ) -> tuple[dict[Modality, LoadedIndex], dict[Modality, str]]:
        """Return what `indexes` does, after checking that at least one index can be used."""
        indexes, reasons = self.indexes(modalities, query)
        if not indexes:
            raise NotSearchable(" ".join(dict.fromkeys(reasons.values())))
        return indexes, reasons

    def _indexes_for(self, query: Query | Browse) -> tuple[dict[Modality, LoadedIndex], list[str]]:
        """Return the indexes to search, and the reasons why others that the silo has cannot be searched."""
        used = columns_in((*query.where, *labeled(query.label)), query.newest_by)
        hides = isinstance(query, Browse) and self.policy.max_distance_bits is not None
        if refusal := BROWSING_REFUSED if hides else used and self.policy.refusal_to_use(used):
            raise NotPermitted(refusal)
        if query.radius_bits is not None and self.policy.rank_only:
            raise NotPermitted("Its policy does not release distances, so a search cannot limit them.")
        if isinstance(query, Query) and query.source in self._refused_sources:
            raise NotPermitted(self._refused_sources[query.source])
        indexes, reasons = self._usable(modalities_of(query.target), query if isinstance(query, Query) else None)
        browse.check_columns(indexes, used)
        searched = " and ".join(f"{modality}s" for modality in indexes)
        return indexes, [
            f"It searched its {searched} only. {reason}" for modality, reason in reasons.items() if self.has(modality)
        ]

    def _changed(self) -> bool:
        """Return whether items changed since they were loaded, as when one is removed between the scan and the reading."""
        loaded = self._loaded.values()
        return attempted(lambda: any(each.outdated() for each in loaded), UserError, otherwise=False)

    def _released_hits(self, indexes: Indexes, query: Query, reasons: Sequence[str]) -> Hits:
        """Search, and leave out what the policy hides if it releases ranks only."""
        if not self.policy.rank_only or self._ledger is None:
            return self._search(indexes, query, reasons)
        hits = self._search(indexes, changed(query, tie_key=self._ledger.key_of(query)), reasons)
        return replace(hits, distances=(None,) * len(hits), found_by=(), left_out={})

    def _search(self, indexes: Indexes, query: Query, reasons: Sequence[str]) -> Hits:
        query = self._without_ignored(query)
        k, most = min(query.reach, self.policy.max_results), self.policy.max_results
        text = compared_text(query.own_text, query.text, accepted=self.policy.accept_query_words) or ""
        passing = self._passing(indexes, query.conditions, text) if query.conditions or parsed_text(text)[1] else None
        # A limited answer is filtered when it is found, because filters would bring other items within reach.
        before, after = (None, passing) if self._limited else (passing, None)
        asks_for_scores = len(indexes) == 1 and after is None and query.asks_for_scores
        items, scores, refusal = self._scored(indexes, query, k, passing) if asks_for_scores else (None, None, [])
        left_out: Mapping[int, int] = {}
        if items is None:
            radius_bits, count = self.policy.radius_bits(query.radius_bits), k if after is None else most
            items, left_out = nearest.items_to_merge(
                indexes, query, count, self.policy, radius_bits, self._released, self.approved_ids, before
            )
        reasons = [*reasons, *refusal]
        if after is not None:
            items, left_out = items.taken(browse.passing_places(indexes, items, after)[:k]), {}
            reasons.append(FILTERED_NEAREST.format(most))
        if len(items) < k or k == most:
            reasons += self.policy.reached(query.reach, query.radius_bits, len(items))
        return self._hits(indexes, items, query, reasons, k, passing=passing, scores=scores, left_out=left_out)

    def _newest(self, indexes: Indexes, request: Browse, reasons: Sequence[str]) -> Hits:
        """Return the items that pass the filters, newest first."""
        k, passing = min(request.reach, self.policy.max_results), self._passing(indexes, request.conditions)
        items = browse.newest_items(indexes, passing, request, k)
        reasons = [*reasons, *self.policy.reached(request.reach, None, len(items))]
        return self._hits(indexes, items, request, reasons, k, passing=passing if request.conditions else None)

    def _passing(self, indexes: Indexes, conditions: Sequence[Condition] = (), text: str = "") -> dict[Modality, Mask]:
        """Return which items pass the filters and the excluded words of a text. Those that are not approved do not."""
        ids, excluded = self.approved_ids(), partial(nearest.rows_excluded, text=text, fields=self._released)
        return {name: loaded.passing(conditions, ids, excluded(loaded)) for name, loaded in indexes.items()}

    def _hits(
        self,
        indexes: Indexes,
        items: nearest.NearItems,
        query: Query | Browse,
        reasons: list[str],
        k: int,
        *,
        passing: nearest.PassingIn,
        scores: tuple[float, ...] | None = None,
        left_out: Mapping[int, int] | None = None,
    ) -> Hits:
        """Return what the policy releases of items, of which the first k may be on a page, with the counts of values."""
        ids, payloads = nearest.stored_rows(indexes, items)
        kept = self._approved(ids)
        if len(kept) < len(ids):
            reasons.append(f"It withheld {len(ids) - len(kept):,} of the nearest items, which are not approved.")
            items, ids, payloads = items.taken(kept), nearest.taken(ids, kept), nearest.taken(payloads, kept)
            scores = None if scores is None else nearest.taken(scores, kept)
        facets = None
        if query.facets:
            counted, refusals = self.policy.countable(query.facets)
            reasons += refusals
            facets = self._counts(indexes, passing, tuple(counted))
        shown = items.shown(k)
        if query.previews:
            self._add_previews(nearest.taken(ids, shown), nearest.taken(payloads, shown))
        return Hits(
            ids=tuple(ids), distances=tuple(items.distances_bits), silos=(self.name,) * len(items),
            payloads=self._released_parts(payloads, shown), found_by=items.found_by, order_values=items.order_values,
            cosines=items.cosines, left_out=left_out or {},
            limited_silos={self.name: " ".join(reasons)} if reasons else {},
            model_digests=frozenset({loaded.store.manifest.model_digest for loaded in indexes.values()}),
            scores=scores, step_bits=self.policy.distance_step_bits,
            searched=nearest.searched_items(indexes, None if self._limited else passing),
            edition=self._edition(indexes), alterations=self._alterations, tiers=items.tiers, matched=items.matched,
            facets=facets, applied=len(query.where),
        )  # fmt: skip

    def _counts(
        self, indexes: Indexes, passing: nearest.PassingIn, columns: tuple[str, ...]
    ) -> dict[str, dict[str, int]]:
        """Return how many items that pass have each value. Those of all items are counted once, until items change."""
        if passing is not None:
            return browse.counts_in(indexes, passing, columns, self.name)
        which, known = (*indexes.values(), self.approved_ids(), columns), self._counted
        if known is None or known[0] != which:
            known = self._counted = which, browse.counts_in(indexes, self._passing(indexes), columns, self.name)
        return known[1]

    def _without_ignored(self, query: Query) -> Query:
        """Return a query without magnitudes that must not order items."""
        ignored = query.magnitudes is not None and not (self._outputs and query.source in MEASURED)
        return changed(query, magnitudes=None) if ignored else query

    def _edition(self, indexes: Indexes) -> str:
        """Return a value that tells whether codes were replaced or removed, but not how many."""
        content = [self._secret, *(loaded.edition for loaded in indexes.values())]
        return blake2b("-".join(content).encode(), digest_size=8).hexdigest()

    def _scored(
        self, indexes: Indexes, query: Query, k: int, passing: nearest.PassingIn
    ) -> tuple[nearest.NearItems | None, tuple[float, ...] | None, list[str]]:
        """Return the k items with the highest scores among the candidates, and their scores."""
        refusal = self.policy.refusal_to_score(sent=query.content is not None, scores=self.matcher is not None)
        if refusal or self.matcher is None:
            return None, None, refusal
        [modality] = indexes
        if query.nodes is None and query.content is not None:
            query = replace(query, nodes=self.matcher.nodes(query.content, modality))
        try:
            reach = nearest.candidates(self.matcher, query, modality, k)
            radius_bits = self.policy.radius_bits(query.radius_bits)
            matches = nearest.matches_in(indexes, query, self.policy, self._released, self.approved_ids)
            items, _ = nearest.nearest_items(indexes, query, reach, radius_bits, matches=matches, passing=passing)
            return *nearest.best_items(self.matcher, query, modality, items, k), []
        except UserError as error:
            if self._changed():
                raise
            return None, None, [f"It compared codes only. {error}"]

    def _approved(self, ids: Sequence[str]) -> Sequence[int]:
        """Return the places of the ids whose items the policy allows releasing, in order. The exceptions are `approves`'."""
        approved = self.approved_ids() if ids else None
        if approved is None:
            return range(len(ids))
        return [place for place, name in enumerate(ids) if name in approved]

    def _released_parts(self, payloads: Sequence[dict[str, Any]], shown: Sequence[int]) -> tuple[dict[str, Any], ...]:
        """Return the part of each payload that may be released, which usually is all of it, and none of those not shown."""
        released, parts = self._released, [dict[str, Any]()] * len(payloads)
        for place in shown:
            payload = payloads[place]
            parts[place] = payload if payload.keys() <= released else self.policy.released(payload)
        return tuple(parts)

    def _add_previews(self, ids: Sequence[str], payloads: Sequence[dict[str, Any]]) -> None:
        """Add the previews to the payloads of items, if the policy releases them."""
        if "preview" not in self.policy.fields:
            return
        # They are stored once, beside the first modality that the silo holds.
        previews = next(self._loaded[each] for each in MODALITIES if each in self._loaded).store.previews(ids)
        for name, payload in zip(ids, payloads, strict=True):
            if name in previews:
                payload["preview"] = preview_url(previews[name])
