"""Fetch files from servers: at most so many bytes of each, and if need be slowly, and from no other host."""

import time
import urllib.request as web
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit

from silohash import __version__
from silohash.base.attempts import attempted
from silohash.base.errors import ServerUnreachable

TIMEOUT_SECONDS, BUSY = 60, {429, 500, 502, 503, 504}
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, TRIES, MOST_FAILURES = 1.0, 900.0, 3, 20
"""Shortest time between requests to a host, and the longest that it can ask for; how often a file is asked for, and after
how many failures in a row a host is left alone."""

HEADERS = {"User-Agent": f"silohash/{__version__} (builder of research data sets)"}
HANDLERS = (web.ProxyHandler, web.HTTPHandler, web.HTTPSHandler, web.HTTPDefaultErrorHandler, web.HTTPErrorProcessor)
"""What opens the addresses of certain hosts. None of them follows redirects, which could lead to others."""


class NotGivenError(ValueError):
    """A server does not give a file: its HTTP status, 0 without a connection, and after how long it can be asked again."""

    def __init__(self, reason: str, status: int = 0, again_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.again_seconds = status, again_seconds


def content_of(address: str, most_bytes: int, open_address: Callable[..., Any] = web.urlopen) -> bytes:
    """Return the content at an address, if it is given and not longer than ``most_bytes``; else raise a `NotGivenError`."""
    try:
        with open_address(web.Request(address, headers=HEADERS), timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            content: bytes = response.read(most_bytes + 1)
            if len(content) > most_bytes:
                raise NotGivenError(f"more than {most_bytes:,} bytes", response.status)
            if response.length:
                raise HTTPException("the content is cut off")
            return content
    except HTTPError as error:
        error.close()
        after = error.headers.get("Retry-After", "")
        date = attempted(lambda: parsedate_to_datetime(after).timestamp() - time.time(), ValueError, otherwise=0.0)
        again = (float(after) if after.isdecimal() else date) if error.code in BUSY else None
        raise NotGivenError(f"HTTP status {error.code}", error.code, again) from error
    except (OSError, HTTPException) as error:
        raise NotGivenError(str(error.reason if isinstance(error, URLError) else error), 0, 0.0) from error


@dataclass
class Polite:
    """Ask each host at most once per second, or as rarely as it asks for. ``now`` is a clock, ``wait`` waits, in seconds."""

    now: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    _free: dict[str, float] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)

    def fetch(self, address: str, most_bytes: int, permitted: Sequence[str]) -> bytes:
        """Return the content at an address, which must begin with one of those ``permitted``; else raise a `NotGivenError`.

        Raises:
            UserError: If the host fails again and again, or asks to be left alone for long.
        """
        if not address.startswith(tuple(permitted)):
            raise NotGivenError("no address of the museum's hosts")
        host, opener = urlsplit(address).netloc, web.OpenerDirector()
        for handler in HANDLERS:
            opener.add_handler(handler())
        for attempt in range(TRIES):
            self.wait(max(0.0, self._free.get(host, 0.0) - self.now()))
            try:
                content = content_of(quote(address, safe=":/?#[]@!$&'()*+,;=%~"), most_bytes, opener.open)
            except NotGivenError as error:
                problem, pause = error, max(PAUSE_SECONDS * 2**attempt, error.again_seconds or 0.0)
                self._free[host] = self.now() + pause
            else:
                self._free[host], self._failures[host] = self.now() + PAUSE_SECONDS, 0
                return content
            if problem.again_seconds is None or pause > LONGEST_PAUSE_SECONDS:
                break
        self._failures[host] += 1
        if self._failures[host] < MOST_FAILURES and pause <= LONGEST_PAUSE_SECONDS:
            raise problem
        raise ServerUnreachable(
            f"{host} gives no files ({problem}). What was fetched is kept. Try again in {pause:,.0f} seconds or later."
        )
