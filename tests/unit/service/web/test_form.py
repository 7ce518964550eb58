"""The search form: reading, defaults, refusals, addresses."""

from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from silohash.base.errors import UserError
from silohash.service.web.form import LAST_PAGE, LONGEST_TEXT, PAGE_HITS, SearchForm


def read(query: str) -> SearchForm:
    return SearchForm.read(QueryParams(query))


def test_empty_fields_have_their_defaults() -> None:
    for query in ("", "q=&find=&silo=&label=&within=&page=", "q=+&silo=+"):
        assert read(query) == SearchForm()
    assert not SearchForm().asks
    assert not SearchForm().filtered(32)


def test_a_form_and_its_address() -> None:
    form = read("q=two+parrots&find=image&silo=a&silo=b&silo=a&label=bird&within=12&page=3")
    assert form == SearchForm(text="two parrots", find="image", silos=("a", "b"), label="bird", within_bits=12, page=3)
    assert form.asks
    assert form.filtered(32)
    assert form.address() == "/?q=two+parrots&find=image&silo=a&silo=b&label=bird&within=12"
    assert read(form.address(page=3).partition("?")[2]) == form
    assert form.address(silos=(), label="", within_bits=None, find="item") == "/?q=two+parrots"
    assert form.address(picture="x").startswith("/?picture=x&q=two+parrots&"), "a picture with words"
    assert SearchForm().address() == "/"
    assert not SearchForm(text="a", picture="b", page=4).filtered(32)
    assert SearchForm(within_bits=0).address() == "/?within=0"


def test_the_options_of_a_page() -> None:
    options = SearchForm(text="a", page=3, silos=("a",), label="b", within_bits=12).options(32)
    assert (options.offset, options.k, options.silos, options.label) == (2 * PAGE_HITS, PAGE_HITS + 1, ("a",), "b")
    assert options.radius_bits == 12
    assert SearchForm(within_bits=31).options(32).radius_bits == 31
    assert SearchForm(within_bits=32).options(32).radius_bits is None
    assert SearchForm().options(32).silos is None


def test_a_limit_of_the_code_length_is_not_a_filter() -> None:
    assert SearchForm(within_bits=31).filtered(32)
    assert not SearchForm(within_bits=32).filtered(32)
    assert SearchForm(within_bits=32, label="a").filtered(32)


@pytest.mark.parametrize(
    "query",
    [
        "find=sound",
        "page=0",
        f"page={LAST_PAGE + 1}",
        "page=-1",
        "page=1.5",
        "page=%D9%A3",
        "page=99999999999999999999",
        "within=257",
        "within=x",
        f"q={'a' * (LONGEST_TEXT + 1)}",
        f"label={'a' * 1001}",
    ],
)
def test_values_that_are_refused(query: str) -> None:
    with pytest.raises(UserError):
        read(query)


def test_the_ends_of_the_limits_are_accepted() -> None:
    assert read(f"page={LAST_PAGE}&within=256").page == LAST_PAGE
    assert read("within=0").within_bits == 0
    assert len(read(f"q={'a' * LONGEST_TEXT}").text) == LONGEST_TEXT
