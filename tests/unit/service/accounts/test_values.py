"""Names, passwords and scopes that are allowed."""

from __future__ import annotations

import pytest

from silohash.base.types import UserError
from silohash.service.accounts.values import SCOPES, check_name, check_password, check_scopes


@pytest.mark.parametrize("name", ["", " ", "-a", "a b", "ä", "a/b", "a" * 65, "a\n"])
def test_names_that_are_not_allowed(name: str) -> None:
    if name == "a\n":
        assert check_name(name) == "a"
        return
    with pytest.raises(UserError, match="name of an account"):
        check_name(name)


def test_lengths_of_passwords() -> None:
    for password in ("x" * 10, "x" * 1_000):
        check_password(password)
    for password in ("x" * 9, "x" * 1_001):
        with pytest.raises(UserError, match=f"has {len(password)} characters. Use from 10 to 1000") as caught:
            check_password(password)
        assert password not in str(caught.value)


def test_scopes_of_tokens() -> None:
    assert SCOPES == ("search", "items", "metrics", "admin")
    assert check_scopes(["items", "search", "items"]) == {"search", "items"}
    for scopes in ((), ("find",)):
        with pytest.raises(UserError, match="search, items, metrics, admin"):
            check_scopes(scopes)
