"""What a search finds, and how much of it is returned: on the command line, in the APIs, on the page, and in messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import numpy as np
from pydantic import Field
from pydantic.fields import FieldInfo

from silohash.base.errors import OutOfRange, WrongType
from silohash.base.types import Target
from silohash.search.fields import MOST_ITEMS, Count, Sometimes, Text, Unsent
from silohash.search.filters import MOST_CONDITIONS, MOST_FACETS, Condition, conditions_of, labeled

Progress: TypeAlias = Callable[[Any], None]
"""Function that takes the merged `silohash.search.hits.Hits` so far."""

CANDIDATES = 100
"""Default number of pictures or texts that a silo scores."""

_LOWEST = {"k": 1, "offset": 0, "radius_bits": 0, "candidates": 1, "facet_values": 1}


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchOptions:
    """Set what a search finds, and how much of it is returned.

    Attributes:
        target: What to find: "item" for items by the nearer of their two codes, "image" or "text" for one of them alone.
        k: Number of hits.
        offset: Number of nearest items to skip, for the pages after the first.
        radius_bits: Maximum distance of a hit; None for no limit.
        label: If set, only items with this label are searched.
        where: Conditions on released columns, all of which must be true (`silohash.search.filters`). Texts are parsed.
        facets: Columns whose values are counted among the items that pass the filters; "silo" counts the items of each.
        facet_values: Number of the most frequent values of each, at least 1.
        newest_by: Column of dates by which items are listed if nothing is searched for, newest first, those without a date
            last; None for the order in which they were indexed.
        previews: Whether hits carry the small pictures that silos release.
        asker: Name of the account or program that asks, for the limits and the audit logs of silos; empty if unknown.
        silos: Names of the silos to search; None for all.
        candidates: Number of pictures or texts that a silo of this process finds by their codes and then scores, at least 1.
        deadline_seconds: Time limit for the answers of the silos; None for that of the federation, which has limits for it.
        bar: Lowest probability of a hit that is close; None for the distance that validation found.
        share_words: Whether a text may be sent to silos of other machines that match its words, if the hub allows it, too.
        progress: Gets the merged answers so far whenever a silo has answered, possibly in another thread. Silos that have
            not answered yet are missing.
    """

    target: Target = "item"
    k: Annotated[int, Field(ge=1, lt=MOST_ITEMS, description="Number of hits.")] = 10
    offset: Annotated[Count, Field(description="Number of nearest items to skip, for further pages.")] = 0
    radius_bits: Annotated[Count | None, Field(description="Maximum distance of a hit, in bits.")] = None
    label: Annotated[Text | None, Field(description="Search only items with this label.")] = None
    where: Annotated[
        tuple[Condition, ...],
        Sometimes,
        Field(
            max_length=MOST_CONDITIONS,
            description="Condition on a released column, such as museum=Louvre,Prado, year>=1900 or date<2001-05.",
        ),
    ] = ()
    facets: Annotated[
        tuple[Text, ...],
        Sometimes,
        Field(
            max_length=MOST_FACETS, description="Column whose values are counted: silo, labels or a released column."
        ),
    ] = ()
    facet_values: Annotated[
        int, Unsent, Field(ge=1, description="Number of the most frequent values per counted column.")
    ] = 10
    newest_by: Annotated[
        Text | None,
        Sometimes,
        Field(description="Column of dates that orders items, newest first, if nothing is searched for."),
    ] = None
    previews: bool = True
    asker: Annotated[Text, Sometimes] = ""
    silos: Annotated[tuple[str, ...] | None, Unsent] = None
    candidates: Annotated[int, Unsent] = CANDIDATES
    deadline_seconds: Annotated[float | None, Unsent, Field(description="Time limit for the silos, in seconds.")] = None
    bar: Annotated[
        float | None,
        Unsent,
        Field(
            description="Lowest probability of a hit that counts as close. Default: what the held-back queries showed."
        ),
    ] = None
    progress: Annotated[Progress | None, Unsent] = None
    share_words: Annotated[
        bool, Unsent, Field(description="Let silos that accept it compare the words of the text.")
    ] = False

    def __post_init__(self) -> None:
        """Check the options, for callers that do not check types.

        Raises:
            UserError: If the label is not a text, or a number is not a whole number or out of range.
        """
        if not isinstance(self.label, str | None):
            raise WrongType(f"The label is of type {type(self.label).__name__}. Filter by one label, given as a str.")
        object.__setattr__(self, "where", conditions_of(self.where))
        object.__setattr__(self, "facets", tuple(self.facets))
        if len(self.facets) > MOST_FACETS:
            raise OutOfRange(f"The values of {len(self.facets)} columns are to be counted. Name at most {MOST_FACETS}.")
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if not isinstance(value, int | np.integer | None):
                raise WrongType(f"{name} is {value!r}. Use a whole number.")
            if value is not None and value < lowest:
                raise OutOfRange(f"{name} is {value}. Use at least {lowest}.")
        if self.bar is not None and not (isinstance(self.bar, float | int) and 0 <= self.bar <= 1):
            raise OutOfRange(f"The bar is {self.bar!r}. Use a probability from 0 to 1.")

    def values(self) -> dict[str, Any]:
        """Return the options by their names."""
        return {each.name: getattr(self, each.name) for each in fields(SearchOptions)}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions that items must meet, with the one on their labels."""
        return (*self.where, *labeled(self.label))

    @property
    def reach(self) -> int:
        """The number of nearest items that the page needs: offset + k."""
        return self.offset + self.k


def described(option: str) -> str:
    """Return the description of an option of a search, as the command line and the API show it."""
    marks = get_args(get_type_hints(SearchOptions, include_extras=True)[option])
    return next(mark.description for mark in marks if isinstance(mark, FieldInfo) and mark.description)
