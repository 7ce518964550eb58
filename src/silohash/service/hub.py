"""The backend over the bus: encode a query once, ask all silos, and merge the answers.

A silo that is absent, late, refuses, or sends something that cannot be used is listed in ``missing_silos`` with the reason.
The others are searched without it.

If the model scores pairs, silos whose policies accept the words and regions of queries are sent them, and score their items.
The others are sent the code alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from logging import WARNING
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from silohash.base.types import Modality, Target, UserError
from silohash.features.text import BagOfWords
from silohash.features.truncation import Unread, unread_end
from silohash.search.answers import decode_code, decode_hits, decode_item, decode_status
from silohash.search.bus import Bus, Reader, Replies, ignore
from silohash.search.hits import Hits, Query, Reason, silent
from silohash.search.merge import merge
from silohash.search.order import question_key
from silohash.search.released import as_item
from silohash.search.wire import CodeRequest, ItemRequest, Request, StatusRequest, WireError, encode_request
from silohash.search.words import query_words
from silohash.service.backend import (
    Acceptance,
    Code,
    FederationStatus,
    Item,
    SearchOptions,
    SearchRequest,
    SiloStatus,
    Unavailable,
    check_silos,
    without_item,
)
from silohash.service.logs import log_event, request_id

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.run.folder import Run
    from silohash.run.model.encoder import Encoder


Observer: TypeAlias = Callable[[str, float], None]


@dataclass(frozen=True)
class _Encoded:
    """The codes of a query.

    Attributes:
        codes: Maps each silo to the code with which it is searched.
        missing: Maps each silo without a code to the reason.
        unknown_words: Words of the query that do not occur in any training text; None if they are not known.
        unread: The end of the query that the text model did not read; None if it read all of it.
        content: The words or regions of the query, ``(1, ...)``, with which silos score items; None to compare codes only.
        scored: Modality of the items that are scored, the other one than that of the query.
    """

    codes: Mapping[str, Code]
    missing: Mapping[str, str] = field(default_factory=dict)
    unknown_words: tuple[str, ...] | None = ()
    unread: Unread | None = None
    content: np.ndarray | None = None
    scored: Modality = "image"


class HubBackend:
    """Search the silos of a federation over a bus. See `silohash.service.backend.Backend`."""

    def __init__(
        self, run: Run, silos: Iterable[str], bus: Bus, *, deadline_seconds: float, observe: Observer | None = None
    ) -> None:
        """Search with the model of a run.

        Args:
            run: The run. Its indexes are not needed.
            silos: Names of the silos of the federation.
            bus: The bus to the silos.
            deadline_seconds: Time limit for the answers of the silos to one request.
            observe: Called with the name of a silo and the seconds until its answer arrived, for each answer to a query.
        """
        self._run, self._bus, self._deadline_seconds = run, bus, deadline_seconds
        self._observe = observe
        self._silos = tuple(sorted(silos))
        self._encoding = ThreadPoolExecutor(1, "encode")
        self._encoders: dict[str, Encoder] = {}
        self._status: dict[str, SiloStatus] = {}
        self._acceptance = Acceptance()

    def warm_up(self) -> None:
        """Load the models of the silos and run each once, so that the first query is as fast as the following ones.

        A silo whose model cannot be run is logged. The queries that need it then get the reason.

        Raises:
            UserError: If the model of the run cannot be read.
        """
        for modality in self._run.model.featurizers:
            self._run.model.featurizers[modality]
        for silo in self._silos:
            try:
                encoder = self._encoder(self._model_of(silo))
                for modality in encoder.featurizers:
                    encoder.warm_up(modality)
            except UserError as error:
                log_event("the model was not warmed up", level=WARNING, silo=silo, reason=str(error))

    def close(self) -> None:
        """Stop the thread that encodes queries."""
        self._encoding.shutdown(wait=False, cancel_futures=True)

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos. See `Backend.search`."""
        silos = self._chosen(request.silos)
        if request.code is not None:
            return await self._ask_all(_Encoded(dict.fromkeys(silos, request.code)), request)
        assert request.uncoded is not None  # noqa: S101  the request checks it
        value, modality = request.uncoded
        encode = partial(self._encode, value, modality, silos, request.target)
        if self._encodes_at_once(modality):
            return await self._ask_all(encode(), request)
        return await self._ask_all(await asyncio.get_running_loop().run_in_executor(self._encoding, encode), request)

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item. See `Backend.similar`."""
        silos = self._chosen(options.silos)
        request = CodeRequest(name, by, options.asker, request_id(), self._digest_for(silo))
        content = await self._ask_one(silo, request)
        try:
            found = decode_code(content, request, silo)
        except WireError as error:
            raise _unavailable(silo, error) from error
        code = Code(words=found.words, bits=found.bits, model_digest=found.model_digest)
        wider = replace(options, offset=0, k=options.offset + options.k + 1)
        hits = await self._ask_all(_Encoded(dict.fromkeys(silos, code)), wider)
        return without_item(hits, silo, name, offset=options.offset, k=options.k)

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item. See `Backend.item`."""
        request = ItemRequest(name, asker, request_id())
        content = await self._ask_one(silo, request)
        try:
            found = decode_item(content, request, silo)
        except WireError as error:
            raise _unavailable(silo, error) from error
        return as_item(silo, name, found.modalities, found.payload)

    async def status(self) -> FederationStatus:
        """Return the state of the federation. See `Backend.status`."""
        return await asyncio.to_thread(self._federation, await self._summaries(self._silos))

    async def _summaries(self, silos: Sequence[str]) -> tuple[SiloStatus, ...]:
        """Ask silos for their summaries, return these in the same order, and remember them."""
        request = encode_request(StatusRequest(request_id()))
        replies = await self._bus.ask(dict.fromkeys(silos, request), self._deadline_seconds)
        found = [_status_of(silo, replies.answers.get(silo), replies.reasons.get(silo, "")) for silo in silos]
        for status in found:
            self._acceptance.note(status)
        self._status |= {status.name: status for status in found if status.model_digest}
        return tuple(found)

    def _federation(self, silos: tuple[SiloStatus, ...]) -> FederationStatus:
        record, model = self._run.model.record.config, self._run.model
        data = record["data"]
        return FederationStatus(
            name=self._run.name,
            silos=silos,
            bits=model.bits,
            inputs=model.modalities_of_queries(vectors=False),
            vectors=model.modalities_of_queries(vectors=True),
            archive=str(data.get("name") or data.get("path") or "").rpartition("/")[2],
            local_method=record["local"]["name"],
            federated_method=record["federated"]["name"],
            rounds=tuple(self._run.rounds()),
            chosen_round=model.round,
        )

    def _chosen(self, silos: Sequence[str] | None) -> tuple[str, ...]:
        check_silos(silos, self._silos)
        return tuple(silo for silo in self._silos if silos is None or silo in silos)

    def _encodes_at_once(self, modality: Modality) -> bool:
        """Return whether encoding is faster than switching to another thread, which is the case for a bag of words."""
        return isinstance(self._run.model.featurizers.get(modality), BagOfWords)

    def _encode(self, value: Value, modality: Modality, silos: Sequence[str], target: Target) -> _Encoded:
        """Return the codes of a query, its words that no training text held and, if silos score items, its content."""
        featurizer = self._run.model.featurizers.get(modality)
        unknown = query_words(featurizer, value, self._captions)
        codes = self._codes(value, modality, silos)
        encoded = replace(codes, unknown_words=unknown, unread=unread_end(featurizer, value))
        if not self._run.model.record.spec.scores_pairs or target == modality:
            return encoded
        assert featurizer is not None  # noqa: S101  it has encoded the query
        content = featurizer.encode_one(value)
        return replace(encoded, content=content, scored="image" if modality == "text" else "text")

    def _codes(self, value: Value, modality: Modality, silos: Sequence[str]) -> _Encoded:
        """Return the code of a query for each silo. The query is encoded once per model."""
        codes: dict[str, Code] = {}
        missing: dict[str, str] = {}
        by_model: dict[str, Code] = {}
        for silo in silos:
            try:
                name = self._model_of(silo)
            except UserError as error:
                missing[silo] = Reason(str(error), "no_code")
                continue
            if name not in by_model:
                found = self._encoder(name).encode(value, modality)
                by_model[name] = Code(words=found.words[0], bits=found.bits, model_digest=found.model_digest)
            codes[silo] = by_model[name]
        return _Encoded(codes, missing)

    def _encoder(self, name: str) -> Encoder:
        """Return the encoder of a model. It is loaded once, because loading takes longer than encoding."""
        if name not in self._encoders:
            self._encoders[name] = self._run.model.encoder(name)
        return self._encoders[name]

    def _model_of(self, silo: str) -> str:
        """Return the name of the model that searches a silo: its personal model, or the one that built its index."""
        model, status = self._run.model, self._status.get(silo)
        if not model.personalized or silo in model.names or status is None:
            return model.deployed_by(silo)
        known = {model.digest(name): name for name in model.names}
        found = next((known[digest] for digest in (status.model_digest, *status.models) if digest in known), None)
        return model.name_of(status.model_digest) if found is None else found

    def _digest_for(self, silo: str) -> str:
        """Return the digest of the model with which a silo is searched; empty if it is not known."""
        try:
            return self._run.model.digest(self._model_of(silo)) if silo in self._silos else ""
        except UserError:
            return ""

    async def silos_with_model(self) -> dict[str, bool]:
        """Return for each silo whether it can be searched with a model of the run, as the silo itself states it."""
        silos = (await self.status()).silos
        known = {self._run.model.digest(name) for name in self._run.model.names}
        return {silo.name: not known.isdisjoint({silo.model_digest, *silo.models}) for silo in silos}

    def _captions(self) -> list[str]:
        """Return the captions of the example items in the silos' last summaries."""
        return [item.caption for status in self._status.values() for item in status.examples if item.caption]

    async def _ask_one(self, silo: str, request: Request) -> bytes:
        """Return the answer of one silo.

        Raises:
            NotFound: If there is no such silo.
            Unavailable: If it does not answer.
        """
        check_silos((silo,), self._silos)
        replies = await self._query({silo: encode_request(request)})
        if silo in replies.reasons:
            raise Unavailable(f"The silo {silo} cannot be searched: {replies.reasons[silo]}")
        return replies.answers[silo]

    async def _ask_all(self, encoded: _Encoded, options: SearchOptions) -> Hits:
        """Send a query to all silos that have a code, and return the requested page of the merged answers."""
        refusals = await self._refusals(encoded)
        queries = _queries(encoded, options, refusals)
        answers = await self._answers(queries)
        by_rank = len({query.model_digest for query in queries.values()}) > 1
        keys = [query.tie_key for query in queries.values()] or [b""]
        merged = merge(answers, k=options.offset + options.k, key=keys[0], by_rank=by_rank)
        page = merged.page(options.offset) if options.offset else merged
        missing = dict(sorted({**page.missing_silos, **encoded.missing}.items()))
        limited = dict(sorted({**page.limited_silos, **_stated(refusals, page)}.items()))
        return replace(
            page,
            missing_silos=missing,
            limited_silos=limited,
            unknown_words=encoded.unknown_words,
            unread=encoded.unread,
        )

    async def _refusals(self, encoded: _Encoded) -> dict[str, str]:
        """Return the silos that are not sent the words or regions of a query, with the reasons."""
        if encoded.content is None:
            return {}
        unknown = self._acceptance.unknown(list(encoded.codes))
        if unknown:
            await self._summaries(unknown)
        reasons = {silo: self._acceptance.refusal(silo, code.model_digest) for silo, code in encoded.codes.items()}
        return {silo: reason for silo, reason in reasons.items() if reason}

    async def _answers(self, queries: Mapping[str, Query]) -> list[Hits]:
        """Return the checked answer of each silo, or the reason for its absence."""
        distinct = {id(query): query for query in queries.values()}
        contents = {key: encode_request(query) for key, query in distinct.items()}
        requests = {silo: contents[id(query)] for silo, query in queries.items()}
        answers: dict[str, Hits] = {}

        def read(silo: str, content: bytes) -> None:
            """Check an answer."""
            try:
                answers[silo] = decode_hits(content, queries[silo], silo)
                self._acceptance.answered(silo)
            except WireError as error:
                log_event("ignored an answer that cannot be used", level=WARNING, silo=silo, reason=str(error))
                answers[silo] = silent(silo, Reason(str(error), "invalid"))

        replies = await self._query(requests, read)
        answers |= {silo: silent(silo, reason) for silo, reason in replies.reasons.items()}
        return [answers[silo] for silo in queries]

    async def _query(self, requests: Mapping[str, bytes], read: Reader = ignore) -> Replies:
        """Send a query to silos, and report the time of each answer. The arguments are those of `Bus.ask`."""
        replies = await self._bus.ask(requests, self._deadline_seconds, read)
        if self._observe is not None:
            for silo, seconds in replies.seconds.items():
                self._observe(silo, seconds)
        return replies


def _stated(refusals: Mapping[str, str], hits: Hits) -> dict[str, str]:
    """Return why silos that answered compared codes only, with their other limits."""
    return {
        silo: " ".join(filter(None, (hits.limited_silos.get(silo), reason)))
        for silo, reason in refusals.items()
        if silo not in hits.missing_silos
    }


def _queries(encoded: _Encoded, options: SearchOptions, refusals: Collection[str]) -> dict[str, Query]:
    """Return the query of each silo, with the key of the order among equals that `silohash.search.merge.ask` would use.

    Silos with the same code share a query, unless only some of them are sent the words or regions of the query.

    Args:
        encoded: The codes of the query, and its words or regions.
        options: What to find. If any silo scores its items, all are asked for items of the modality that is scored.
        refusals: The silos that are not sent the words or regions.
    """
    codes = encoded.codes
    scoring = set() if encoded.content is None else set(codes) - set(refusals)
    distinct = list({id(code): code for _, code in sorted(codes.items())}.values())
    ordered = distinct if len(distinct) == 1 else [codes[silo] for silo in sorted(codes)]
    key = question_key(b"", [code.words for code in ordered])
    parameters: dict[str, Any] = {
        "target": encoded.scored if scoring else options.target,
        "k": options.k,
        "offset": options.offset,
        "radius_bits": options.radius_bits,
        "label": options.label,
        "previews": options.previews,
        "asker": options.asker,
        "request_id": request_id(),
        "tie_key": key,
    }
    by_code = {
        id(code): Query(words=code.words, bits=code.bits, model_digest=code.model_digest, **parameters)
        for code in distinct
    }
    with_content = {name: replace(query, content=encoded.content) for name, query in by_code.items() if scoring}
    return {silo: (with_content if silo in scoring else by_code)[id(code)] for silo, code in codes.items()}


def _status_of(silo: str, content: bytes | None, reason: str) -> SiloStatus:
    """Return the summary of a silo. If there is none, the summary holds the reason."""
    try:
        return decode_status(content, silo) if content is not None else _absent(silo, reason)
    except UserError as error:
        return _absent(silo, str(error))


def _absent(silo: str, reason: str) -> SiloStatus:
    return SiloStatus(name=silo, reason=reason, reachable=False)


def _unavailable(silo: str, error: WireError) -> Unavailable:
    log_event("ignored an answer that cannot be used", level=WARNING, silo=silo, reason=str(error))
    return Unavailable(f"The silo {silo} cannot be searched: {error}")
