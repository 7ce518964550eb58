"""What a silo shows of itself in a search: how many items, how far away, and which words and pictures of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from silohash.registry import suggestion
from silohash.types import MODALITIES, Modality, UserError

FIELDS = ("caption", "labels", "preview")
"""What an item's payload can hold beside its id; a policy releases any part of it."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The limits that a silo sets; they hold in the silo's own node, before anything leaves it.

    Attributes:
        max_results: most items shown for one question, over all its pages.
        max_distance_bits: items farther away are not shown; None for no limit.
        fields: the payload's fields that are shown, a part of `FIELDS`; empty shows ids and distances alone.
        modalities: the sides that may be searched.
    """

    max_results: int = 1000
    max_distance_bits: int | None = None
    fields: tuple[str, ...] = FIELDS
    modalities: tuple[Modality, ...] = MODALITIES

    def __post_init__(self) -> None:
        """Checks the limits.

        Raises:
            UserError: if a number is out of range or a name is unknown.
        """
        if self.max_results < 1:
            raise UserError(f"A policy's max_results is {self.max_results}; it needs at least 1.")
        if self.max_distance_bits is not None and self.max_distance_bits < 0:
            raise UserError(f"A policy's max_distance_bits is {self.max_distance_bits}; it needs 0 or more.")
        _check_names("field", self.fields, FIELDS)
        _check_names("modality", self.modalities, MODALITIES)

    def released(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the part of an item's payload that may be shown.

        Example:
            >>> Policy(fields=("caption",)).released({"caption": "two parrots", "preview": "..."})
            {'caption': 'two parrots'}
        """
        return {name: value for name, value in payload.items() if name in self.fields}

    def radius_bits(self, asked_bits: int | None) -> int | None:
        """Returns the radius that holds when a question asks for one: the smaller of the two, None if none is set."""
        limits = [limit for limit in (asked_bits, self.max_distance_bits) if limit is not None]
        return min(limits, default=None)


def _check_names(kind: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise UserError(
                f'A policy names the {kind} "{name}"{suggestion(name, known)}; it can name: {", ".join(known)}.'
            )
