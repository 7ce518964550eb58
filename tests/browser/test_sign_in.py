"""Signing in with a real browser: a wrong and the right password, a search, the account, and signing out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from silohash.service.web.auth import Gate, app_for
from tests.accounts import PASSWORD, quick_accounts
from tests.browsers import CONTRAST, new_page, started_browser, until
from tests.served import MadeUpBackend, png, running

PHONE = {"width": 360, "height": 740}
LONG_NAME = "maximiliane-von-und-zu-hohenstein"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started_browser()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service with accounts, as a hub makes it."""
    with quick_accounts(tmp_path_factory.mktemp("accounts")) as accounts:
        for name in ("ada", LONG_NAME):
            accounts.add(name, PASSWORD)
        with running(app_for(MadeUpBackend(), Gate(accounts))) as served:
            yield served


def sign_in(page: Any, name: str, password: str) -> None:
    page.fill("#name", name)
    page.fill("#password", password)
    page.keyboard.press("Enter")


def test_a_person_signs_in_searches_and_signs_out(browser: Any, address: str) -> None:
    page = new_page(browser)
    page.goto(f"{address}/?q=red")
    assert page.locator("h1").text_content() == "Sign in"
    until(page, "document.activeElement.id === 'name'")
    assert page.locator(".person").count() == 0
    sign_in(page, "ada", "wrong horse")
    page.wait_for_selector("[role=alert]")
    assert page.locator("[role=alert]").text_content() == "The name or the password is wrong."
    assert page.locator("#name").input_value() == "ada"
    until(page, "document.activeElement.id === 'password'")
    sign_in(page, "ada", PASSWORD)
    page.wait_for_url(f"{address}/?q=red")
    assert page.locator("#results .card").count() == 24, "the search that was asked for before"
    page.fill("#q", "blue")
    page.wait_for_url(f"{address}/?q=blue")
    for path in ("/", "/federation", "/item?silo=north&id=item-3"):
        page.goto(address + path)
        assert page.locator(".person").text_content().strip() == "Account: ada"
    page.click(".person")
    page.wait_for_url(f"{address}/account")
    assert page.locator(".person").get_attribute("aria-current") == "page"
    page.click("text=Sign out")
    page.wait_for_url(f"{address}/sign-in")
    page.go_back()
    page.goto(f"{address}/federation")
    assert page.locator("h1").text_content() == "Sign in"
    page.close()


def test_a_session_that_ended_leads_to_signing_in_and_back(browser: Any, address: str) -> None:
    page = new_page(browser)
    page.goto(f"{address}/?q=red")
    sign_in(page, "ada", PASSWORD)
    page.wait_for_url(f"{address}/?q=red")
    page.context.clear_cookies()
    page.fill("#q", "blue")
    page.wait_for_url("**/sign-in?next=**")
    sign_in(page, "ada", PASSWORD)
    page.wait_for_url(f"{address}/?q=blue")
    page.context.clear_cookies()
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": png()})
    page.wait_for_url("**/sign-in?next=**")
    sign_in(page, "ada", PASSWORD)
    page.wait_for_url(f"{address}/?q=blue")
    assert page.locator("#q").input_value() == "blue"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_forms_fit_a_phone_and_are_legible(browser: Any, address: str, scheme: str) -> None:
    page = new_page(browser, viewport=PHONE, color_scheme=scheme)
    page.goto(f"{address}/sign-in?next=/account")
    for number in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate(CONTRAST) == []
        if not number:
            sign_in(page, LONG_NAME, PASSWORD)
            page.wait_for_url(f"{address}/account")
    page.close()
