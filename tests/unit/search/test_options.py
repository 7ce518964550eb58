"""What a search finds: conditions, counts, and what is refused."""

from __future__ import annotations

import pytest

from silohash.base.errors import OutOfRange, WrongForm
from silohash.search.filters import MOST_FACETS, Condition
from silohash.search.hits import SearchOptions


def test_conditions_are_parsed_and_include_the_label():
    options = SearchOptions(where=["year>=1900"], label="cat")
    assert options.where == (Condition("year", ">=", ("1900",)),)
    assert options.conditions == (*options.where, Condition("labels", "=", ("cat",)))
    assert SearchOptions().conditions == ()


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"where": ["year"]}, WrongForm),
        ({"facets": ("a",) * (MOST_FACETS + 1)}, OutOfRange),
        ({"facet_values": 0}, OutOfRange),
    ],
)
def test_what_cannot_be_used_is_refused(values, error):
    with pytest.raises(error):
        SearchOptions(**values)
