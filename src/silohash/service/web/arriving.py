"""Searches whose results are shown while they run: the answers of fast silos need not wait for those of slow ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias

from fastapi.responses import StreamingResponse

from silohash.search.hits import Hits

EVENTS = "text/event-stream"

Told: TypeAlias = Callable[[Hits], None]
"""A function that is called with the results so far."""

Search: TypeAlias = Callable[[Told | None], Coroutine[Any, Any, Hits]]
"""A function that searches, and tells the results so far if it is given a function for that, possibly in another thread."""


class Arriving:
    """A search that runs, and its results so far. It is created, awaited and canceled in one event loop."""

    def __init__(self, search: Search) -> None:
        """Start a search."""
        loop, self._found = asyncio.get_running_loop(), asyncio.Queue[Hits | None]()

        def told(hits: Hits) -> None:
            """Note the results so far, if a silo has answered."""
            if hits.answered:
                loop.call_soon_threadsafe(self._found.put_nowait, hits)

        self.whole = asyncio.ensure_future(search(told))
        self.whole.add_done_callback(lambda _: self._found.put_nowait(None))

    async def next(self) -> Hits | None:
        """Return the results after the next answer of a silo, or None if the search has ended."""
        return await self._found.get()

    async def gathered(self, seconds: float) -> Hits | None:
        """Return the latest results after some seconds, or after the first answer; None if the search has ended by then."""
        await asyncio.wait({self.whole}, timeout=seconds)
        hits = None if self.whole.done() else await self.next()
        while hits is not None and not self._found.empty():
            hits = self._found.get_nowait()
        return hits


def event(name: str, data: str) -> str:
    r"""Return a server-sent event. Each line of its data is a field of its own.

    Example:
        >>> event("result", "a\nb")
        'event: result\ndata: a\ndata: b\n\n'
    """
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n"


def streamed(events: AsyncIterator[str], arriving: Arriving) -> StreamingResponse:
    """Return a response with events. If nobody takes them, the search is canceled."""

    async def sent() -> AsyncIterator[str]:
        """Yield the events, and end the search after the last one."""
        try:
            async for each in events:
                yield each
        finally:
            arriving.whole.cancel()

    # A kept stream could be shown in place of the page at the same address.
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(sent(), media_type=EVENTS, headers=headers)
