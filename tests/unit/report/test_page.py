"""The page: what it says, that it is safe, and that it stands alone."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from silohash.report.page import (
    ExampleHit,
    ExampleQuery,
    MethodRun,
    ReportData,
    data_uri,
    headline,
    key_rows,
    render,
    write_report,
)
from tests.reports import NAN, card, made_up_report, made_up_run, row


class Outline(HTMLParser):
    """Collects a page's elements, and notes those that are not closed in their order."""

    VOID = ("meta", "img", "br", "link", "input", "hr")

    def __init__(self):
        super().__init__()
        self.open = []
        self.found = []
        self.unbalanced = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append((tag, self.getpos()))

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def outline(page):
    parser = Outline()
    parser.feed(page)
    assert parser.unbalanced == []
    assert parser.open == []
    return parser.found


REPORTS = {
    "one run": made_up_report(),
    "several runs": made_up_report(runs=(made_up_run("a"), made_up_run("b", 0.1), made_up_run("c", -0.1))),
    "nothing": ReportData(title="Nothing", facts={}, runs=()),
    "no figures": made_up_report(runs=(MethodRun(name="a"),), label_table=None, examples=()),
}


@pytest.mark.parametrize("name", REPORTS)
def test_page_is_well_formed_and_stands_alone(name):
    page = render(REPORTS[name])
    elements = outline(page)
    assert not [tag for tag, _ in elements if tag in {"script", "link", "iframe", "object"}]
    loads = [
        value for _, attributes in elements for key, value in attributes.items() if key in {"src", "srcset", "data"}
    ]
    assert all(value.startswith("data:image/png;base64,") for value in loads)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert all(attributes.get("alt") for tag, attributes in elements if tag == "img")
    assert all("scope" in attributes for tag, attributes in elements if tag == "th")
    targets = {attributes["id"] for _, attributes in elements if "id" in attributes}
    links = [attributes["href"] for tag, attributes in elements if tag == "a"]
    assert all(link[1:] in targets for link in links if link.startswith("#"))
    assert all(link.startswith(("#", "https://")) for link in links)


def test_every_section_says_its_part():
    page = render(REPORTS["one run"])
    for words in (
        "12 rows were left out",
        "It holds no image index",
        "4 more items lie at 2 bits",
        "“chess knight”",
        "✓ relevant",
        "✗ not relevant",
        "no picture released",
        "It is late.",
        "Title of fedcafe",
        "95 % interval",
        "1,234",
        "How to read this",
    ):
        assert words in page, words


def test_words_of_strangers_are_not_markup():
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    hit = ExampleHit(item_id=evil, silo=evil, distance_bits=1, caption=evil)
    query = ExampleQuery(task="t2i", caption=evil, labels=(evil,), hits=(hit,), missing_silos={evil: evil})
    bad = card(evil, title=evil, summary=evil, link="javascript:alert(1)")
    run = MethodRun(name=evil, rows=(row(run=evil, measure=evil),), cards=(bad,))
    page = render(made_up_report(title=evil, facts={evil: evil}, runs=(run, made_up_run("b")), examples=(query,)))
    elements = outline(page)
    assert "<script" not in page
    assert not [attributes for _, attributes in elements if "onerror" in attributes]
    assert "javascript:" not in page


def test_headline_of_one_run():
    assert headline(REPORTS["one run"]) == (
        "A picture finds texts at 60.0 and a text finds pictures at 60.0 (mAP@all); chance would reach 17.0."
    )
    assert headline(made_up_report(runs=(MethodRun(name="a", rows=(row(prior=NAN),)),), percent=False)) == (
        "A text finds pictures at 0.712 (mAP@all)."
    )
    assert headline(REPORTS["nothing"]) == "This run has no figures yet."
    assert "My own words." in render(made_up_report(headline="My own words."))


def test_headline_of_several_runs():
    assert headline(REPORTS["several runs"]) == (
        "b leads in 4 of 4 figures; in 4 of them its 95 % interval lies above every other run's."
    )
    equal = made_up_report(runs=(made_up_run("a"), made_up_run("b")))
    assert headline(equal) == "2 runs, and no figure in which one leads another."


def test_method_that_is_told_the_label_is_kept_apart():
    told = made_up_run("told", 0.3, cards=(card("told", needs_label_at_query=True),))
    data = made_up_report(runs=(made_up_run("a"), made_up_run("b", 0.1), told))
    assert headline(data).startswith("b leads")
    page = render(data)
    assert "Kept apart" in page
    comparison = page[page.index('id="comparison"') : page.index('id="results"')]
    assert '<th scope="col">told</th>' not in comparison
    assert "(told the query's own label)" in page


def test_key_figures_prefer_the_global_model_and_map():
    rows = (
        row(evaluation="XS", task="i2t"),
        row(measure="P@10", task="i2t"),
        row(task="i2t"),
        row(task="t2i"),
        row(task="t2i", measure="mAP@50"),
        row(task="i2i", value=NAN),
    )
    chosen = key_rows(made_up_report(runs=(MethodRun(name="fedcafe", rows=rows),)))
    assert [(r.evaluation, r.task, r.measure) for r in chosen] == [("GG", "i2t", "mAP@all"), ("GG", "t2i", "mAP@all")]


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I;16"])
def test_pictures_are_shrunk_and_decode(mode):
    uri = data_uri(Image.new(mode, (640, 480)))
    picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert picture.size == (176, 132)
    assert data_uri(Image.new("L", (9, 5))) != uri


def test_same_data_same_page(tmp_path):
    write_report(made_up_report(), tmp_path / "a.html")
    write_report(made_up_report(), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
