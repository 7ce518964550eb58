"""The pages in each language in a real browser: the menu, what scripts say, and the width of the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from silohash.service.web.app import create_app
from silohash.service.web.language import CODES, language
from tests.browsers import opening_pages, started_browser, until
from tests.served import MadeUpBackend, running

ITEM = "/item?silo=museum&id=item-1&results=q%3Dred%26at%3D2"
FITS = "document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started_browser()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    with running(create_app(MadeUpBackend(silos=("archive", "museum", "town library")))) as address:
        yield from opening_pages(browser, address, excused=("404",))


@pytest.mark.parametrize("code", CODES)
def test_the_menu_changes_the_language_of_all_pages(opened: Callable[..., Any], code: str) -> None:
    t = language(code)
    page = opened("/?q=red", locale="zh-CN" if code == "en" else "en-US")
    with page.expect_navigation():
        page.click(f"#languages a[lang={code}]")
    assert page.url.endswith(f"/?q=red&lang={code}")
    assert page.locator("html").get_attribute("lang") == code
    page.locator(".pick input >> nth=0").check(force=True)
    assert page.locator("#picked").text_content() == t("script.selected", count=1)
    page.fill("#q", "blue")
    page.wait_for_url("**/?q=blue")
    headline = f"{t('results.nearest', count=24)} · {t('results.all_answered', count=3)}"
    until(page, f"document.getElementById('headline').textContent === {headline!r}")
    assert page.locator("#languages a >> nth=0").get_attribute("href") == "?q=blue&lang=en"
    page.locator("#q").evaluate("field => { field.value = 'a'.repeat(2000); }")
    page.keyboard.press("End")
    page.locator("#q").dispatch_event("input")
    assert page.locator("#limit").text_content() == t("script.too_long", count=2000)
    for path in ("/federation", ITEM, "/nothing"):
        page.evaluate(f"location.assign({path!r})")
        page.wait_for_url(f"**{path}")
        assert page.locator("html").get_attribute("lang") == code, "the browser keeps the language"


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("path", ["/", "/?q=red&label=red", ITEM, "/federation"])
def test_no_language_is_wider_than_a_phone(opened: Callable[..., Any], code: str, path: str) -> None:
    page = opened(f"{path}{'&' if '?' in path else '?'}lang={code}", viewport={"width": 320, "height": 640})
    assert page.evaluate(FITS)
