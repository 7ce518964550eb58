"""Who may ask. Every route of the API and of the page depends on `asker`, which is the only place that decides it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

SIGN_IN = "/sign-in"
"""Address of the form for signing in."""


@dataclass(frozen=True)
class Asker:
    """Identify the person or program that asks.

    Attributes:
        name: name for limits and logs; empty where no account is needed.
    """

    name: str = ""


Access: TypeAlias = Callable[[Request], Awaitable[Asker]]
"""A function that returns who asks, or raises an `HTTPException` with status 401, 403 or 429."""


async def everyone(_: Request) -> Asker:
    """Let everyone ask. It is meant for a service that only this machine can reach."""
    return Asker()


async def asker(request: Request) -> Asker:
    """Return who asks, by the rule that the application was created with."""
    access: Access = request.app.state.service.access
    return await access(request)


Allowed = Annotated[Asker, Depends(asker)]
