"""Searches whose results are told while they run."""

from __future__ import annotations

import asyncio

import pytest

from silohash.base.errors import NotFound
from silohash.search.hits import Hits
from silohash.service.web.arriving import Arriving, Told, event, streamed


def hits(count: int) -> Hits:
    """Return some hits of a silo that answered."""
    return Hits(
        ids=tuple(map(str, range(count))), distances=(0,) * count, silos=("a",) * count, model_digests=frozenset("m")
    )


def test_the_latest_results_are_gathered() -> None:
    async def check() -> None:
        ends = asyncio.Event()

        async def search(told: Told | None) -> Hits:
            assert told is not None
            told(Hits(missing_silos={"a": "It has not answered yet."}))
            told(hits(1))
            told(hits(2))
            await ends.wait()
            return hits(3)

        arriving = Arriving(search)
        first = await arriving.gathered(0.001)
        assert first is not None
        assert len(first) == 2, "what no silo answered is not told, and older results are left out"
        ends.set()
        assert await arriving.gathered(60) is None
        assert len(await arriving.whole) == 3

    asyncio.run(check())


def test_a_search_that_fails_ends_the_results() -> None:
    async def check() -> None:
        async def search(told: Told | None) -> Hits:
            raise NotFound("There is no silo.")

        arriving = Arriving(search)
        assert await arriving.next() is None
        with pytest.raises(NotFound):
            await arriving.whole

    asyncio.run(check())


def test_a_stream_that_nobody_takes_ends_its_search() -> None:
    async def check() -> None:
        async def search(told: Told | None) -> Hits:
            await asyncio.Event().wait()
            return Hits()

        async def events():
            yield event("partial", "a")
            yield event("result", "b")

        arriving = Arriving(search)
        response = streamed(events(), arriving)
        assert response.headers["cache-control"] == "no-store"
        body = response.body_iterator
        assert await anext(body) == "event: partial\ndata: a\n\n"
        await body.aclose()
        await asyncio.wait({arriving.whole})
        assert arriving.whole.cancelled()

    asyncio.run(check())
