"""The report in a real browser: it makes no request, runs no script, fits a phone, and is legible light and dark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from silohash.report.page import write_report
from tests.browsers import CONTRAST, PATIENCE_MILLISECONDS, new_page, started_browser
from tests.reports import made_up_report, made_up_run


@pytest.fixture(scope="module")
def browser() -> Iterator:
    yield from started_browser()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(made_up_report(), path)
    return path.as_uri()


def opened(browser, report, **options):
    page = new_page(browser, **options)
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    faults = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(report)
    return page, requested, faults


def test_page_requests_nothing_and_has_no_faults(browser, report):
    page, requested, faults = opened(browser, report)
    assert [url for url in requested if not url.startswith("data:")] == [report]
    assert faults == []
    broken = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).length")
    assert (page.locator("img").count(), broken) == (3, 0)
    page.close()


def test_page_reads_the_same_without_scripts(browser, report):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    page.goto(report)
    assert page.locator("h2", has_text="Example searches").is_visible()
    assert page.locator("svg.plot").count() == 4
    summary = page.locator("summary").first
    summary.click()
    assert page.locator("details[open] table").is_visible()
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_sections_follow_each_other_down_the_page(browser, report, width):
    page, _, _ = opened(browser, report, viewport={"width": width, "height": 800})
    order = ["h1", "#summary", "#examples", "#radius", "#training", "#silos", "#results", "#methods", "#provenance"]
    tops = [page.locator(part).bounding_box()["y"] for part in order]
    assert tops == sorted(tops)
    assert len(set(tops)) == len(tops)
    page.close()


def test_chart_stands_within_the_first_screen_of_a_desktop(browser, report):
    page, _, _ = opened(browser, report, viewport={"width": 1280, "height": 900})
    box = page.locator("#summary .bar.together").last.bounding_box()
    assert box["y"] + box["height"] < 900
    page.close()


def test_bars_are_drawn_to_scale(browser, report):
    page, _, _ = opened(browser, report)
    shares = page.evaluate(
        """[...document.querySelectorAll(".track")].map(track => {
             const whole = track.getBoundingClientRect();
             const fill = track.querySelector(".fill").getBoundingClientRect();
             const whisker = track.querySelector(".whisker")?.getBoundingClientRect();
             const across = x => (x - whole.left) / whole.width;
             return [across(fill.right), whisker ? across(whisker.left) : null, whisker ? across(whisker.right) : null];
           })"""
    )
    assert shares[0] == pytest.approx([0.60, 0.58, 0.62], abs=0.001)
    assert shares[1] == [pytest.approx(0.17, abs=0.001), None, None]
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, report, scheme):
    page, _, _ = opened(browser, report, color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []
    page.close()


def test_page_and_plots_follow_the_color_scheme(browser, report):
    papers, plots = [], set()
    for scheme in ("light", "dark"):
        page, _, _ = opened(browser, report, color_scheme=scheme)
        papers.append(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        plots.add(page.evaluate("getComputedStyle(document.querySelector('svg.plot text')).fill"))
        page.close()
    assert papers == ["rgb(252, 253, 251)", "rgb(16, 23, 21)"]
    assert len(plots) == 2


def test_relevance_is_marked_by_words_and_lines_as_well_as_colors(browser, report):
    page, _, _ = opened(browser, report)
    looks = page.evaluate(
        """["yes", "no"].map(kind => {
             const hit = document.querySelector(`.hit.${kind}`);
             return [getComputedStyle(hit.firstElementChild).borderTopStyle, hit.querySelector(".line b").textContent];
           })"""
    )
    assert looks == [["solid", "✓ relevant"], ["dashed", "✗ not relevant"]]
    page.close()


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_page_never_scrolls_sideways(browser, tmp_path, width):
    path = tmp_path / "report.html"
    write_report(made_up_report(runs=tuple(made_up_run(f"a-method-with-a-name-{n}", n / 50) for n in range(6))), path)
    page, _, _ = opened(browser, path.as_uri(), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_plots_stand_below_each_other_on_a_phone(browser, report):
    for width, below in ((390, True), (1280, False)):
        page, _, _ = opened(browser, report, viewport={"width": width, "height": 800})
        first, second = (page.locator("#radius svg.plot").nth(n).bounding_box() for n in (0, 1))
        assert (second["y"] >= first["y"] + first["height"]) == below
        assert first["width"] <= width
        page.close()


def test_print_is_light_on_any_screen_and_fits_the_sheet(browser, report):
    page, _, _ = opened(browser, report, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(252, 253, 251)"
    assert not page.locator("nav").is_visible()
    assert page.locator("#summary .bar.together").first.is_visible()
    assert page.locator("#examples").is_visible()
    page.set_viewport_size({"width": 690, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= 690, "wider than a sheet of A4"
    page.close()
