"""What the routes of an application share: who may ask, backend, limits, last status, and pictures of recent searches.

Every route of the API and of the page depends on `asker`, which alone decides whether it may be used.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from logging import ERROR
from typing import Annotated, TypeAlias

from fastapi import Depends, Query, Request
from PIL import Image

from silohash.search.requests import FederationStatus
from silohash.service.backends import Backend
from silohash.service.logs import log_event
from silohash.service.metrics import Metrics
from silohash.service.web.addresses import fetch_picture
from silohash.service.web.errors import ASKER
from silohash.service.web.form import LONGEST_NAME
from silohash.service.web.uploads import read_drawing, read_picture

STATUS_SECONDS = 5.0
"""Time after which a status is requested again."""

FRESH_SECONDS = 0.5
"""Maximum time to wait for a new status where an older one is known. Silos that are well answer within milliseconds."""

STOP_SECONDS = 1.0
"""Maximum time to wait for the end of a request for a status that is canceled."""

KEPT_SECONDS = 3600.0
"""Time for which the picture of a search is kept, for further pages and filters."""

KEPT_BYTES = 200_000_000
"""Maximum number of bytes of kept picture files. The oldest are dropped first."""

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
"""Addresses of the forms for signing in and out."""


Access: TypeAlias = Callable[[Request], Awaitable[str]]
"""A function that returns the name of the person or program that sends a request, or an empty text where no account is
needed. It raises an `HTTPException` with the status 401, 403 or 429."""


async def everyone(_: Request) -> str:
    """Allow every request. This is meant for a service that only this machine can reach."""
    return ""


@dataclass(frozen=True)
class KeptPicture:
    """The picture file of a search, and the time until which it is kept, in seconds of the clock of `RecentPictures`."""

    content: bytes
    drawing: bool
    until: float


class RecentPictures:
    """Keep the pictures of recent searches in memory, under names that cannot be guessed.

    A page of results then has an address, so that its further pages, its filters and the browser's back button work without
    sending the picture again.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, KeptPicture] = OrderedDict()

    def keep(self, content: bytes, *, drawing: bool) -> str:
        """Keep a picture, and return its name."""
        name = secrets.token_urlsafe(16)
        self._kept[name] = KeptPicture(content, drawing, self._clock() + KEPT_SECONDS)
        while sum(len(picture.content) for picture in self._kept.values()) > KEPT_BYTES and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return name

    def get(self, name: str) -> KeptPicture | None:
        """Return a picture, or None if it is not kept."""
        for old in [old for old, picture in self._kept.items() if picture.until <= self._clock()]:
            del self._kept[old]
        return self._kept.get(name)


@dataclass
class Service:
    """The state that the routes of an application share."""

    backend: Backend
    access: Access = everyone
    recent: RecentPictures = field(default_factory=RecentPictures)
    metrics: Metrics = field(default_factory=Metrics)
    picture_hosts: frozenset[str] = frozenset()
    _status: FederationStatus | None = field(default=None, repr=False)
    _status_until: float = field(default=0.0, repr=False)
    _request: asyncio.Task[FederationStatus] | None = field(default=None, repr=False)

    async def status(self) -> FederationStatus:
        """Return the last known status of the federation. If it is old, a new one is requested in the background.

        Only the first status is waited for, so that a silo that does not answer never delays a search.
        """
        if self._status is None:
            return await asyncio.shield(self._requested())
        if time.monotonic() >= self._status_until:
            self._requested()
        return self._status

    async def recent_status(self) -> FederationStatus:
        """Return a status that is at most `STATUS_SECONDS` old, or the last known one if that takes too long."""
        status = await self.status()
        if self._request is not None and not self._request.done():
            await asyncio.wait({self._request}, timeout=FRESH_SECONDS)
        return self._status or status

    async def stop(self) -> None:
        """Cancel the request for a status, if one is in progress."""
        if self._request is not None and not self._request.done():
            self._request.cancel()
            await asyncio.wait({self._request}, timeout=STOP_SECONDS)

    def _requested(self) -> asyncio.Task[FederationStatus]:
        """Return the request for a new status. It is sent unless one is in progress already."""
        if self._request is None or self._request.done():
            self._request = asyncio.create_task(self._renew())
            self._request.add_done_callback(_log_failure)
        return self._request

    async def _renew(self) -> FederationStatus:
        try:
            self._status = await self.backend.status()
        finally:
            self._status_until = time.monotonic() + STATUS_SECONDS
        return self._status

    async def silo_count(self) -> int:
        """Return the number of silos of the federation, which does not change while the service runs."""
        status = self._status or await self.status()
        return len(status.silos)

    async def fetch_picture(self, address: str) -> bytes:
        """Return the content of a picture file at an address, if the service allows its host."""
        return await asyncio.to_thread(fetch_picture, address, self.picture_hosts)

    async def read_picture(self, content: bytes, *, drawing: bool) -> Image.Image:
        """Decode a picture file for a search. A drawing is fitted to the pictures of the archive."""
        if not drawing:
            return await asyncio.to_thread(read_picture, content)
        archive = (await self.status()).archive
        return await asyncio.to_thread(read_drawing, content, archive)


def _log_failure(request: asyncio.Task[FederationStatus]) -> None:
    error = None if request.cancelled() else request.exception()
    if error is not None:
        log_event("the status cannot be renewed", level=ERROR, reason=f"{type(error).__name__}: {error}")


async def service_of(request: Request) -> Service:
    """Return the state that the routes share. It is a coroutine because FastAPI would run a plain function in a thread."""
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(service_of)]


async def asker(request: Request) -> str:
    """Return the sender of a request, according to the access rule of the application, which is asked once."""
    if ASKER not in request.scope:
        request.scope[ASKER] = await request.app.state.service.access(request)
    return str(request.scope[ASKER])


Allowed = Annotated[str, Depends(asker)]
NameQuery = Annotated[str, Query(min_length=1, max_length=LONGEST_NAME)]
IdQuery = Annotated[str, Query(alias="id", min_length=1, max_length=LONGEST_NAME)]
