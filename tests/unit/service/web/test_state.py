"""Pictures of recent searches are kept for a time and within a size; a status is asked for again after a while."""

from __future__ import annotations

import asyncio

import pytest

from silohash.service.web import state
from silohash.service.web.state import KEPT_SECONDS, RecentPictures, Service
from tests.served import MadeUpBackend, png


def test_pictures_are_kept_for_a_time() -> None:
    now = [100.0]
    recent = RecentPictures(clock=lambda: now[0])
    name = recent.keep(b"abc", drawing=True)
    kept = recent.get(name)
    assert kept is not None
    assert (kept.content, kept.drawing) == (b"abc", True)
    assert recent.get("other") is None
    assert len(name) >= 20
    now[0] += KEPT_SECONDS - 1
    assert recent.get(name) is not None
    now[0] += 1
    assert recent.get(name) is None


def test_the_oldest_pictures_are_dropped_first() -> None:
    recent = RecentPictures(most_bytes=10)
    names = [recent.keep(b"a" * 4, drawing=False) for _ in range(3)]
    assert [recent.get(name) is not None for name in names] == [False, True, True]
    large = recent.keep(b"a" * 11, drawing=False)
    assert recent.get(large) is not None, "the picture of the present search is always kept"
    assert recent.get(names[-1]) is None


def test_a_status_is_remembered_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(MadeUpBackend):
        asked = 0

        async def status(self):
            self.asked += 1
            return await super().status()

    backend = Counting()
    service = Service(backend)

    async def ask(times: int) -> None:
        await asyncio.gather(*(service.status() for _ in range(times)))

    asyncio.run(ask(5))
    assert backend.asked == 1
    monkeypatch.setattr(state, "STATUS_SECONDS", -1.0)
    service = Service(backend)
    asyncio.run(ask(2))
    assert backend.asked == 3


def test_drawings_are_fitted_to_the_archive() -> None:
    for archive, size in (("glyphs", (32, 32)), ("shapes", (256, 256))):
        service = Service(MadeUpBackend(archive=archive))
        assert asyncio.run(service.read_picture(png(), drawing=True)).size == size
        assert asyncio.run(service.read_picture(png(), drawing=False)).size == (24, 24)
