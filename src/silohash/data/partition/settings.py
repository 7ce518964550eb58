"""Check the values of the settings in ``[partition]``: each function returns the value, or raises a UserError."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from silohash.registry import suggestion
from silohash.types import UserError

Settings: TypeAlias = Mapping[str, Any]


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; True and False are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def positive(settings: Settings, name: str) -> float:
    """Return a setting that must be a number above zero."""
    value = settings[name]
    if not is_number(value) or value <= 0:
        raise UserError(
            f'[partition] {name} is {value!r}; it must be a number above 0, as 0.5. For an even spread use kind = "iid".'
        )
    return float(value)


def share(settings: Settings, name: str) -> float:
    """Return a setting that must be a number between 0 and 1."""
    value = settings[name]
    if not is_number(value) or not 0 <= value <= 1:
        raise UserError(f"[partition] {name} is {value!r}; it must be a number between 0 and 1.")
    return float(value)


def whole(settings: Settings, name: str, least: int) -> int:
    """Return a setting that must be a whole number of at least ``least``."""
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"[partition] {name} is {value!r}; it must be a whole number of at least {least}.")
    return value


def choice(settings: Settings, name: str, known: tuple[str, ...]) -> str:
    """Return a setting that must be one of some words."""
    value = settings[name]
    if value not in known:
        near = suggestion(str(value), known)
        raise UserError(f"[partition] {name} is {value!r}{near}; it must be one of: {', '.join(known)}.")
    return str(value)
