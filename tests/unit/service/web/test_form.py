"""The search form: reading, defaults, refusals, addresses."""

from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from silohash.base.errors import UserError
from silohash.search.filters import MOST_CONDITIONS, Condition
from silohash.service.web.form import LAST_PAGE, LONGEST_TEXT, PAGE_HITS, SearchForm


def read(query: str) -> SearchForm:
    return SearchForm.read(QueryParams(query))


def test_empty_fields_have_their_defaults() -> None:
    for query in ("", "q=&find=&silo=&label=&within=&page=", "q=+&silo=+"):
        assert read(query) == SearchForm()
    assert not SearchForm().asks
    assert not SearchForm().filtered


def test_a_form_and_its_address() -> None:
    form = read("q=two+parrots&find=image&silo=a&silo=b&silo=a&label=bird&within=12&page=3")
    assert form == SearchForm(
        text="two parrots", find="image", silos=("a", "b"), labels=("bird",), within_bits=12, page=3
    )
    assert form.asks
    assert form.filtered
    assert form.address() == "/?q=two+parrots&find=image&silo=a&silo=b&label=bird&within=12"
    assert read(form.address(page=3).partition("?")[2]) == form
    assert form.address(silos=(), labels=(), within_bits=None, find="item") == "/?q=two+parrots"
    assert form.address(picture="x").startswith("/?picture=x&q=two+parrots&"), "a picture with words"
    assert SearchForm().address() == "/"
    assert not SearchForm(text="a", picture="b", page=4).filtered
    assert SearchForm(within_bits=0).address() == "/?within=0"


def test_the_options_of_a_page() -> None:
    options = SearchForm(text="a", page=3, silos=("a",), labels=("b",), within_bits=12).options()
    assert (options.offset, options.k, options.silos) == (2 * PAGE_HITS, PAGE_HITS + 1, ("a",))
    assert options.where == (Condition("labels", "=", ("b",)),)
    assert options.radius_bits == 12
    assert SearchForm().options().silos is None


def test_all_labels_or_any_of_them() -> None:
    form = read("label=sea&label=ship&label=sea")
    assert form.options().where == (Condition("labels", "=", ("sea",)), Condition("labels", "=", ("ship",)))
    form = read("label=sea&label=ship&any=1")
    assert form.options().where == (Condition("labels", "=", ("sea", "ship")),)
    assert read(form.address().partition("?")[2]) == form
    assert read("any=1").address() == "/", "there are no labels to choose from"


def test_conditions_have_an_address() -> None:
    form = read('where=museum="Orsay, Paris"&where=year>=1900&column=date&operator=<&value=2001-05')
    assert [*map(str, form.where)] == ['museum="Orsay, Paris"', "year>=1900", "date<2001-05"]
    assert form.options().where == form.where
    assert read(form.address().partition("?")[2]) == form
    assert read("where=year>=1900&column=year&operator=>%3D&value=1900").where == read("where=year>=1900").where
    assert not read("column=date&operator=<&value=").where
    with pytest.raises(UserError):
        read("where=year>=old").options()
    with pytest.raises(UserError):
        read("&".join(f"label={number}" for number in range(MOST_CONDITIONS + 1))).options()


def test_a_filter_alone_lists_items() -> None:
    for query in ("silo=a", "label=a", "where=year>1900", "browse=1"):
        assert read(query).asks
        assert not read(query).searches
        assert read(f"{query}&within=3").options().radius_bits is None, "no distance is measured"
    assert not read("find=image").asks
    assert read("browse=1").address() == "/?browse=1"
    assert read("browse=1&q=a").address() == "/?q=a"
    assert not read("browse=1").filtered


@pytest.mark.parametrize(
    ("column", "value", "query"),
    [("silo", "a", "silo=a"), ("labels", "a", "label=a"), ("museum", "a, b", "where=museum%3D%22a%2C+b%22")],
)
def test_a_value_becomes_a_filter_and_is_taken_back(column: str, value: str, query: str) -> None:
    assert read("q=x&page=2").toggled(column, value) == (f"/?q=x&{query}", False)
    assert read(f"q=x&{query}").toggled(column, value) == ("/?q=x", True)
    assert read(query).toggled(column, value) == ("/?browse=1", True), "without a filter, all items are listed"


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
