"""The types of the options of a search, with what the command line and the API say of them, and their checks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field

from silohash.base.errors import OutOfRange, WrongType
from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.search.fields import MOST_ITEMS, Count, Sometimes, Text, Unsent
from silohash.search.filters import MOST_CONDITIONS, MOST_FACETS, Condition

Progress: TypeAlias = Callable[[Any], None]
"""Function that takes the merged `silohash.search.hits.Hits` so far."""

CANDIDATES = 100
"""Default number of pictures or texts that a silo scores."""

_LOWEST = {"k": 1, "offset": 0, "radius_bits": 0, "candidates": 1, "facet_values": 1}

ABOUT: Mapping[str, str] = read_toml(Path(__file__).with_name("options.toml"), remedy=REINSTALL, missing=REINSTALL)
"""The longer descriptions of options, by their names."""

K: TypeAlias = Annotated[int, Field(ge=1, lt=MOST_ITEMS, description="Number of hits.")]
Offset: TypeAlias = Annotated[Count, Field(description="Number of nearest items to skip, for further pages.")]
RadiusBits: TypeAlias = Annotated[Count | None, Field(description="Maximum distance of a hit, in bits.")]
Label: TypeAlias = Annotated[Text | None, Field(description="Search only items with this label.")]
Where: TypeAlias = Annotated[
    tuple[Condition, ...], Sometimes, Field(max_length=MOST_CONDITIONS, description=ABOUT["where"])
]
Facets: TypeAlias = Annotated[tuple[Text, ...], Sometimes, Field(max_length=MOST_FACETS, description=ABOUT["facets"])]
FacetValues: TypeAlias = Annotated[int, Unsent, Field(ge=1, description=ABOUT["facet_values"])]
NewestBy: TypeAlias = Annotated[Text | None, Sometimes, Field(description=ABOUT["newest_by"])]
DeadlineSeconds: TypeAlias = Annotated[float | None, Unsent, Field(description="Time limit for the silos, in seconds.")]
Bar: TypeAlias = Annotated[float | None, Unsent, Field(description=ABOUT["bar"])]
ShareWords: TypeAlias = Annotated[bool, Unsent, Field(description=ABOUT["share_words"])]


def check_options(values: Mapping[str, Any]) -> None:
    """Check the options of a search, for callers that do not check types.

    Raises:
        UserError: If the label is not a text, or a number is not a whole number or out of range.
    """
    label, facets, bar = values["label"], values["facets"], values["bar"]
    if not isinstance(label, str | None):
        raise WrongType(f"The label is of type {type(label).__name__}. Filter by one label, given as a str.")
    if len(facets) > MOST_FACETS:
        raise OutOfRange(f"The values of {len(facets)} columns are to be counted. Name at most {MOST_FACETS}.")
    for name, lowest in _LOWEST.items():
        value = values[name]
        if not isinstance(value, int | np.integer | None):
            raise WrongType(f"{name} is {value!r}. Use a whole number.")
        if value is not None and value < lowest:
            raise OutOfRange(f"{name} is {value}. Use at least {lowest}.")
    if bar is not None and not (isinstance(bar, float | int) and 0 <= bar <= 1):
        raise OutOfRange(f"The bar is {bar!r}. Use a probability from 0 to 1.")
