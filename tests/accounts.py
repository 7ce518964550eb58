"""Accounts for tests of the service: a password, quickly checked, a session and a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import argon2
import httpx2
from starlette.testclient import TestClient

from silohash.service.accounts import Accounts

PASSWORD = "correct horse"  # noqa: S105  of tests


@contextmanager
def quick_accounts(folder: Path, clock: Callable[[], float] | None = None) -> Iterator[Accounts]:
    """Open accounts in ``folder`` whose passwords are hashed with the least work."""
    with Accounts(folder / "accounts.sqlite", **({} if clock is None else {"clock": clock})) as opened:
        opened._hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        yield opened


def sign_in(
    client: TestClient, name: str = "ada", password: str = PASSWORD, target: str = "/", **headers: str
) -> httpx2.Response:
    """Send the form of the sign-in page, from the page of the service itself unless ``headers`` name another origin."""
    origin = {"origin": str(client.base_url)}
    data = {"name": name, "password": password, "next": target}
    return client.post("/sign-in", data=data, headers=origin | headers)


def bearer(accounts: Accounts, *scopes: str, name: str = "ada") -> dict[str, str]:
    """Return the header of a request with a new token of the account ``name``."""
    return {"authorization": f"Bearer {accounts.add_token(name, scopes)[1]}"}
