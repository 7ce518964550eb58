"""Without another rule, everyone who reaches the service may ask."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from silohash.service.web.access import Asker, asker, everyone
from silohash.service.web.state import Service
from tests.served import MadeUpBackend, client_of


def test_everyone_may_ask_unless_there_is_a_rule() -> None:
    app = client_of(MadeUpBackend()).app
    request = Request({"type": "http", "headers": [], "app": app})
    assert asyncio.run(everyone(request)) == asyncio.run(asker(request)) == Asker("")

    async def ann(request: Request) -> Asker:
        return Asker("ann")

    app.state.service = Service(MadeUpBackend(), ann)
    assert asyncio.run(asker(request)) == Asker("ann")
