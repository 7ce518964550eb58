"""The search of a hub: its silos are behind a bus, and encoding a query does not hold up the event loop.

If the model scores pairs, silos whose policies accept the words and regions of queries are sent them, and score their items.
The others are sent the code alone. Words and regions leave the hub only for a silo that has stated within the last
`KNOWN_SECONDS` that its policy accepts them and that it has the model of the query (`Acceptance`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from logging import WARNING
from typing import TYPE_CHECKING

from typing_extensions import override

from silohash.base.errors import UserError
from silohash.base.types import Modality
from silohash.features.text import BagOfWords
from silohash.search.bus import Bus
from silohash.search.federation import Encode, Encoded, Federation
from silohash.search.hits import Hits, SearchOptions, kind_of
from silohash.search.node import CONTENT_REFUSED
from silohash.search.released import SiloStatus
from silohash.search.requests import FederationStatus
from silohash.service.logs import log_event, request_id

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.run.folder import Run

KNOWN_SECONDS = 30.0
"""Time for which a statement of a silo is relied on."""

ACCEPTANCE_UNKNOWN = (
    "It compared codes only, because the hub does not know whether its policy accepts the words and regions of queries."
)


class HubBackend(Federation):
    """Search the silos of a federation over a bus."""

    def __init__(self, run: Run, silos: Iterable[str], bus: Bus, *, deadline_seconds: float) -> None:
        """Search with the model of a run. The arguments are those of `Federation`."""
        super().__init__(run, silos, bus, deadline_seconds=deadline_seconds)
        self._encoding = ThreadPoolExecutor(1, "encode")
        self._status: dict[str, SiloStatus] = {}
        self._acceptance = Acceptance()

    def warm_up(self) -> None:
        """Load the models of the silos and run each once, so that the first query is as fast as the following ones.

        A silo whose model cannot be run is logged. The queries that need it then get the reason.

        Raises:
            UserError: If the model of the run cannot be read.
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

    async def silos_with_model(self) -> dict[str, bool]:
        """Return for each silo whether it can be searched with a model of the run, as the silo itself states it."""
        known = {self.run.model.digest(name) for name in self.run.model.names}
        return {
            silo.name: not known.isdisjoint({silo.model_digest, *silo.models})
            for silo in await self._summaries(self.silos)
        }

    @override
    async def status(self) -> FederationStatus:
        """Return the state of the federation. The records of the rounds are read beside the event loop."""
        return await asyncio.to_thread(self._described, await self._summaries(self.silos))

    @override
    async def _summaries(self, silos: Sequence[str]) -> tuple[SiloStatus, ...]:
        found = await super()._summaries(silos)
        for status in found:
            self._acceptance.note(status)
        self._status |= {status.name: status for status in found if status.model_digest}
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
    async def _refusals(self, encoded: Encoded) -> dict[str, str]:
        if encoded.content is None:
            return {}
        if unknown := self._acceptance.unknown(list(encoded.codes)):
            await self._summaries(unknown)
        reasons = {silo: self._acceptance.refusal(silo, code.model_digest) for silo, code in encoded.codes.items()}
        return {silo: reason for silo, reason in reasons.items() if reason}

    @override
    async def _found(self, encoded: Encoded, options: SearchOptions) -> Hits:
        hits = await super()._found(encoded, options)
        for silo in encoded.codes:
            # A text without a kind is that of a silo, which has answered, if only with a refusal.
            if kind_of(hits.missing_silos.get(silo, "")) == "refused":
                self._acceptance.answered(silo)
        return hits


class Acceptance:
    """Remember which silos accept the words and regions of queries, as they state in their summaries."""

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
        """Return why a silo is not sent the words or regions of a query; empty if it accepts them.

        Args:
            silo: Name of the silo.
            model_digest: Digest of the model of the query.
        """
        status = self._statement(silo)
        if status is None or not status.model_digest:
            return ACCEPTANCE_UNKNOWN
        accepts = status.accepts_content and model_digest in {status.model_digest, *status.models}
        return "" if accepts else CONTENT_REFUSED

    def _statement(self, silo: str) -> SiloStatus | None:
        """Return the summary of a silo, unless it is too old."""
        moment, status = self._stated.get(silo, (0.0, None))
        return status if self._clock() - moment <= KNOWN_SECONDS else None
