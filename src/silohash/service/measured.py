"""A backend that counts its queries, and notes them in the record of their request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from silohash.base.types import Modality, UserError
from silohash.search.hits import Hits, MissingKind, kind_of
from silohash.service.backend import (
    Backend,
    FederationStatus,
    Item,
    SearchOptions,
    SearchRequest,
    Unavailable,
)
from silohash.service.metrics import Metrics
from silohash.service.request_record import Kind, Outcome, current_record

AnswerT = TypeVar("AnswerT", Hits, Item)


class MeasuredBackend:
    """Pass all calls on to another backend. See `silohash.service.backend.Backend`."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        """Count the queries to a backend."""
        self._backend, self._metrics = backend, metrics
        self._silo_count = 0

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos. See `Backend.search`."""
        return await self._counted(kind_of_search(request), self._silos(request.silos), self._backend.search(request))

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item. See `Backend.similar`."""
        answer = self._backend.similar(silo, name, options, by)
        return await self._counted("similar", self._silos(options.silos), answer)

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item. See `Backend.item`."""
        return await self._counted("item", 1, self._backend.item(silo, name, asker=asker))

    async def status(self) -> FederationStatus:
        """Return the state of the federation. See `Backend.status`."""
        status = await self._backend.status()
        self._silo_count = len(status.silos)
        self._metrics.show(status)
        return status

    def _silos(self, silos: Sequence[str] | None) -> int:
        """Return the number of silos that a query goes to."""
        return len({*silos}) if silos else self._silo_count

    async def _counted(self, kind: Kind, silos: int, answer: Awaitable[AnswerT]) -> AnswerT:
        """Return the answer to a query, and count it."""
        start = time.perf_counter()
        outcome: Outcome = "failed"
        missing: Mapping[str, MissingKind] = {}
        answered = 0
        try:
            found = await answer
            missing = missing_of(found)
            answered, outcome = silos - len(missing), outcome_of(found)
            return found
        except UserError as error:
            outcome = outcome_of_error(error)
            raise
        finally:
            self._metrics.query(kind, outcome, time.perf_counter() - start)
            for silo, reason in missing.items():
                self._metrics.silo_missing(silo, reason)
            if (record := current_record()) is not None:
                record.kind, record.outcome = kind, outcome
                record.silos_answered, record.missing = answered, missing


def kind_of_search(request: SearchRequest) -> Kind:
    """Return what a search searches with."""
    if request.text is not None:
        return "text"
    return "picture" if request.picture is not None else "code"


def missing_of(answer: Hits | Item) -> dict[str, MissingKind]:
    """Return the kind of the reason for each silo that is missing from an answer."""
    return {silo: kind_of(reason) for silo, reason in answer.missing_silos.items()} if isinstance(answer, Hits) else {}


def outcome_of(answer: Hits | Item) -> Outcome:
    """Return the outcome of a query with an answer."""
    if not isinstance(answer, Hits) or not answer.missing_silos:
        return "complete"
    return "partial" if answer.answered else "unavailable"


def outcome_of_error(error: UserError) -> Outcome:
    """Return the outcome of a query without an answer."""
    return "unavailable" if isinstance(error, Unavailable) else "refused"
