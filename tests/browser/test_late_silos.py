"""The page while silos are late, in a real browser: results so far, and further ones in place or by a button."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from silohash.service.web.app import create_app
from silohash.service.web.arriving import event
from silohash.service.web.form import PAGE_HITS
from tests.browsers import give_file, opening_pages, started_browser, until
from tests.served import LateBackend, png, running

PLACES = (
    "[...document.querySelectorAll('#results .grid > .card, #late')].map((e) => e.getBoundingClientRect())"
    ".map((b) => [b.x, b.y])"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started_browser()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[LateBackend, str]]:
    backend = LateBackend()
    with running(create_app(backend)) as address:
        yield backend, address


@pytest.fixture
def late(served: tuple[LateBackend, str]) -> Iterator[Callable[..., list[threading.Event]]]:
    """Let silos be late, in their order, and return what lets each answer."""
    backend, _ = served

    def set_late(*silos: str) -> list[threading.Event]:
        backend.late = {silo: threading.Event() for silo in silos}
        return list(backend.late.values())

    yield set_late
    for each in backend.late.values():
        each.set()
    backend.late, backend.fails = {}, False


@pytest.fixture
def opened(browser: Any, served: tuple[LateBackend, str]) -> Iterator[Callable[..., Any]]:
    yield from opening_pages(browser, served[1])


def searched(page: Any, text: str = "red") -> None:
    """Search for words, and wait for the first results."""
    page.fill("#q", text)
    page.locator("#late").wait_for()


def silos(page: Any) -> set[str]:
    return {*page.locator("#results .card a.silo").evaluate_all("links => links.map(each => each.title)")}


def test_further_results_come_in_below_those_that_are_read(
    opened: Callable[..., Any], late: Callable[..., list[threading.Event]]
) -> None:
    page, [library, museum] = opened(), late("town library", "museum")
    searched(page)
    assert page.locator("#late p").text_content() == "Waiting for town library, museum …"
    assert page.locator("#headline").text_content() == "The 20 nearest · 1 of 3 silos have answered so far"
    assert page.url.endswith("/?q=red"), "the results so far have their address"
    assert not page.locator("#results[aria-busy]").count()
    assert silos(page) == {"archive"}
    page.locator(".pick input >> nth=1").check(force=True)
    page.focus("#q")
    places = page.evaluate(PLACES)
    library.set()
    until(page, f"document.querySelectorAll('#results .card').length === {PAGE_HITS}")
    assert page.evaluate(PLACES)[: len(places)] == places, "nothing moves"
    assert page.locator("#announce").text_content() == "The 24 nearest · 2 of 3 silos have answered so far"
    assert page.locator("#late p").text_content() == "Waiting for museum …"
    assert page.locator(".pick input >> nth=1").is_checked()
    assert page.locator("#picked").text_content() == "1 selected"
    museum.set()
    page.click("#late button")
    until(page, "!document.getElementById('late')")
    assert silos(page) == {"archive", "museum"}


def test_results_that_would_move_others_are_offered(
    opened: Callable[..., Any], late: Callable[..., list[threading.Event]]
) -> None:
    page, [museum] = opened(), late("museum")
    searched(page)
    page.mouse.wheel(0, 600)
    until(page, "scrollY > 0")
    page.locator(".pick input >> nth=2").check(force=True)
    before, top = page.locator("#results .grid").inner_html(), page.evaluate("scrollY")
    museum.set()
    button = page.locator("#late button")
    button.wait_for()
    assert page.locator("#late p").text_content() == "4 new results have come in."
    assert page.locator("#announce").text_content() == "4 new results have come in."
    assert page.locator("#results .grid").inner_html() == before
    assert page.evaluate("scrollY") == top
    box = button.bounding_box()
    assert box["y"] >= 0, "the line stays in view"
    assert box["height"] >= 44
    button.click()
    until(page, "document.activeElement.id === 'results'")
    assert page.locator("#headline").text_content() == "The 24 nearest · all 3 silos answered"
    assert silos(page) == {"archive", "museum"}
    assert page.locator(".pick input >> nth=2").is_checked(), "what is selected remains so"


def test_a_silo_that_does_not_answer_at_last_is_named_without_moving_anything(
    opened: Callable[..., Any], served: tuple[LateBackend, str], late: Callable[..., list[threading.Event]]
) -> None:
    page, [museum] = opened(), late("museum")
    served[0].fails = True
    searched(page)
    places = page.evaluate(PLACES)
    museum.set()
    page.locator("#late .warning").wait_for()
    assert "1 silo did not answer: museum" in page.locator("#late summary").text_content()
    assert page.evaluate(PLACES) == places
    assert page.locator("#headline").text_content() == "The 24 nearest · 2 of 3 silos answered"


def test_a_further_search_ends_the_one_that_waits(
    opened: Callable[..., Any], served: tuple[LateBackend, str], late: Callable[..., list[threading.Event]]
) -> None:
    page, [museum] = opened(), late("museum")
    searched(page)
    served[0].late = {}
    page.fill("#q", "blue")
    page.wait_for_url("**/?q=blue")
    page.locator("#headline", has_text="all 3 silos answered").wait_for()
    museum.set()
    page.wait_for_timeout(300)
    assert not page.locator("#late").count()
    assert page.url.endswith("/?q=blue")


def test_pictures_are_searched_for_while_silos_are_late(
    opened: Callable[..., Any], late: Callable[..., list[threading.Event]]
) -> None:
    page, [library] = opened(), late("town library")
    give_file(page, "choose", png())
    page.wait_for_url("**/?picture=*")
    page.locator("#late").wait_for()
    assert page.locator(".chip:not(.sending) img").count() == 1
    library.set()
    until(page, "document.querySelector('#late p').textContent === 'All silos have answered.'")
    assert page.locator("#headline").text_content() == "The 24 nearest · all 3 silos answered"


def test_an_answer_that_breaks_off_is_told(
    opened: Callable[..., Any], late: Callable[..., list[threading.Event]]
) -> None:
    page, _ = opened(), late("museum")
    searched(page)
    body = event("partial", page.content())
    page.route("**/?q=blue", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.fill("#q", "blue")
    page.locator("#late", has_text="The connection ended before all silos had answered.").wait_for()
    assert silos(page) == {"archive", "town library"}


def test_without_script_the_whole_result_is_waited_for(
    opened: Callable[..., Any], late: Callable[..., list[threading.Event]]
) -> None:
    [museum] = late("museum")
    page = opened("/", java_script_enabled=False)
    page.fill("#q", "red")
    threading.Timer(0.5, museum.set).start()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert not page.locator("#late").count()
    assert silos(page) == {"archive", "museum"}
