"""The report in a real browser: it asks the network for nothing, runs no script, and can be read light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from silohash.report.page import write_report
from tests.reports import made_up_report, made_up_run

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

CONTRAST = """
() => {
  const light = ([r, g, b]) => {
    const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const numbers = c => c.match(/[0-9.]+/g).map(Number);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
  };
  const low = [];
  for (const e of document.querySelectorAll("h1,h2,h3,p,li,dt,dd,td,th,a,summary,.soft,.silo,.yes,.not,.big,figcaption")) {
    if (!e.textContent.trim()) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${e.tagName} ${e.className} ${ratio.toFixed(2)}`);
  }
  return low;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there; install it with: apt-get install -y chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(made_up_report(), path)
    return path.as_uri()


def opened(browser, report, **options):
    page = browser.new_page(**options)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    faults = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(report)
    return page, asked, faults


def test_page_asks_for_nothing_and_has_no_faults(browser, report):
    page, asked, faults = opened(browser, report)
    assert [url for url in asked if not url.startswith("data:")] == [report]
    assert faults == []
    broken = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).length")
    assert (page.locator("img").count(), broken) == (3, 0)
    page.close()


def test_page_reads_the_same_without_scripts(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.locator("h2", has_text="Example searches").is_visible()
    assert page.locator("svg.plot").count() == 3
    summary = page.locator("summary").first
    summary.click()
    assert page.locator("details[open] table").is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(browser, report, scheme):
    page, _, _ = opened(browser, report, color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []
    page.close()


def test_plots_follow_the_scheme(browser, report):
    colours = set()
    for scheme in ("light", "dark"):
        page, _, _ = opened(browser, report, color_scheme=scheme)
        colours.add(page.evaluate("getComputedStyle(document.querySelector('svg.plot text')).fill"))
        page.close()
    assert len(colours) == 2


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_page_never_scrolls_sideways(browser, tmp_path, width):
    path = tmp_path / "report.html"
    write_report(made_up_report(runs=tuple(made_up_run(f"a-method-with-a-name-{n}", n / 50) for n in range(6))), path)
    page, _, _ = opened(browser, path.as_uri(), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_print_is_light_whatever_the_screen(browser, report):
    page, _, _ = opened(browser, report, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(252, 253, 251)"
    assert not page.locator("nav").is_visible()
    page.set_viewport_size({"width": 690, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= 690, "wider than a sheet of A4"
    page.close()
