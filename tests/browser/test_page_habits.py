"""What people expect of the search page in a real browser: uploads that can be watched and canceled, pictures with words."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silohash.search.composed import Composed
from silohash.service.web import uploads
from silohash.service.web.app import create_app
from silohash.service.web.form import PAGE_HITS
from tests.browsers import new_page, opening_pages, started_browser, until
from tests.served import MadeUpBackend, drawn, png, running

PHONE = {"width": 320, "height": 640}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started_browser()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[MadeUpBackend, str]]:
    """A backend, and the address of the page over it."""
    backend = MadeUpBackend(silos=("archive", "museum", "town library"))
    with running(create_app(backend)) as address:
        yield backend, address


@pytest.fixture
def opened(browser: Any, served: tuple[MadeUpBackend, str]) -> Iterator[Callable[..., Any]]:
    backend, address = served
    backend.captions = {}
    yield from opening_pages(browser, address, excused=("413",))


def choose(page: Any, content: bytes, name: str = "a.png") -> None:
    """Choose a picture in the file dialog."""
    kind = "image/jpeg" if name.endswith("jpg") else "image/png"
    page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": content})


def photograph(width: int, height: int) -> bytes:
    """Return a JPEG file whose left half is red, and whose upright form is turned by its EXIF data."""
    pixels = np.full((height, width, 3), 200, np.uint8)
    pixels[:, : width // 2] = (200, 30, 30)
    exif, stream = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6  # to be shown turned to the right
    Image.fromarray(pixels).save(stream, "JPEG", exif=exif)
    return stream.getvalue()


def test_a_large_picture_is_scaled_down_before_it_is_sent(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page = opened()
    choose(page, photograph(3000, 1500), "a.jpg")
    page.wait_for_url("**/?picture=*")
    value = served[0].requests[-1].value
    assert value.size == (512, 1024), "it is upright"
    assert value.getpixel((256, 100))[0] > 150
    assert value.getpixel((256, 100))[1] < 80, "red above"


def test_what_is_transparent_stays_transparent(opened: Callable[..., Any], served: tuple[MadeUpBackend, str]) -> None:
    page = opened()
    choose(page, png(Image.new("RGBA", (1500, 1500), (0, 0, 0, 0))))
    page.wait_for_url("**/?picture=*")
    assert served[0].requests[-1].value.getpixel((9, 9)) == (255, 255, 255), "white, not black"


def test_a_picture_that_the_browser_cannot_decode_is_sent_as_it_is(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page, stream = opened(), io.BytesIO()
    Image.new("RGB", (1500, 40), "red").save(stream, "TIFF")
    choose(page, stream.getvalue(), "a.tif")
    page.wait_for_url("**/?picture=*")
    assert served[0].requests[-1].value.size == (1500, 40)
    before = page.url
    choose(page, b"II*\0" + bytes(uploads.MOST_BYTES))
    page.wait_for_selector("[role=alert]")
    assert "Send at most 20.0 MB" in page.locator("[role=alert]").text_content()
    assert page.url == before
    assert page.locator(".chip img[alt='The picture of this search']").count() == 1, "the former picture is back"


def test_an_upload_is_shown_and_can_be_canceled(opened: Callable[..., Any], served: tuple[MadeUpBackend, str]) -> None:
    page, held = opened("/?q=red"), []
    page.route("**/picture", lambda route: held.append(route))
    choose(page, png())
    until(page, "document.querySelector('.chip.sending img')?.naturalWidth === 24")
    assert page.get_by_role("progressbar", name="Sending the picture").is_visible()
    until(page, "document.getElementById('searching').textContent === 'Sending the picture …'")
    page.fill("#q", "red shape")
    page.wait_for_timeout(400)
    assert page.url.endswith("/?q=red"), "the words wait for the picture"
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_url("**/?q=red+shape")
    assert page.locator(".chip").count() == 0
    assert focused(page) == "q"
    assert page.locator("[role=alert]").count() == 0
    assert served[0].requests[-1].value == "red shape"
    while not held:
        page.wait_for_timeout(50)


def test_words_that_are_typed_during_an_upload_are_searched_with_it(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page, held = opened(), []
    page.route("**/picture", lambda route: held.append(route))
    choose(page, png(drawn("blue", "frame")))
    page.wait_for_selector(".chip.sending")
    page.fill("#q", "red")
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    page.wait_for_url("**/?picture=*&q=red")
    until(page, "!document.querySelector('[aria-busy]')")
    assert isinstance(served[0].requests[-1].value, Composed)


def test_a_picture_and_words_are_one_query_and_either_can_be_removed(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    backend = served[0]
    page = opened("/?q=red&find=image")
    choose(page, png(drawn("blue", "frame")))
    page.wait_for_url("**/?picture=*&q=red&find=image")
    assert page.locator("#q").input_value() == "red"
    value = backend.requests[-1].value
    assert (type(value), value.text) == (Composed, "red")
    assert np.array_equal(np.asarray(value.picture), np.asarray(drawn("blue", "frame")))
    page.fill("#q", "red shape")
    page.wait_for_url("**/?picture=*&q=red+shape&find=image")
    page.wait_for_selector(".chip")
    assert backend.requests[-1].value.text == "red shape"
    page.click("a[rel=next]")
    page.wait_for_url("**&page=2")
    assert isinstance(backend.requests[-1].value, Composed)
    both = page.url
    page.click("[aria-label='Remove the words']")
    page.wait_for_url(lambda address: "q=" not in address)
    assert page.locator("#q").input_value() == ""
    assert np.array_equal(np.asarray(backend.requests[-1].value), np.asarray(drawn("blue", "frame")))
    page.goto(both)
    page.click("[aria-label='Remove the picture']")
    page.wait_for_url("**/?q=red+shape&find=image")
    assert page.locator("#q").input_value() == "red shape"
    assert page.locator(".chip").count() == 0
    assert backend.requests[-1].value == "red shape"


def test_without_script_a_picture_keeps_the_words_and_a_refusal_names_the_limit(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    page = opened("/", java_script_enabled=False, viewport=PHONE)
    page.fill("#q", "red")
    choose(page, png())
    page.click("#upload button")
    page.wait_for_url("**/?picture=*&q=red*")
    assert isinstance(served[0].requests[-1].value, Composed)
    page.click("[aria-label='Remove the words']")
    page.wait_for_url(lambda address: "q=" not in address)
    assert page.locator(".chip").count() == 1
    choose(page, bytes(uploads.MOST_BYTES + 200_000))
    page.click("#upload button")
    page.wait_for_selector("h1:has-text('Too large')")
    assert "up to 20.0 MB" in page.locator("[role=alert]").text_content()
    page.get_by_role("link", name="Back to the search").click()
    page.wait_for_selector("#q")


def test_a_picture_and_words_fit_into_a_small_window(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red", viewport=PHONE)
    choose(page, png())
    page.wait_for_url("**/?picture=*&q=red")
    page.wait_for_selector(".chip")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.locator("#q").bounding_box()["width"] > 60


def exported(page: Any, form: str) -> str:
    """Press a button that exports results with the keyboard, and return the content of the file."""
    page.focus(f"[data-export={form}]")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == f"results.{form}"
    return Path(download.value.path()).read_bytes().decode("utf-8-sig")


def test_results_are_selected_and_exported_with_the_keyboard(
    opened: Callable[..., Any], served: tuple[MadeUpBackend, str]
) -> None:
    served[0].captions = {"item-1": '=2+3 "مرحبا"\nx'}
    page = opened("/?q=red")
    rows = list(csv.DictReader(io.StringIO(exported(page, "csv"))))
    assert len(rows) == PAGE_HITS
    assert (rows[0]["id"], rows[0]["silo"], rows[0]["labels"], rows[2]["distance_bits"]) == (
        "item-0", "archive", "red|shape", "1",
    )  # fmt: skip
    assert rows[1]["caption"].startswith('\'=2+3 "مرحبا"'), "not a formula"
    box = page.get_by_role("checkbox", name="Select red shape 3", exact=True)
    page.locator(".card > a >> nth=3").focus()
    page.keyboard.press("Tab")
    assert box.evaluate("box => box === document.activeElement")
    assert page.locator(".pick >> nth=3").evaluate("label => getComputedStyle(label).opacity") == "1"
    page.keyboard.press("Space")
    assert page.locator("#picked").text_content() == "1 selected"
    [one] = json.loads(exported(page, "json"))["results"]
    assert one["caption"] == "red shape 3"
    assert (one["labels"], one["distance_bits"]) == (["red", "shape"], 1)
    assert one["link"] == f"{served[1]}/item?silo=archive&id=item-3"
    clear = page.get_by_role("button", name="Clear the selection: 1 selected")
    clear.focus()
    page.keyboard.press("Enter")
    assert clear.is_hidden()
    assert page.locator(".pick :checked").count() == 0
    assert page.locator("#picked").text_content() == ""
    page.click("a[rel=next]")
    page.wait_for_url("**page=2")
    until(page, "document.querySelectorAll('.pick').length === document.querySelectorAll('#results .card').length")


@pytest.mark.parametrize("clipboard", [True, False])
def test_links_are_copied(opened: Callable[..., Any], served: tuple[MadeUpBackend, str], clipboard: bool) -> None:
    page = opened("/?q=red", permissions=["clipboard-read", "clipboard-write"])
    if not clipboard:  # as in a page without TLS
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), { id: 'other' }))")
    field = page.locator("#other")
    for pick, text in ((False, f"{served[1]}/?q=red"), (True, f"{served[1]}/item?silo=museum&id=item-1")):
        if pick:
            page.locator(".pick input >> nth=1").check(force=True)
        page.get_by_role("button", name="Copy link").click()
        until(page, "document.getElementById('copy-link').textContent === 'Copied'")
        field.fill("")
        field.press("Control+v")
        assert field.input_value() == text


def test_on_a_phone_the_boxes_are_always_visible(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red", viewport=PHONE, has_touch=True, is_mobile=True)
    label = page.locator(".pick >> nth=0")
    assert label.evaluate("label => getComputedStyle(label).opacity") == "1"
    size = label.bounding_box()
    assert min(size["width"], size["height"]) >= 44
    label.tap()
    assert page.locator("#picked").text_content() == "1 selected"
    assert page.url.endswith("/?q=red"), "the item is not opened"
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def focused(page: Any) -> str:
    """Return the id of the focused element, or the title of the focused result."""
    return str(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))


def test_keys_lead_to_the_field_and_from_result_to_result(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red", viewport={"width": 1200, "height": 1400})
    columns = page.evaluate(
        "getComputedStyle(document.querySelector('.grid')).gridTemplateColumns.split(' ').length",
    )
    assert columns > 2
    page.keyboard.press("/")
    assert focused(page) == "q"
    page.keyboard.type("/")
    assert page.locator("#q").input_value() == "/", "it was selected, and in the field the key writes"
    page.fill("#q", "red shape")
    page.wait_for_url("**/?q=red+shape")
    until(page, "!document.querySelector('[aria-busy]')")
    steps = [("ArrowDown", 0), ("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns), ("ArrowUp", 0)]
    for key, number in steps:
        page.keyboard.press(key)
        assert focused(page).startswith(f"red shape {number}"), key
    page.keyboard.press("ArrowLeft")
    assert focused(page) == "red shape 0", "it is the first"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert focused(page) == "red shape 1", "from the box of a result too"
    page.keyboard.press("ArrowUp")
    assert focused(page) == "q"


def test_escape_closes_one_thing_at_a_time_and_then_empties_the_field(opened: Callable[..., Any]) -> None:
    page, held = opened("/?q=red"), []
    page.route("**/picture", lambda route: held.append(route))
    page.locator(".pick input >> nth=1").check(force=True)
    page.click("#draw-open")
    choose(page, png())
    page.wait_for_selector(".chip.sending", state="attached")
    page.keyboard.press("Escape")
    assert page.locator("#draw").is_hidden()
    page.keyboard.press("Escape")
    page.wait_for_selector(".chip", state="detached")
    assert page.locator(".pick :checked").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".pick :checked").count() == 0
    page.keyboard.press("Escape")
    assert focused(page) == "q"
    assert page.locator("#q").input_value() == "red"
    page.keyboard.press("Escape")
    page.wait_for_url(lambda address: address.endswith("/"))
    assert page.locator("#q").input_value() == ""


def test_finished_searches_are_offered_on_this_device_only(opened: Callable[..., Any]) -> None:
    page = opened()
    past = page.locator("#past a")
    assert page.locator("#past").is_hidden()
    for words in [f"red {number}" for number in range(11)] + ["red 3"]:
        page.fill("#q", words)
        page.press("#q", "Enter")
        page.wait_for_url(f"**/?q={words.replace(' ', '+')}")
        until(page, "!document.querySelector('[aria-busy]')")
        assert page.locator("#past").is_hidden(), "the field is not empty"
    page.fill("#q", "red unfinished")
    page.wait_for_url("**/?q=red+unfinished")
    page.fill("#q", "")
    past.first.wait_for()
    assert past.all_text_contents() == ["red 3", *(f"red {number}" for number in (10, 9, 8, 7, 6, 5, 4, 2, 1))]
    page.keyboard.press("ArrowDown")
    assert focused(page) == "red 3"
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=red+3")
    page.goto(page.url.partition("?")[0])
    page.get_by_role("button", name="Forget them").click()
    assert page.locator("#past").is_hidden()
    assert focused(page) == "q"
    assert page.evaluate("localStorage.length") == 0


def test_a_browser_that_keeps_nothing_has_no_history(opened: Callable[..., Any]) -> None:
    page = opened()
    page.context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('', 'SecurityError') } })"
    )
    page.reload()
    page.fill("#q", "red")
    page.press("#q", "Enter")
    page.wait_for_url("**/?q=red")
    page.fill("#q", "")
    page.wait_for_url(lambda address: address.endswith("/"))
    assert page.locator("#past").is_hidden()


@pytest.mark.parametrize("path", ["/", "/?q=red"])
def test_nothing_moves_when_the_script_arrives(browser: Any, served: tuple[MadeUpBackend, str], path: str) -> None:
    page, held = new_page(browser, viewport=PHONE), []
    page.route("**/search.js*", lambda route: held.append(route))
    page.goto(served[1] + path, wait_until="commit")
    first = page.locator("#results .card").first
    first.wait_for()
    while not held:
        page.wait_for_timeout(50)
    before = first.bounding_box()
    held[0].continue_()
    page.wait_for_load_state()
    assert first.bounding_box() == before
    page.close()


SMALL_TARGETS = """
() => [...document.querySelectorAll("a, button, summary, select, label:has(input)")]
  .filter((each) => !each.closest("p:not(.try, .tags), h3, td, th, .hidden, .skip, .upload, .stacked"))
  .map((each) => [each, each.getBoundingClientRect()])
  .filter(([, box]) => box.width > 1 && Math.min(box.width, box.height) < 43.5)
  .map(([each, box]) => `${each.outerHTML.slice(0, 80)} ${box.width} x ${box.height}`)
"""


@pytest.mark.parametrize("path", ["/", "/?q=red", "/item?silo=museum&id=item-3&by=image", "/federation"])
def test_a_finger_hits_everything_that_can_be_pressed(opened: Callable[..., Any], path: str) -> None:
    page = opened(path, viewport=PHONE, has_touch=True, is_mobile=True)
    if path == "/":
        page.locator("details.menu summary").first.tap()
    assert page.evaluate(SMALL_TARGETS) == []


def test_what_is_chosen_is_visible_in_forced_colors(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red", forced_colors="active")
    outline = "element => getComputedStyle(element).outlineStyle"
    chosen = page.locator(".segments input:checked + span")
    assert chosen.evaluate(outline) == page.locator(".top nav [aria-current]").evaluate(outline) == "solid"
    assert page.locator(".segments input:not(:checked) + span").first.evaluate(outline) == "none"
    assert page.locator("[data-export=csv]").evaluate("button => getComputedStyle(button).borderTopWidth") == "1px"


def test_a_printed_page_has_the_query_and_the_results_in_black_on_white(opened: Callable[..., Any]) -> None:
    page = opened("/?q=red", color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("#q").is_visible()
    assert page.locator("#headline").is_visible()
    assert page.locator(".card").last.is_visible()
    for selector in ("nav", ".filters", "#draw-open", "button.go", ".actions", ".pick", ".bottom"):
        assert page.locator(selector).first.is_hidden(), selector
    ink = page.locator(".title").first.evaluate("title => getComputedStyle(title).color")
    assert max(map(int, re.findall(r"\d+", ink))) < 90
