"""Axe finds nothing on any page of the service and the report, on a desktop and a phone, in light and dark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.report.page import write_report
from silohash.report.plots import LabelTable
from silohash.service.web.app import create_app
from silohash.service.web.auth import Gate, app_for
from tests.accounts import PASSWORD, quick_accounts
from tests.browsers import new_page, started_browser, until
from tests.reports import made_up_report, made_up_run
from tests.served import LateBackend, MadeUpBackend, running

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
ALL = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
CONTRAST = {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}
SILOS = ("archive", "museum", "town library")
CAPTIONS = {"item-1": "مرحبا بكم في المتحف " * 20, "item-2": "A very long caption. " * 180}

PAGES = {
    "start": "/",
    "results": "/?q=red&label=red",
    "results without hits": "/?q=red&silo=museum",
    "refusal": "/?q=red&within=999",
    "browsing": "/?browse=1",
    "items like one": "/?like=item-3&of=town+library&by=text",
    "item": "/item?silo=town+library&id=item-3",
    "item of results": "/item?silo=town+library&id=item-2&results=q%3Dred%26at%3D3",
    "federation": "/federation",
    "error": "/item?silo=town+library&id=none",
    "German results": "/?q=red&label=red&lang=de",
    "Chinese federation": "/federation?lang=zh",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started_browser()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a page over three silos, of which one is silent."""
    backend = MadeUpBackend(silos=SILOS)
    backend.missing = {"museum": "It did not answer within 10 seconds."}
    backend.captions = CAPTIONS
    with running(create_app(backend)) as served:
        yield served


@cache
def axe() -> Any:
    """Return axe, as the package that carries it runs it in a page."""
    package = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    return package.Axe()


def violations(page: Any, options: dict[str, Any] = ALL) -> list[str]:
    """Return what axe objects to on a page: the rule, its words and the elements."""
    found = axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes']]}" for each in found]


def check(browser: Any, address: str, *steps: Callable[[Any], None]) -> None:
    """Check that axe finds nothing on a page after each step, on a desktop and a phone, and no low contrast in dark."""
    for window in (DESKTOP, PHONE):
        page = new_page(browser, viewport=window, reduced_motion="reduce")
        page.goto(address)
        for step in steps or (lambda _: None,):
            step(page)
            assert violations(page) == [], f"{window['width']} pixels, {page.url}"
            if window is DESKTOP:
                page.emulate_media(color_scheme="dark")
                assert violations(page, CONTRAST) == [], f"dark, {page.url}"
                page.emulate_media(color_scheme="light")
        page.close()


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_pages(browser: Any, address: str, path: str) -> None:
    check(browser, address + path)


def test_what_opens_on_a_page(browser: Any, address: str) -> None:
    def opened(name: str) -> Callable[[Any], None]:
        def step(page: Any) -> None:
            page.keyboard.press("Escape")
            page.click(f"summary:has-text('{name}') >> nth=0")

        return step

    def selection(page: Any) -> None:
        page.locator(".pick input >> nth=1").check(force=True)

    check(
        browser, f"{address}/?q=red", opened("Silos"), opened("Labels"), opened("More"), opened("did not answer"),
        selection, lambda page: page.click("#draw-open"),
    )  # fmt: skip


def test_results_while_silos_are_late(browser: Any) -> None:
    def searched(page: Any) -> None:
        for event in backend.late.values():
            event.clear()
        page.fill("#q", "red")
        page.locator("#late").wait_for()

    def offered(page: Any) -> None:
        backend.late["museum"].set()
        page.locator("#late button").wait_for()

    backend = LateBackend()
    backend.late = {"museum": threading.Event()}
    with running(create_app(backend)) as served:
        check(browser, served, searched, offered)


def test_past_searches(browser: Any, address: str) -> None:
    def searched(page: Any) -> None:
        page.fill("#q", "red")
        page.press("#q", "Enter")
        page.wait_for_url("**/?q=red")
        page.fill("#q", "")
        page.locator("#past a").first.wait_for()

    check(browser, address, searched)


def test_signing_in_and_the_account(browser: Any, tmp_path: Path) -> None:
    def wrong(page: Any) -> None:
        page.fill("#name", "ada")
        page.fill("#password", "wrong horse")
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=alert]")

    def right(page: Any) -> None:
        page.fill("#password", PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url("**/account")

    with quick_accounts(tmp_path) as accounts:
        accounts.add("ada", PASSWORD)
        with running(app_for(MadeUpBackend(), Gate(accounts))) as served:
            check(browser, f"{served}/sign-in?next=/account", lambda _: None, wrong, right)


def test_the_report(browser: Any, tmp_path: Path) -> None:
    def unfolded(page: Any) -> None:
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        until(page, "[...document.querySelectorAll('details')].every((each) => each.open)")

    path, labels = tmp_path / "report.html", tuple(f"label {number}" for number in range(60))
    table = LabelTable(("north", "south"), labels, np.arange(120).reshape(2, 60))
    write_report(made_up_report(runs=(made_up_run("fedavg"), made_up_run("fedcafe", 0.1)), label_table=table), path)
    check(browser, path.as_uri(), unfolded)


def test_the_check_sees(browser: Any, address: str) -> None:
    page = new_page(browser)
    page.goto(address)
    page.evaluate("document.querySelector('label[for=q]').remove()")
    page.evaluate("document.querySelector('#q').removeAttribute('placeholder')")
    assert [each.partition(":")[0] for each in violations(page)] == ["label"]
    page.close()
