"""Middleware around every request: checks of its host, origin, sender, size and pace, and the headers of the response."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from math import inf

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from silohash.base.files import size_in_words
from silohash.service.web.errors import error_document
from silohash.service.web.state import Access

LOG = logging.getLogger("silohash.service")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Browsers load files of this service only, and do not run scripts that are written in a page."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), browsing-topics=()",
}
"""Headers of every response."""

DEFAULT_CACHE = "private, no-cache"
"""Responses contain what silos released to one account, so shared caches must not keep them."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_ROOM = 100_000
"""Number of bytes that a request may have in addition to its picture."""

FORM_BYTES = 64_000
"""Largest body of a request whose sender need not be known. It stays in memory, as do those of others up to this size."""

BODY_SECONDS, LEAST_BYTES_PER_SECOND = 10.0, 32_000
"""A body must arrive within so many seconds, and one more for each so many bytes that have arrived."""

LINGER_SECONDS = 2.0
"""How long the rest of a refused body is received and dropped. Most programs read the answer only after sending it all."""

UPLOADS = {"account": 4, "address": 16, "service": 32}
"""How many bodies larger than `FORM_BYTES` may arrive at once: from an account, from an address, and in all."""


class Guard:
    """Refuse requests for other hosts, from other origins or with large bodies, and set the headers of all responses.

    A page of another site, shown by a browser on this machine, could reach a service on 127.0.0.1 under a domain name of
    that site, or send forms to it. Checking the host and the origin prevents both.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], most_bytes: int, admit: Access, forms: Collection[str] = ()
    ) -> None:
        """Surround an application that answers under some names only, without a port (``*`` for any).

        ``admit`` is asked before a body is received. Everyone may send small ``forms`` to some addresses.
        """
        self._app = app
        self._hosts = frozenset(hosts)
        self.most_bytes, self.admit, self.forms = most_bytes, admit, forms
        self.uploads: Counter[tuple[str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        # A server knows whether the answer to a request needs a body. All that can be read can be asked for with HEAD.
        head = scope["method"] == "HEAD"
        scope = {**scope, "method": "GET"} if head else scope
        body = _Body(self, scope, receive)

        async def sending(message: Message) -> None:
            """Add the security headers to the start of the response, and end a connection whose request was not read."""
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                closing = [(b"connection", b"close")] * body.unread
                message["headers"] = with_headers([*message.get("headers", []), *closing])
            elif message["type"] == "http.response.body":
                message = {**message, "body": b"" if head else message.get("body", b"")}
                if body.unread and not message.get("more_body"):
                    await send({**message, "more_body": True})
                    await body.drop()
                    message = {"type": "http.response.body"}
            await send(message)

        if (refusal := self._refusal(scope)) is not None:
            await _refusal(*refusal)(scope, receive, sending)
            return
        try:
            await self._app(scope, body.receive, sending)
        except Exception:  # the log has the details, which the response does not reveal
            LOG.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                failure = _refusal(500, "internal_error", "The service failed. Its log has the reason.")
                await failure(scope, receive, sending)
        finally:
            self.uploads -= Counter(body.counted)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return the status, code and message with which a request is refused, or None."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if "*" not in self._hosts and without_port(host) not in self._hosts:
            return 400, "unknown_host", "The service does not answer under this host name."
        origin = headers.get("origin")
        if scope["method"] not in SAFE_METHODS and origin is not None and origin.partition("://")[2] != host:
            return 403, "other_origin", "The request comes from a page of another site."
        return None


class _Body:
    """The body of a request, which is received if its sender may send it, and as long as it is neither large nor slow."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive) -> None:
        headers = dict(scope["headers"])
        self._guard, self._request, self._receive = guard, Request(scope), receive
        self._waits = b"expect" in headers  # for a sign that the body is wanted
        self._deadline, self._most_bytes, self._received = 0.0, 0, 0
        self._length = headers.get(b"content-length", b"0")
        self.unread = self._length != b"0" or b"transfer-encoding" in headers
        self._keys: list[tuple[str, str]] = []
        self.counted: list[tuple[str, str]] = []

    async def receive(self) -> Message:
        """Return the next part of the body, or what follows it."""
        if not self.unread:  # a response with a file waits for the end of the connection this way
            return await self._receive()
        if not self._deadline:
            await self._begin()
        try:
            async with asyncio.timeout_at(self._deadline + self._received / LEAST_BYTES_PER_SECOND):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, "The body of the request arrives too slowly. Send it again.") from error
        self.unread = bool(message.get("more_body"))
        # A request in chunks has no content-length, so what arrives is counted as well.
        self._received += len(message.get("body", b""))
        self._check_size(self._received)
        if self._received > FORM_BYTES and self.unread and not self.counted:
            if any(self._guard.uploads[key] >= UPLOADS[key[0]] for key in self._keys):
                raise HTTPException(429, "Too many uploads at once. Wait until one has ended.", {"Retry-After": "5"})
            self.counted = self._keys
            self._guard.uploads.update(self.counted)
        return message

    async def _begin(self) -> None:
        """Find out how much the sender may send, and until when."""
        self._most_bytes = FORM_BYTES
        if self._request.url.path not in self._guard.forms:
            account, self._most_bytes = await self._guard.admit(self._request), self._guard.most_bytes
            keys = {"account": account, "address": address_of(self._request), "service": "all"}
            self._keys = [key for key in keys.items() if key[1]]
        self._check_size(int(self._length) if self._length.isdigit() else inf)
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    def _check_size(self, count: float) -> None:
        if count > self._most_bytes:
            raise HTTPException(413, f"The request is too large. Send at most {size_in_words(self._most_bytes)}.")

    async def drop(self) -> None:
        """Receive the rest for a while without keeping it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while not self._waits and (await self._receive()).get("more_body"):
                    pass
        self.unread = False


def _refusal(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse(error_document(status, code, message), status)


def address_of(request: Request) -> str:
    """Return the address that a request comes from. Of an IPv6 address it is the first half, which identifies a network."""
    host = "" if request.client is None else request.client.host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    # A subscriber usually gets 2**64 addresses of IPv6, each of which would otherwise have limits of its own.
    is_network = isinstance(address, IPv6Address) and address.ipv4_mapped is None
    return ":".join(address.exploded.split(":")[:4]) if is_network else host


def without_port(host: str) -> str:
    """Return the host of a ``Host`` header in lower case, without its port.

    Example:
        >>> without_port("LocalHost:8000"), without_port("[::1]:8000"), without_port("[::1]")
        ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def with_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response, with those of `HEADERS` that it does not set itself."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    added = {**HEADERS, "cache-control": DEFAULT_CACHE}
    return given + [(name.encode(), value.encode()) for name, value in added.items() if name.encode() not in names]
