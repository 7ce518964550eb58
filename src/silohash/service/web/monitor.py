"""Monitoring: the route of the metrics, and an id, counters and one line in the log for each request and its query.

The line gives the kind of the request, its outcome and its duration. It contains neither the address nor the body of the
request, so that queries, pictures, passwords and tokens are not logged.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from logging import DEBUG, INFO
from typing import TypeVar

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from silohash.base.errors import Unavailable, UserError
from silohash.base.types import Modality
from silohash.search.hits import Hits, SearchOptions
from silohash.search.reasons import MissingKind, kind_of
from silohash.search.requests import Code, FederationStatus, Item, SearchRequest
from silohash.service.backends import Backend
from silohash.service.config import is_local
from silohash.service.logs import Kind, Outcome, Record, current_record, log_event, recording
from silohash.service.metrics import CONTENT_TYPE, Metrics
from silohash.service.web.guard import without_port
from silohash.service.web.state import SIGN_IN, Shared, asker

METRICS, READY = "/metrics", "/readyz"
AREAS: Mapping[str, str] = {
    "/api/": "api", "/static/": "static", "/picture": "picture", "/sign-": "account", "/account": "account",
    "/healthz": "health", READY: "health", METRICS: "metrics",
}  # fmt: skip
"""The area of the service to which addresses with a beginning belong. All others are pages."""

PAGE = "page"
QUIET = frozenset({"static", "health", "metrics"})
"""Areas whose requests are logged at the level DEBUG."""

FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers that a web server adds to a request that it passes on."""

router = APIRouter(include_in_schema=False)


@router.get(METRICS)
async def metrics(request: Request, service: Shared) -> Response:
    """Return the metrics, to programs on this machine or with a token."""
    if not is_this_machine(request):
        await asker(request)
    with suppress(UserError):
        await service.recent_status()  # the backend shows each new status in the metrics
    return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})


def is_this_machine(request: Request) -> bool:
    """Return whether a request comes from a program on this machine, rather than from a web server that passes it on.

    Such a server gives the name under which the service is reached from outside, or adds a header of `FORWARDED`.
    """
    if request.client is None or not is_local(request.client.host):
        return False
    host = without_port(request.headers.get("host", "")).strip("[]")
    return is_local(host) and not any(name in request.headers for name in FORWARDED)


class Monitor:
    """Surround an application: give each request an id, count it, and log how it ended."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = 0, time.perf_counter()
        with recording() as record, self._metrics.in_flight.track_inprogress():

            async def sending(message: Message) -> None:
                """Add the id of the request to the start of the response."""
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    message["headers"] = [*message.get("headers", []), (b"x-request-id", record.id.encode())]
                await send(message)

            try:
                await self._app(scope, receive, sending)
            finally:
                self._count(scope, status)
                _log(area_of(scope["path"]), record, status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: int) -> None:
        self._metrics.request(area_of(scope["path"]), status)
        if scope["path"] == SIGN_IN and scope["method"] == "POST" and status in (401, 429):
            self._metrics.sign_in_failures.labels("password" if status == 401 else "waiting").inc()
        elif status == 401 and any(name == b"authorization" for name, _ in scope["headers"]):
            self._metrics.sign_in_failures.labels("token").inc()


def area_of(path: str) -> str:
    """Return the area of the service to which an address belongs.

    Example:
        >>> area_of("/api/v1/search"), area_of("/picture/x"), area_of("/federation"), area_of("/wp-login.php")
        ('api', 'picture', 'page', 'page')
    """
    return next((area for start, area in AREAS.items() if path.startswith(start)), PAGE)


def _log(area: str, record: Record, status: int, seconds: float) -> None:
    fields: dict[str, object] = {
        "kind": record.kind or area,
        "outcome": record.outcome or outcome_of_status(status),
        "status": status,
        "milliseconds": round(1e3 * seconds, 3),
    }
    if record.kind is not None:
        fields |= {"silos_answered": record.silos_answered, "missing_silos": dict(record.missing)}
    log_event("request", level=DEBUG if area in QUIET else INFO, **fields)


def outcome_of_status(status: int) -> str:
    """Return the outcome of a request without a query.

    Example:
        >>> outcome_of_status(200), outcome_of_status(404), outcome_of_status(500), outcome_of_status(0)
        ('complete', 'refused', 'failed', 'failed')
    """
    if status == 0 or status >= 500:
        return "failed"
    return "refused" if status >= 400 else "complete"


AnswerT = TypeVar("AnswerT", Hits, Item)


class MeasuredBackend:
    """Pass all calls on to another backend, and count them."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
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
        return len({*silos}) if silos else self._silo_count

    async def _counted(self, kind: Kind, silos: int, answer: Awaitable[AnswerT]) -> AnswerT:
        start = time.perf_counter()
        outcome: Outcome = "failed"
        missing: Mapping[str, MissingKind] = {}
        answered = 0
        try:
            found = await answer
            outcome = "complete"
            if isinstance(found, Hits):
                outcome, missing = outcome_of(found), {s: kind_of(reason) for s, reason in found.missing_silos.items()}
            answered = silos - len(missing)
            return found
        except UserError as error:
            outcome = "unavailable" if isinstance(error, Unavailable) else "refused"
            raise
        except asyncio.CancelledError:
            outcome = "canceled"
            raise
        finally:
            self._metrics.query(kind, outcome, time.perf_counter() - start)
            for silo, reason in missing.items():
                self._metrics.missing.labels(silo, reason).inc()
            if (record := current_record()) is not None:
                record.kind, record.outcome = kind, outcome
                record.silos_answered, record.missing = answered, missing


def kind_of_search(request: SearchRequest) -> Kind:
    """Return what a search searches with."""
    if isinstance(request.value, str):
        return "text"
    return "code" if isinstance(request.value, Code | np.ndarray) else "picture"


def outcome_of(hits: Hits) -> Outcome:
    """Return the outcome of a query with some hits."""
    if not hits.missing_silos:
        return "complete"
    return "partial" if hits.answered else "unavailable"
