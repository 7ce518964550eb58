"""Pictures of recent searches are kept for a time and within a size; a status is renewed without delaying anyone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from starlette.requests import Request

from silohash.base.errors import UserError
from silohash.service.web import state
from silohash.service.web.app import create_app
from silohash.service.web.errors import ASKER
from silohash.service.web.state import KEPT_SECONDS, RecentPictures, Service, asker, everyone
from tests.served import HangingBackend, MadeUpBackend, client_of, png

T = TypeVar("T")


def without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that must not wait for anything."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    pytest.fail("it waits")


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


def test_the_oldest_pictures_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.service.web.state.KEPT_BYTES", 10)
    recent = RecentPictures()
    names = [recent.keep(b"a" * 4, drawing=False) for _ in range(3)]
    assert [recent.get(name) is not None for name in names] == [False, True, True]
    large = recent.keep(b"a" * 11, drawing=False)
    assert recent.get(large) is not None, "the picture of the present search is always kept"
    assert recent.get(names[-1]) is None


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every status is old at once, and a new one is waited for only briefly."""
    monkeypatch.setattr(state, "STATUS_SECONDS", -1.0)
    monkeypatch.setattr(state, "FRESH_SECONDS", 0.05)


def test_a_status_is_remembered_for_some_seconds() -> None:
    backend = HangingBackend()
    service = Service(backend)

    async def ask() -> None:
        await asyncio.gather(*(service.status() for _ in range(5)), *(service.recent_status() for _ in range(5)))

    asyncio.run(ask())
    assert backend.asked == 1


@pytest.mark.usefixtures("old")
def test_an_old_status_is_served_while_a_single_new_one_is_requested() -> None:
    backend = HangingBackend()
    service = Service(backend)

    async def ask() -> None:
        first = await service.status()
        backend.missing = {"south": "It is asleep."}
        assert [without_waiting(service.status()) for _ in range(5)] == [first] * 5
        assert await service.recent_status() is first, "the last known one after a short wait"
        assert backend.asked == 2, "one request at a time"
        backend.silos_answer.set()
        found = await service.recent_status()
        assert [silo.reachable for silo in found.silos] == [True, False]
        assert await service.status() is found
        assert service._request is not None
        await service._request

    asyncio.run(ask())


@pytest.mark.usefixtures("old")
def test_a_status_that_cannot_be_renewed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    backend = HangingBackend()
    service = Service(backend)

    async def ask() -> None:
        first = await service.status()
        backend.silos_answer.set()
        backend.error = RuntimeError("broken")
        assert await service.recent_status() is first
        backend.error = None
        assert await service.recent_status() is not first

    with caplog.at_level(logging.ERROR, "silohash.service"):
        asyncio.run(ask())
    [record] = caplog.records
    assert (record.message, record.fields) == ("the status cannot be renewed", {"reason": "RuntimeError: broken"})


def test_the_first_status_is_waited_for_and_its_error_raised() -> None:
    backend = HangingBackend()
    backend.error = UserError("The model is missing.")
    for ask in (Service(backend).status, Service(backend).recent_status):
        backend.asked = 0
        with pytest.raises(UserError):
            asyncio.run(ask())


@pytest.mark.usefixtures("old")
def test_the_end_of_the_application_cancels_the_request_for_a_status() -> None:
    backend = HangingBackend()
    app = create_app(backend)

    async def serve() -> None:
        async with app.router.lifespan_context(app):
            await app.state.service.status()
            await asyncio.sleep(0)
            assert (backend.asked, backend.canceled) == (2, 0)
        assert backend.canceled == 1

    asyncio.run(serve())


def test_drawings_are_fitted_to_the_archive() -> None:
    for archive, size in (("glyphs", (32, 32)), ("shapes", (256, 256))):
        service = Service(MadeUpBackend(archive=archive))
        assert asyncio.run(service.read_picture(png(), drawing=True)).size == size
        assert asyncio.run(service.read_picture(png(), drawing=False)).size == (24, 24)


def test_everyone_may_ask_unless_there_is_a_rule() -> None:
    app = client_of(MadeUpBackend()).app
    request = Request({"type": "http", "headers": [], "app": app})
    assert asyncio.run(everyone(request)) == asyncio.run(asker(request)) == ""

    async def ann(request: Request) -> str:
        return "ann"

    app.state.service = Service(MadeUpBackend(), ann)
    assert asyncio.run(asker(request)) == "", "the rule is asked once per request"
    del request.scope[ASKER]
    assert asyncio.run(asker(request)) == "ann"
