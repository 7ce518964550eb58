"""Middleware around every request: checks of its host, origin and size, and the headers of the response."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from silohash.service.web.errors import error_document

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


class Guard:
    """Refuse requests for other hosts, from other origins or with large bodies, and set the headers of all responses.

    A page of another site, shown by a browser on this machine, could reach a service on 127.0.0.1 under a domain name of
    that site, or send forms to it. Checking the host and the origin prevents both.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], most_bytes: int) -> None:
        """Surround an application that answers under some names only, without a port (``*`` for any)."""
        self._app = app
        self._hosts = frozenset(hosts)
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            """Add the security headers to the start of the response."""
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = with_headers(message.get("headers", []))
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(sending, *refusal)
            return
        # A request in chunks has no content-length, so what arrives is counted as well.
        try:
            await self._app(scope, _limited(receive, self._most_bytes), sending)
        except Exception:  # the log has the details, which the response does not reveal
            LOG.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                await _answer(sending, 500, "internal_error", "The service failed. Its log has the reason.")

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return the status, code and message with which a request is refused, or None."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if "*" not in self._hosts and without_port(host) not in self._hosts:
            return 400, "unknown_host", "The service does not answer under this host name."
        origin = headers.get("origin")
        if scope["method"] not in SAFE_METHODS and origin is not None and origin.partition("://")[2] != host:
            return 403, "other_origin", "The request comes from a page of another site."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most_bytes:
            return 413, "too_large", f"The request is too large. Send at most {self._most_bytes:,} bytes."
        return None


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


def _limited(receive: Receive, most_bytes: int) -> Receive:
    """Return a function that receives the body of a request, and raises an error if it is too large."""
    received = 0

    async def limited() -> Message:
        """Return the next part of the body."""
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most_bytes:
            raise HTTPException(413, f"The request is too large. Send at most {most_bytes:,} bytes.")
        return message

    return limited


async def _answer(send: Send, status: int, code: str, message: str) -> None:
    body = json.dumps(error_document(status, code, message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
