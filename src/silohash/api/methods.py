"""The methods that a run can train with."""

from __future__ import annotations

from typing import Literal

from silohash.base.errors import UnknownName
from silohash.base.registry import suggestion
from silohash.base.types import MethodCard
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS

_FAMILIES = {"local": LOCAL_METHODS, "federated": FEDERATED_METHODS}


def list_methods(kind: Literal["local", "federated"] | None = None) -> list[MethodCard]:
    """Return the cards of the available methods: title, authors, venue, and what a silo sends and keeps.

    Args:
        kind: "local" for the methods that silos train with, "federated" for the methods by which they cooperate; None for
            both.

    Raises:
        UserError: If ``kind`` is unknown, or an installed package adds a method that cannot be described.

    Example:
        >>> [card.key for card in list_methods("federated")][:2]
        ['local', 'separate']
    """
    if kind is not None and kind not in _FAMILIES:
        raise UnknownName(
            f'There is no kind of method "{kind}"{suggestion(kind, _FAMILIES)}; choose one of: {", ".join(_FAMILIES)}.'
        )
    families = [family for name, family in _FAMILIES.items() if kind in {None, name}]
    return [family.card(name) for family in families for name in family.names()]
