"""An account and a token as values, and the checks of names, passwords and scopes."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from silohash.base.types import UserError

PASSWORD_LENGTHS = range(10, 1001)
NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")

Scope = Literal["search", "items", "metrics", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""What a token permits: searches, the pages of single items, the metrics, or the administration of the service."""


@dataclass(frozen=True)
class Account:
    """An account of a person.

    Attributes:
        name: Name with which the person signs in.
        admin: Whether the person may administer the service.
        created: Time of creation, in seconds since 1970.
    """

    name: str
    admin: bool
    created: float


@dataclass(frozen=True)
class Token:
    """A token of a program, without its secret.

    Attributes:
        id: The public part of the token.
        account: Name of the account that it belongs to.
        label: What the token is for.
        scopes: What the token permits.
        created: Time of creation, in seconds since 1970.
        expires: Time after which it is refused, in seconds since 1970; None if it does not expire.
    """

    id: str
    account: str
    label: str
    scopes: frozenset[Scope]
    created: float
    expires: float | None


def check_name(name: str) -> str:
    """Return the name of an account in lower case.

    Raises:
        UserError: If it is not allowed.
    """
    checked = name.strip().lower()
    if not NAME.fullmatch(checked):
        raise UserError(
            f'"{name}" cannot be the name of an account. Use up to 64 of the characters a-z, 0-9, ".", "_", "@" and "-", '
            "and begin with a letter or a digit."
        )
    return checked


def check_password(password: str) -> None:
    """Check that a password is neither too short nor too long.

    Raises:
        UserError: If it is. The message does not hold the password.
    """
    if len(password) not in PASSWORD_LENGTHS:
        raise UserError(
            f"The password has {len(password)} characters. Use from {PASSWORD_LENGTHS.start} to {PASSWORD_LENGTHS.stop - 1}."
        )


def check_scopes(scopes: Collection[str]) -> frozenset[Scope]:
    """Return scopes without repetition.

    Raises:
        UserError: If there are none, or one is unknown.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise UserError(f"{', '.join(unknown) or 'None'} is not a scope of a token. Choose from: {', '.join(SCOPES)}.")
    return frozenset(scope for scope in SCOPES if scope in scopes)
