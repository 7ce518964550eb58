"""What the API and the page search: the silos of a finished run in this process, or those of a federation behind a bus.

Searching in this process and encoding a query do not hold up the event loop. If the model scores pairs, silos whose
policies accept the words and regions of queries are sent them, and score their items. The others are sent the code alone.
Words and regions leave the hub only for a silo that has stated within the last `KNOWN_SECONDS` that its policy accepts them
and that it has the model of the query (`Acceptance`).

A hub changes to the model of a new run as soon as the silos have it. Each query is answered by one backend, and so with the
model of one run. The change is recorded in the folder of the new run, so that it outlives the process.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from logging import WARNING
from pathlib import Path
from typing import Protocol, Self

from typing_extensions import override

from silohash.base.errors import NotSupported, UserError
from silohash.base.files import write_json
from silohash.base.types import Modality
from silohash.features.base import Value
from silohash.features.text import BagOfWords
from silohash.run.folder import Run
from silohash.search.bus import Bus, now
from silohash.search.federation import Encode, Encoded, Federation
from silohash.search.hits import Hits, SearchOptions
from silohash.search.policy import CONTENT_REFUSED
from silohash.search.reasons import kind_of
from silohash.search.requests import FederationStatus, Item, SearchRequest, SiloStatus
from silohash.search.silos import RunSearch, open_nodes
from silohash.service.config import HubConfig
from silohash.service.logs import log_event, logged_errors, request_id

KNOWN_SECONDS = 30.0
"""Time for which a statement of a silo is relied on."""

ACCEPTANCE_UNKNOWN = (
    "It compared codes only, because the hub does not know whether its policy accepts the words and regions of queries."
)

ADOPTED = "adopted.json"
"""Name of the file in the folder of a new run which states that the hub uses it."""

LOOK_SECONDS = 5.0
"""Pause between two looks whether the silos have the new model."""


class Backend(Protocol):
    """A federation that can be searched, see `silohash.search.federation.Federation`. Its methods can run concurrently."""

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos."""
        ...

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item itself."""
        ...

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item."""
        ...

    async def status(self) -> FederationStatus:
        """Return the state of the federation. A silo that does not answer is listed with the reason."""
        ...


class LocalBackend(RunSearch):
    """Search the silos of a finished run in threads of this process."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the indexes of a run, which must have been indexed."""
        run = Run.open(folder)
        backend = cls(run, open_nodes(run.index_folder, prepared=True))
        backend.warm_up()
        return backend

    def warm_up(self) -> None:
        """Search once with a text and once with a picture, so that the models are loaded before the first request."""
        from PIL import Image

        captions = (caption for node in self.nodes.values() for caption in node.captions(1))
        options = SearchOptions(k=1, previews=False)
        # A model may encode only texts or only pictures; a search then says so.
        with suppress(UserError):
            now(super().search(SearchRequest.of(options, Image.new("L", (32, 32), "white"))))
        with suppress(UserError):
            now(super().search(SearchRequest.of(options, next(captions, "a"))))

    def close(self) -> None:
        """Close the indexes."""
        for node in self.nodes.values():
            node.close()

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos. See `Federation.search`."""
        return await asyncio.to_thread(now, super().search(request))

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item. See `Federation.similar`."""
        return await asyncio.to_thread(now, super().similar(silo, name, options, by))

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item. See `Federation.item`."""
        return await asyncio.to_thread(now, super().item(silo, name, asker=asker))

    async def status(self) -> FederationStatus:
        """Return the state of the federation. See `Federation.status`."""
        return await asyncio.to_thread(now, super().status())


class HubBackend(Federation):
    """Search the silos of a federation over a bus."""

    def __init__(
        self, run: Run, silos: Iterable[str], bus: Bus, *, deadline_seconds: float, share_words: bool = False
    ) -> None:
        """Search with the model of a run. The other arguments are those of `Federation`.

        With ``share_words``, the text of a query is sent to silos that accept it, if the one who asks allows it.
        """
        self._share_words = share_words
        super().__init__(run, silos, bus, deadline_seconds=deadline_seconds)
        self._encoding = ThreadPoolExecutor(1, "encode")
        self._status: dict[str, SiloStatus] = {}
        self._acceptance = Acceptance()

    def warm_up(self) -> None:
        """Load the models of the silos and run each once, so that the first query is as fast as the following ones.

        A silo whose model cannot be run is logged. The queries that need it then get the reason.
        """
        for modality in self.run.model.featurizers:
            self.run.model.featurizers[modality]
        for silo in self.silos:
            try:
                encoder = self._encoder(self._model_of(silo))
                for modality in encoder.featurizers:
                    encoder.warm_up(modality)
            except UserError as error:
                log_event("the model was not warmed up", level=WARNING, silo=silo, reason=str(error))

    def close(self) -> None:
        """Stop the thread that encodes queries."""
        self._encoding.shutdown(wait=False, cancel_futures=True)

    def keep_silos(self, silos: Collection[str]) -> None:
        """Search only those of its silos that are among some names from now on, and forget what the others stated."""
        self.silos = tuple(name for name in self.silos if name in silos)
        self._status = {name: status for name, status in self._status.items() if name in self.silos}

    async def silos_with_model(self) -> dict[str, bool]:
        """Return for each silo whether it can be searched with a model of the run, as the silo itself states it."""
        known = {self.run.model.digest(name) for name in self.run.model.names}
        return {
            silo.name: not known.isdisjoint({silo.model_digest, *silo.models})
            for silo in await self._summaries(self.silos, self._deadline_seconds)
            if kind_of(silo.reason) != "excluded"
        }

    @override
    async def status(self) -> FederationStatus:
        """Return the state of the federation. The records of the rounds are read beside the event loop."""
        return await asyncio.to_thread(self._described, await self._summaries(self.silos, self._deadline_seconds))

    @override
    async def _summaries(self, silos: Sequence[str], deadline: float) -> tuple[SiloStatus, ...]:
        found = await super()._summaries(silos, deadline)
        for status in found:
            self._acceptance.note(status)
        self._status |= {s.name: s for s in found if s.model_digest and s.name in self.silos}
        return found

    @override
    def _captions(self) -> list[str]:
        return [item.caption for status in self._status.values() for item in status.examples if item.caption]

    @override
    def _digests(self, silo: str) -> Sequence[str]:
        status = self._status.get(silo)
        return () if status is None else (status.model_digest, *status.models)

    @override
    def _request_id(self) -> str:
        return request_id()

    @override
    def _with_scoring(self, encoded: Encoded, value: Value, modality: Modality) -> Encoded:
        return replace(encoded, content=self.run.model.featurizers[modality].encode_one(value))

    @override
    async def _run_encoding(self, encode: Encode, modality: Modality) -> Encoded:
        # Switching to another thread takes longer than encoding a bag of words.
        if isinstance(self.run.model.featurizers.get(modality), BagOfWords):
            return encode()
        return await asyncio.get_running_loop().run_in_executor(self._encoding, encode)

    @override
    async def _refusals(self, encoded: Encoded, deadline: float) -> dict[str, str]:
        if encoded.content is None:
            return {}
        if unknown := self._acceptance.unknown(list(encoded.codes)):
            await self._summaries(unknown, deadline)
        reasons = {silo: self._acceptance.refusal(silo, code.model_digest) for silo, code in encoded.codes.items()}
        return {silo: reason for silo, reason in reasons.items() if reason}

    @override
    async def _sent_words(self, encoded: Encoded, options: SearchOptions, deadline: float) -> frozenset[str]:
        if encoded.text is None or not (self._share_words and options.share_words):
            return frozenset()
        if unknown := self._acceptance.unknown(list(encoded.codes)):
            await self._summaries(unknown, deadline)
        return frozenset(silo for silo in encoded.codes if self._acceptance.accepts_words(silo))

    @override
    async def _found(self, encoded: Encoded, options: SearchOptions, deadline: float) -> Hits:
        hits = await super()._found(encoded, options, deadline)
        for silo in encoded.codes:
            # A text without a kind is that of a silo, which has answered, if only with a refusal.
            if kind_of(hits.missing_silos.get(silo, "")) == "refused":
                self._acceptance.answered(silo)
        return hits


class Acceptance:
    """Remember which silos accept texts, words and regions of queries, as they state in their summaries."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any statement. ``clock`` returns a time in seconds."""
        self._clock = clock
        self._stated: dict[str, tuple[float, SiloStatus]] = {}

    def note(self, status: SiloStatus) -> None:
        """Remember a silo's summary. A silo without one is asked again when it has answered a query, or after a while."""
        self._stated[status.name] = self._clock(), status

    def answered(self, silo: str) -> None:
        """Note that a silo answered a query, so that it is asked for a summary again if it did not give one before."""
        if silo in self._stated and not self._stated[silo][1].model_digest:
            del self._stated[silo]

    def unknown(self, silos: Sequence[str]) -> list[str]:
        """Return the silos whose summaries are missing or too old."""
        return [silo for silo in silos if self._statement(silo) is None]

    def refusal(self, silo: str, model_digest: str) -> str:
        """Return why a silo is not sent the words or regions of a query with a model; empty if it accepts them."""
        status = self._statement(silo)
        if status is None or not status.model_digest:
            return ACCEPTANCE_UNKNOWN
        accepts = status.accepts_content and model_digest in {status.model_digest, *status.models}
        return "" if accepts else CONTENT_REFUSED

    def accepts_words(self, silo: str) -> bool:
        """Return whether a silo accepts the text of a query, as far as is known."""
        status = self._statement(silo)
        return status is not None and status.accepts_words

    def _statement(self, silo: str) -> SiloStatus | None:
        """Return the summary of a silo, unless it is too old."""
        moment, status = self._stated.get(silo, (0.0, None))
        return status if self._clock() - moment <= KNOWN_SECONDS else None


class AdoptingBackend:
    """Search with the model of one run, and later with that of the next. See `Backend`."""

    def __init__(self, config: HubConfig, make: Callable[[Run], HubBackend]) -> None:
        """Open the run that a config names, or the next one if it was adopted before."""
        self._config, self._make = config, make
        self.following = _next_backend(config, make)
        adopted = config.next_run if self.following is None else None
        self.current = make(Run.open(adopted or config.run))

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos. See `Backend.search`."""
        return await self.current.search(request)

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item. See `Backend.similar`."""
        return await self.current.similar(silo, name, options, by)

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item. See `Backend.item`."""
        return await self.current.item(silo, name, asker=asker)

    async def status(self) -> FederationStatus:
        """Return the state of the federation. See `Backend.status`."""
        return await self.current.status()

    def warm_up(self) -> None:
        """Load the model, see `HubBackend.warm_up`."""
        self.current.warm_up()

    def close(self) -> None:
        """Close both backends."""
        self.current.close()
        if self.following is not None:
            self.following.close()

    async def adopt(self, now: datetime | None = None) -> bool:
        """Search with the next run if enough silos have its model or its time has come, and return whether it is now used.

        Raises:
            UserError: If its model cannot be read, or the change cannot be recorded.
        """
        following, config = self.following, self._config
        if following is None or config.next_run is None:
            return following is None
        having = await following.silos_with_model()
        lacking = sorted(silo for silo, has in having.items() if not has)
        due = config.next_at is not None and (now or datetime.now(UTC)) >= config.next_at
        if len(having) - len(lacking) < config.next_share * len(having) and not due:
            return False
        await asyncio.to_thread(following.warm_up)
        await following.status()
        await asyncio.to_thread(write_json, config.next_run / ADOPTED, {"time": datetime.now(UTC).isoformat()})
        former, self.current, self.following = self.current, following, None
        log_event("the new model is used", run=str(config.next_run), silos_without_it=lacking)
        await asyncio.sleep(config.deadline_seconds)  # the former backend may still encode queries
        former.close()
        return True

    async def keep_looking(self) -> None:
        """Look again and again, until the task is canceled."""
        while True:
            with logged_errors("the new model cannot be used", "looking for the new model failed"):
                await self.adopt()
            await asyncio.sleep(LOOK_SECONDS)  # the next look may succeed

    def reload(self, read: Callable[[], HubConfig]) -> None:
        """Read the file of the hub again: silos that have left, and the next run. Other changes need a restart."""
        try:
            config, awaited = read(), self._config.next_run
            if self.following is None:
                self.following = _next_backend(config, self._make)
            elif config.next_run != awaited:
                raise NotSupported(
                    f"next_run was changed while the hub waits for the model of {awaited}. Start the hub again to use "
                    "another run."
                )
            self._config = config
            for backend in filter(None, (self.current, self.following)):
                backend.keep_silos(config.silos)
            log_event("the config was read again", next_run=str(config.next_run or ""), silos=sorted(config.silos))
        except UserError as error:
            log_event("the config cannot be read again", level=WARNING, reason=str(error))


def _next_backend(config: HubConfig, make: Callable[[Run], HubBackend]) -> HubBackend | None:
    """Return the backend of the next run; None if there is none, or the hub has adopted it."""
    if config.next_run is None:
        return None
    run = Run.open(config.next_run)
    return None if (config.next_run / ADOPTED).exists() else make(run)
