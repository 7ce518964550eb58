"""Access control. Every route of the API and of the page depends on `asker`, which alone decides whether it may be used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

SIGN_IN = "/sign-in"
"""Address of the form for signing in."""


@dataclass(frozen=True)
class Asker:
    """The person or program that sends a request.

    Attributes:
        name: Name for limits and logs; empty where no account is needed.
    """

    name: str = ""


Access: TypeAlias = Callable[[Request], Awaitable[Asker]]
"""A function that returns the sender of a request, or raises an `HTTPException` with the status 401, 403 or 429."""


async def everyone(_: Request) -> Asker:
    """Allow every request. This is meant for a service that only this machine can reach."""
    return Asker()


async def asker(request: Request) -> Asker:
    """Return the sender of a request, according to the access rule of the application."""
    access: Access = request.app.state.service.access
    return await access(request)


Allowed = Annotated[Asker, Depends(asker)]
