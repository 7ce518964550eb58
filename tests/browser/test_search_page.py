"""The search page in a real browser: words, pictures, drawings, pages, silent silos, small windows, keyboard, no script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from silohash.base.types import Modality
from silohash.service.web.app import create_app
from silohash.service.web.form import PAGE_HITS
from tests.browsers import CONTRAST, PATIENCE_MILLISECONDS, give_file, opening_pages, started_browser, until
from tests.served import MadeUpBackend, drawn, png, running

ITEM = "/item?silo=museum&id=item-1&results=q%3Dred%26at%3D2"
PHONE = {"width": 320, "height": 640}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started_browser()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[MadeUpBackend, str]]:
    """A backend, and the address of the page over it."""
    backend = MadeUpBackend(silos=("archive", "museum", "town library"), archive="glyphs")
    with running(create_app(backend)) as address:
        yield backend, address


@pytest.fixture
def opened(browser: Any, served: tuple[MadeUpBackend, str]) -> Iterator[Callable[..., Any]]:
    backend, address = served
    backend.missing = {}
    yield from opening_pages(browser, address)


def captions(page: Any) -> list[str]:
    return list(page.locator("#results .card .title").all_text_contents())


def first_page() -> list[str]:
    return [f"red shape {number}" for number in range(PAGE_HITS)]


def test_results_follow_the_words_and_have_an_address(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page = opened()
    assert page.locator("a.suggestion").all_text_contents() == ["red", "shape", "red shape"]
    until(page, "document.activeElement.id === 'q'")
    page.keyboard.type("red")
    page.wait_for_url("**/?q=red")
    page.wait_for_selector("#results .summary")
    assert captions(page) == first_page()
    assert page.locator("#announce").text_content() == "The 24 nearest · all 3 silos answered"
    page.keyboard.type(" shape")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=red+shape")
    page.check("text=Pictures", force=True)
    page.wait_for_url("**/?q=red+shape&find=image")
    page.click("summary:has-text('Labels')")
    page.check("input[name=label][value=red]")
    page.wait_for_url("**/?q=red+shape&find=image&label=red")
    page.click("summary:has-text('More') >> nth=0")
    page.fill("input[name=within]", "5")
    page.keyboard.press("Enter")
    page.wait_for_url("**&within=5")
    until(page, "document.querySelectorAll('#results .card').length === 12")
    sent = served[0].requests[-1]
    assert (sent.value, sent.target, sent.radius_bits) == ("red shape", "image", 5)
    assert [*map(str, sent.where)] == ["labels=red"]
    page.reload()
    assert len(captions(page)) == 12
    assert page.locator("input[name=within]").input_value() == "5"
    page.click("text=Clear filters")
    page.wait_for_url("**/?q=red+shape")
    assert captions(page) == first_page()


def test_silos_are_chosen_in_a_menu(opened: Callable[..., Any], served: tuple[MadeUpBackend, str]) -> None:
    page = opened("/?q=red")
    page.click("summary:has-text('Silos')")
    page.check("input[value='museum']")
    page.wait_for_url("**/?q=red&silo=museum")
    assert served[0].requests[-1].silos == ("museum",)
    until(page, "document.getElementById('headline').textContent.includes('the silo answered')")
    page.keyboard.press("Escape")
    assert not page.locator("details.menu[open]").count()


def test_counts_are_links_that_filter_and_back_undoes_them(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page = opened("/?q=red")
    places = (
        "['#search', '.segments', '#clear', '#results', '.card'].map(q => document.querySelector(q)"
        ".getBoundingClientRect()).map(b => [b.x, b.y])"
    )
    before = page.evaluate(places)
    page.click(".facets a:has-text('Louvre')")
    page.wait_for_url("**/?q=red&where=museum%3DLouvre")
    until(page, "document.activeElement.dataset.filter === 'museum=Louvre'")
    assert page.locator(".facets a[aria-current]").count() == 1
    assert page.locator("#more-count").text_content() == "1"
    page.click(".card .tags a:has-text('shape') >> nth=0")
    page.wait_for_url("**/?q=red&label=shape&where=museum%3DLouvre")
    assert page.locator("input[name=label][value=shape]").is_checked()
    assert [*map(str, served[0].requests[-1].where)] == ["museum=Louvre", "labels=shape"]
    page.click(".card a.silo:has-text('museum') >> nth=0")
    page.wait_for_url("**/?q=red&silo=museum&label=shape&where=museum%3DLouvre")
    page.go_back()
    page.go_back()
    page.wait_for_url("**/?q=red&where=museum%3DLouvre")
    until(page, "!document.querySelector('input[name=label][value=shape]').checked")
    page.click("text=Clear filters")
    page.wait_for_url("**/?q=red")
    assert page.evaluate(places) == before, "nothing moves"


def test_items_are_browsed_without_a_query(opened: Callable[..., Any], served: tuple[MadeUpBackend, str]) -> None:
    page = opened()
    page.click("text=browse all of them")
    page.wait_for_url("**/?browse=1")
    assert "of 60, newest first" in page.locator("#headline").text_content()
    page.click("summary:has-text('More') >> nth=0")
    sent = len(served[0].requests)
    page.select_option("[name=column]", "year")
    page.select_option("[name=operator]", ">=")
    page.fill("[name=value]", "1900")
    page.keyboard.press("Enter")
    page.wait_for_selector("input[name=where]", state="attached")
    assert [*map(str, served[0].requests[-1].where)] == ["year>=1900"]
    assert len(served[0].requests) <= sent + 4, "at most one per action"
    page.click("a[rel=next]")
    page.wait_for_url("**/?where=year%3E%3D1900&page=2")
    assert served[0].requests[-1].offset == PAGE_HITS
    page.click("summary:has-text('More') >> nth=0")
    page.uncheck("input[name=where]")
    page.wait_for_url("**/?browse=1")
    page.click("#q")
    page.keyboard.type("red")
    page.wait_for_url("**/?q=red")
    assert page.locator("input[name=browse]").count() == 0


@pytest.mark.parametrize("inputs", [("text",), ()])
def test_what_the_model_does_not_take_is_not_offered(browser: Any, inputs: tuple[Modality, ...]) -> None:
    backend, faults = MadeUpBackend(), []
    backend.inputs = inputs
    with running(create_app(backend)) as address, browser.new_context() as context:
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address)
        assert not page.locator("#draw-open, #file-open, #upload").count()
        for way in ("paste", "drop"):
            give_file(page, way, png())
        if "text" in inputs:
            page.keyboard.type("red")
            page.wait_for_selector("#results .summary")
            assert captions(page) == first_page()
        else:
            assert page.locator("#q").is_disabled()
            page.click("#results .card a >> nth=0")
            page.wait_for_url("**/item?*")
            assert not page.locator(".card").count(), "the code of the item is only sent if asked for"
            page.click("a[href*='by=']")
            page.wait_for_url("**by=*")
            page.wait_for_selector("#results .summary")
            assert page.locator(".card").count()
    assert all(isinstance(getattr(request, "value", ""), str) for request in backend.requests)
    assert faults == []


@pytest.mark.parametrize("way", ["choose", "paste", "drop"])
def test_a_picture_is_chosen_pasted_or_dropped(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str], way: str
) -> None:
    page, picture = opened("/?find=image"), drawn("blue", "frame")
    give_file(page, way, png(picture))
    page.wait_for_selector(".chip:not(.sending) img")
    assert np.array_equal(np.asarray(served[0].requests[-1].value), np.asarray(picture))
    assert served[0].requests[-1].target == "image", "the filters are kept"
    assert page.locator("#q").input_value() == ""
    until(page, "document.querySelector('.chip img').naturalWidth > 0")
    page.click("a[rel=next]")
    page.wait_for_url("**&page=2")
    assert served[0].requests[-1].offset == PAGE_HITS
    page.click("[aria-label='Remove the picture']")
    page.wait_for_url("**/?find=image")
    assert page.locator(".chip").count() == 0


def test_a_picture_that_is_refused_gives_the_reason(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red")
    page.route("**/picture", lambda route: route.fulfill(status=200, content_type="text/html", body=REFUSAL))
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    page.wait_for_selector("[role=alert]")
    assert "Send a PNG" in page.locator("[role=alert]").text_content()
    assert page.locator("#q").input_value() == "red"
    assert captions(page) == first_page()
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    page.wait_for_timeout(200)
    until(page, "!document.querySelector('#results[aria-busy]')")
    assert page.locator("[role=alert]").count() == page.locator("#headline").count() == 1
    page.fill("#q", "blue")
    page.wait_for_url("**/?q=blue")
    assert page.locator("[role=alert]").count() == 0


REFUSAL = '<div class="notice"><h1>That did not work</h1><p>Send a PNG file.</p></div>'


def test_a_drawing_is_searched_after_each_stroke(opened: Callable[..., Any], served: tuple[MadeUpBackend, str]) -> None:
    page = opened()
    page.click("#draw-open")
    box = page.locator("#canvas").bounding_box()
    assert box is not None

    def stroke(*points: tuple[float, float]) -> None:
        for number, (x, y) in enumerate(points):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
            if number == 0:
                page.mouse.down()
        before = page.url
        page.mouse.up()
        page.wait_for_url(lambda url: url != before)

    stroke((0.2, 0.3), (0.4, 0.3))
    stroke((0.3, 0.2), (0.3, 0.4))
    pixels = np.asarray(served[0].requests[-1].value)
    assert pixels.shape == (32, 32)
    ink = pixels < 128
    assert ink[2:30, 15:17].all(), "a small plus sign is as large and in the middle as the characters of the archive"
    assert ink[15:17, 2:30].all()
    assert not ink[:12, :12].any()
    assert 0.1 < ink.mean() < 0.3
    assert abs(page.locator("#canvas").bounding_box()["y"] - box["y"]) < 1, "results do not move the surface"
    before = page.url
    page.click("#undo")
    page.wait_for_url(lambda url: url != before)
    assert (np.asarray(served[0].requests[-1].value) < 128)[:, 15].sum() < 8, "one stroke is left"
    page.keyboard.press("Escape")
    assert page.locator("#draw").is_hidden()


def test_pages_are_stable_and_the_focus_follows(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red")
    first = captions(page)
    page.click("a[rel=next]")
    page.wait_for_url("**/?q=red&page=2")
    until(page, "document.activeElement.id === 'results'")
    second = captions(page)
    assert first == first_page()
    assert not {*first} & {*second}
    page.go_back()
    until(page, "document.querySelector('#results .title').textContent === 'red shape 0'")
    assert captions(page) == first
    page.go_forward()
    until(page, "document.querySelector('#results .title').textContent !== 'red shape 0'")
    assert captions(page) == second


def typed(page: Any, text: str, address: str) -> None:
    """Type a text into the search box, and wait for its results."""
    page.keyboard.type(text)
    page.wait_for_url(address)


def test_back_returns_to_finished_searches(opened: Callable[..., Any]) -> None:
    page = opened()
    until(page, "document.activeElement.id === 'q'")
    length = page.evaluate("history.length")
    typed(page, "red", "**/?q=red")
    typed(page, " sha", "**/?q=red+sha")
    assert page.evaluate("history.length") == length + 1, "one entry for all that is typed"
    page.keyboard.press("Enter")
    typed(page, "pe", "**/?q=red+shape")
    typed(page, " x", "**/?q=red+shape+x")
    page.check("text=Pictures", force=True)
    page.wait_for_url("**/?q=red+shape+x&find=image")
    assert page.evaluate("history.length") == length + 3, "a filter is an entry of its own"
    page.go_back()
    page.wait_for_url("**/?q=red+shape+x")
    until(page, "document.querySelector('[name=find]:checked').value === 'item'")
    page.go_back()
    page.wait_for_url("**/?q=red+sha")
    until(page, "document.getElementById('q').value === 'red sha'")
    page.click("#q")
    page.keyboard.press("End")
    typed(page, " y", "**/?q=red+sha+y")
    page.go_back()
    page.wait_for_url("**/?q=red+sha")
    page.go_back()
    page.wait_for_url(lambda address: address.endswith("/"))
    assert page.locator("#q").input_value() == ""


def test_back_returns_to_the_picture_and_the_drawing(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red")
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": png()})
    page.wait_for_url("**/?picture=*&q=red")
    picture = page.url
    page.fill("#q", "blue")
    page.wait_for_url("**/?picture=*&q=blue")
    words = page.url
    page.click("#draw-open")
    addresses = [page.url]
    for place in (50, 90):
        page.click("#canvas", position={"x": place, "y": place})
        page.wait_for_url(lambda address: "picture=" in address and address not in addresses)
        addresses.append(page.url)
    page.go_back()
    page.wait_for_url(words)
    page.go_back()
    page.wait_for_url(picture)
    page.wait_for_selector(".chip img")
    page.go_back()
    page.wait_for_url("**/?q=red")
    until(page, "document.getElementById('q').value === 'red' && !document.querySelector('.chip img')")
    assert page.locator(".card").count() > 0


def test_escape_closes_the_drawing_from_everywhere(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red")
    page.focus("#draw-open")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.id === 'canvas'")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "undo"
    page.click("summary:has-text('Silos')")
    page.keyboard.press("Escape")
    assert not page.locator("details.menu[open]").count()
    assert page.locator("#draw").is_visible(), "one thing at a time"
    page.click("#q")
    page.keyboard.press("Escape")
    assert page.locator("#draw").is_hidden()
    assert page.evaluate("document.activeElement.id") == "draw-open"
    assert page.locator("#q").input_value() == "red"


def test_a_slow_search_is_told(opened: Callable[..., Any]) -> None:
    page, held = opened("/?q=red"), []
    page.route("**/?q=blue*", lambda route: held.append(route))
    page.fill("#q", "blue")
    until(page, "document.getElementById('results').ariaBusy === 'true'")
    until(page, "document.getElementById('searching').textContent === 'Searching …'")
    assert page.get_by_role("status").filter(has_text="Searching").is_visible()
    assert captions(page) == first_page()
    page.fill("#q", "blue shape")
    while len(held) < 2:
        page.wait_for_timeout(50)
    assert page.locator("#searching").text_content() == "Searching …", "the next search is waited for too"
    held[1].continue_()
    page.wait_for_url("**/?q=blue+shape")
    until(page, "document.getElementById('searching').textContent === ''")
    assert page.locator("#results[aria-busy]").count() == 0


def test_a_text_that_is_cut_is_told(opened: Callable[..., Any], served: tuple[MadeUpBackend, str]) -> None:
    page = opened()
    page.click("#q")
    page.keyboard.insert_text("a" * 1_999)
    assert page.locator("#limit").text_content() == ""
    page.keyboard.insert_text("b" * 500)
    assert page.locator("#q").input_value() == "a" * 1_999 + "b"
    assert page.locator("#limit").text_content() == "A search takes at most 2,000 characters. Longer text is cut."
    page.wait_for_url("**b")
    page.fill("#q", "red")
    page.wait_for_url("**/?q=red")
    assert page.locator("#limit").text_content() == ""


def test_an_empty_answer_of_a_chosen_silo_leads_to_all_silos(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page = opened()
    served[0].missing = {"museum": "It is off."}
    page.goto(page.url + "?q=red&silo=museum")
    page.click("text=Search all silos")
    page.wait_for_url("**/?q=red")
    assert captions(page) == first_page()
    assert not page.locator("input[value=museum]").is_checked()


def test_a_silent_silo_is_named_with_its_reason(opened: Callable[..., Any], served: tuple[MadeUpBackend, str]) -> None:
    page = opened()
    served[0].missing = {"museum": "It did not answer within 10 seconds."}
    page.fill("#q", "red")
    page.locator("#headline", has_text="2 of 3 silos answered").wait_for()
    reason = page.locator(".warning li")
    assert reason.is_hidden()
    page.click(".warning summary")
    reason.wait_for(state="visible")
    assert "within 10 seconds" in reason.text_content()


def test_an_item_leads_to_the_next_ones_and_to_items_like_it(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page = opened("/?q=red&label=red")
    page.click(".card > a >> nth=3")
    page.wait_for_url("**/item?**")
    assert page.locator("h1").text_content() == "red shape 3"
    assert page.locator(".item figure img").bounding_box()["width"] > 200, "a preview is enlarged"
    for step, number in (("ArrowRight", 4), ("ArrowLeft", 3), ("ArrowLeft", 2)):
        with page.expect_navigation():
            page.keyboard.press(step)
        assert page.locator("h1").text_content() == f"red shape {number}"
    with page.expect_navigation():
        page.click("a[rel=next]")
    with page.expect_navigation():
        page.click("text=by its text")
    _, name, _, by = served[0].requests[-1]
    assert (name, by) == ("item-3", "text")
    assert page.locator(".chip .liked").text_content() == "Items like red shape 3"
    assert page.locator("#results .card").count() == PAGE_HITS
    page.check("text=Pictures", force=True)
    page.wait_for_url("**/?like=item-3&of=*&by=text&find=image")
    page.click(".facets a:has-text('Louvre')")
    page.wait_for_url("**&where=museum%3DLouvre")
    page.click("a[rel=next]")
    page.wait_for_url("**&page=2")
    _, name, options, _ = served[0].requests[-1]
    assert (name, options.target, options.offset) == ("item-3", "image", PAGE_HITS)
    page.fill("#q", "blue")
    page.wait_for_url("**/?q=blue&find=image&where=museum%3DLouvre")
    assert page.locator(".chip").count() == 0


@pytest.mark.parametrize(
    "path", ["/", "/?q=red&label=red", "/?browse=1", "/?like=item-3&of=museum&by=text", ITEM, "/federation"]
)
@pytest.mark.parametrize("window", [PHONE, {"width": 1280, "height": 800}])
def test_nothing_is_wider_than_the_window(opened: Callable[..., Any], path: str, window: dict[str, int]) -> None:
    page = opened(path, viewport=window)
    assert page.evaluate("document.documentElement.scrollWidth") <= window["width"]
    small = page.evaluate(
        "[...document.querySelectorAll('button,.tool,.top a,.paging a')].map(e => e.getBoundingClientRect())"
        ".filter(b => b.width && Math.min(b.width, b.height) < 36).length"
    )
    assert small == 0, "a finger hits every button"


def test_drawing_on_a_phone(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red", viewport=PHONE, has_touch=True)
    page.tap("#draw-open")
    box = page.locator("#canvas").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    with page.expect_response("**/picture"):
        page.touchscreen.tap(box["x"] + 50, box["y"] + 50)
    page.wait_for_selector(".chip:not(.sending) img", state="attached")
    assert page.locator("#canvas").bounding_box() == box, "the picture of the search does not move the surface"


def test_everything_can_be_done_with_the_keyboard(opened: Callable[..., Any]) -> None:
    page = opened("/federation")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.goto(page.url.replace("/federation", "/"))
    until(page, "document.activeElement.id === 'q'")
    page.keyboard.type("red")
    page.wait_for_url("**/?q=red")
    page.evaluate("document.getElementById('results').setAttribute('data-former', '')")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#results:not([data-former]) .card') !== null")
    seen = []
    for _ in range(15):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("document.activeElement.id || document.activeElement.name || document.activeElement.tagName")
        )
        if page.evaluate("!!document.activeElement.closest('.card')"):
            break
    assert seen[:4] == ["no-words", "draw-open", "file-open", "BUTTON"]
    assert "find" in seen
    assert seen.count("SUMMARY") >= 3
    page.keyboard.press("Enter")
    page.wait_for_url("**/item?**")
    assert page.locator("h1").text_content() == "red shape 0"


def test_without_script_words_pictures_filters_and_pages_work(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page = opened("/", java_script_enabled=False)
    assert page.locator("#draw-open").is_hidden()
    page.fill("#q", "red")
    page.check("text=Texts", force=True)
    with page.expect_navigation():
        page.click("button:has-text('Search') >> nth=0")
    assert captions(page) == first_page()
    assert served[0].requests[-1].target == "text"
    with page.expect_navigation():
        page.click("a[rel=next]")
    assert "page=2" in page.url
    with page.expect_navigation():
        page.click("[aria-label='Remove the words']")
    page.click("summary:has-text('Labels')")
    page.check("[name=label][value=shape]")
    page.click("summary:has-text('More') >> nth=0")
    page.select_option("[name=column]", "museum")
    page.fill("[name=value]", "Louvre, Prado")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert [*map(str, served[0].requests[-1].where)] == ["museum=Louvre,Prado", "labels=shape"]
    with page.expect_navigation():
        page.click(".facets a[aria-current]")
    assert [*map(str, served[0].requests[-1].where)] == ["museum=Louvre,Prado"]
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": png(drawn("green", "square"))})
    with page.expect_navigation():
        page.click("#upload button")
    page.locator(".chip img").wait_for(state="visible")
    assert captions(page) == first_page()
    assert np.array_equal(np.asarray(served[0].requests[-1].value), np.asarray(drawn("green", "square")))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path", ["/", "/?q=red&label=red", "/?browse=1", "/?like=item-3&of=museum&by=text", ITEM, "/federation"]
)
def test_texts_are_legible_in_light_and_dark(opened: Callable[..., Any], path: str, scheme: str) -> None:
    page = opened(path, color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize(("width", "height", "fit"), [(300, 200, "cover"), (200, 399, "cover"), (401, 200, "contain")])
def test_photographs_fill_their_cards_unless_they_are_very_wide_or_tall(
    opened: Callable[..., Any], width: int, height: int, fit: str
) -> None:
    page = opened("/")
    body = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"/>'
    page.route("**/shaped.svg", lambda route: route.fulfill(content_type="image/svg+xml", body=body))
    page.evaluate("document.querySelector('.card img').src = '/shaped.svg'")
    until(page, f"document.querySelector('.card img').naturalWidth === {width}")
    until(page, f"getComputedStyle(document.querySelector('.card img')).objectFit === '{fit}'")
    assert page.locator(".card img.whole").count() == (fit == "contain")


def test_a_service_that_is_gone_is_told(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red")
    page.route("**/*", lambda route: route.fulfill(status=200, content_type="text/html", body="<p>proxy</p>"))
    page.fill("#q", "blue")
    page.wait_for_selector("[role=alert]")
    assert "did not answer as expected" in page.locator("[role=alert]").text_content()
