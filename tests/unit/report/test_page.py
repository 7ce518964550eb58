"""The page: the order of its sections, what each shows, that it is safe, and that it needs nothing else."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from silohash.base.templates import html_environment
from silohash.base.types import ORACLE
from silohash.measure.evaluation import UNSEEN
from silohash.report import plots
from silohash.report.examples import OWN_PARTNER, ExampleHit, Examples, ExampleSearch
from silohash.report.gather import MethodRun, ReportData, ReportWarning, SiloSummary
from silohash.report.page import badges, render, write_report
from silohash.report.plots import LabelTable, RoundCurve
from tests.reports import NAN, card, item, made_up_examples, made_up_report, made_up_run, row


class Outline(HTMLParser):
    """Collects the elements of a page and those that are not closed in order."""

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


@pytest.fixture(autouse=True, scope="module")
def equal_curves_are_drawn_once():
    drawn = {}

    def once(draw):
        def drawing(*arguments, **options):
            key = repr((draw, arguments, options))
            if key not in drawn:
                drawn[key] = draw(*arguments, **options)
            return drawn[key]

        return drawing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "round_curves", once(plots.round_curves))
        patch.setattr(plots, "precision_recall", once(plots.precision_recall))
        yield


REPORTS = {
    "one run": made_up_report(),
    "several runs": made_up_report(runs=(made_up_run("a"), made_up_run("b", 0.1), made_up_run("c", -0.1))),
    "nothing": ReportData(title="Nothing", facts={}, runs=()),
    "no figures": made_up_report(runs=(MethodRun(name="a"),), label_table=None, examples=None),
}


@pytest.mark.parametrize("name", REPORTS)
def test_page_is_well_formed_and_loads_nothing(name):
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
    targets = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(targets) == len(set(targets))
    links = [attributes["href"] for tag, attributes in elements if tag == "a"]
    assert all(link[1:] in targets for link in links if link.startswith("#"))
    assert all(link.startswith(("#", "https://")) for link in links)


@pytest.mark.parametrize("name", REPORTS)
def test_headings_do_not_skip_a_level(name):
    levels = [int(tag[1]) for tag, _ in outline(render(REPORTS[name])) if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_sections_come_in_the_order_that_readers_look_for():
    page = render(REPORTS["several runs"])
    order = [
        "<h1>",
        'id="summary"',
        'id="warnings"',
        'id="examples"',
        'id="radius"',
        'id="training"',
        'id="silos"',
        'id="comparison"',
        'id="results"',
        'id="methods"',
        'id="provenance"',
        'id="reading"',
    ]
    assert [page.count(part) for part in order] == [1] * len(order)
    places = [page.index(part) for part in order]
    assert places == sorted(places)


def test_every_section_shows_its_part():
    page = render(REPORTS["one run"])
    for words in (
        "Training together with fedcafe finds relevant items with 60\u00a0% average precision (mAP)",
        "12 rows were left out",
        "The queries were drawn at random.",
        "this section holds texts and pictures of north, south",
        "4 more items are equally near",
        "“text chess knight”",
        "✓ relevant",
        "✗ not relevant",
        "not judged",
        "2 bits",
        "1 bit<",
        "updates rejected in 2 rounds; 1 warning",
        "Title of fedcafe",
        "1,234",
        "How to read this report",
    ):
        assert words in page, words


def test_bars_are_as_long_as_their_values():
    data = made_up_report(runs=(MethodRun(name="a", rows=(row(value=0.25, low=0.125, high=0.5, prior=0.17),)),))
    page = render(data)
    assert 'class="fill" style="width:25.0%"' in page
    assert 'class="whisker" style="left:12.5%;right:calc(100% - 50.0%)"' in page
    assert "<b>25.0</b>&nbsp;%" in page
    assert "(12.5–50.0)" in page
    assert 'style="width:17.0%"' in page


def test_examples_show_pictures_where_there_are_some_and_texts_elsewhere():
    examples = outline(render(REPORTS["one run"]))
    lists = [attributes["class"] for tag, attributes in examples if tag == "ol"]
    assert lists == ["hits texts", "hits texts"]
    with_pictures = REPORTS["one run"].examples.searches[0].hits[1:]
    searches = (ExampleSearch(task="t2i", query=item("a"), hits=with_pictures),)
    page = render(made_up_report(examples=Examples(searches=searches)))
    assert '<ol class="hits">' in page
    assert page.count("<img ") == 2
    given = (ExampleSearch(task="i2t", query=item("b", text=""), hits=()),)
    page = render(made_up_report(examples=Examples(searches=given)))
    assert "Item b" in page
    assert "No silo returned an item." in page


def test_ranks_are_shown_where_they_give_the_order():
    hit = ExampleHit(item=item("a"), distance_bits=7, rank=3, relevant=True)
    page = render(
        made_up_report(examples=Examples(searches=(ExampleSearch(task="i2t", query=item("q"), hits=(hit,)),)))
    )
    assert "rank 3, 7 bits" in page


def test_many_warnings_are_folded():
    warnings = tuple(ReportWarning("training", f"warning {n}") for n in range(5))
    page = render(made_up_report(warnings=warnings))
    assert "2 more</summary>" in page
    assert all(f"warning {n}" in page for n in range(5))
    assert "more</summary>" not in render(made_up_report(warnings=warnings[:3]))


def test_silos_lacking_nothing_need_no_column_for_it():
    assert '<th scope="col">lacks</th>' in render(REPORTS["one run"])
    assert '<th scope="col">lacks</th>' not in render(made_up_report(silos=(SiloSummary(name="a", items=1, train=1),)))


def test_labels_are_shaded_by_the_silos_share_and_rare_ones_folded():
    table = LabelTable(("a", "b"), tuple("xyz"), np.array([[1, 2, 0], [3, 2, 0]]))
    page = render(made_up_report(label_table=table))
    assert [int(n) for n in re.findall(r"--share:(\d+)", page)] == [25, 75, 50, 50, 0, 0]
    many = LabelTable(("a",), tuple(f"label {n}" for n in range(40)), np.ones((1, 40), np.int64))
    page = render(made_up_report(label_table=many))
    assert "18 more labels</summary>" in page
    assert "12 of 40 are shown here" in page


def test_text_from_elsewhere_is_not_markup():
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    bad = item(evil, silo=evil, text=evil, labels=(evil,))
    search = ExampleSearch(task="t2i", query=bad, hits=(ExampleHit(item=bad, distance_bits=1),))
    method = card(evil, title=evil, summary=evil, link="javascript:alert(1)")
    run = MethodRun(name=evil, rows=(row(run=evil, measure=evil),), cards=(method,))
    page = render(
        made_up_report(
            title=evil, facts={evil: evil}, runs=(run, made_up_run("b")), examples=Examples(drawn=evil, searches=(search,)),
            silos=(SiloSummary(name=evil, items=1, train=1),), warnings=(ReportWarning("training", evil),),
        )
    )  # fmt: skip
    elements = outline(page)
    assert "<script" not in page
    assert not [attributes for _, attributes in elements if "onerror" in attributes]
    assert "javascript:" not in page


def test_hidden_characters_of_a_silo_are_shown():
    evil = "\x1b[31m\u202ered\u2069\u200b\0\n"
    bad = item(evil, silo=evil, text=evil, labels=(evil,))
    search = ExampleSearch(task="t2i", query=bad, hits=(ExampleHit(item=bad, distance_bits=1),))
    page = render(
        made_up_report(
            title=evil, facts={evil: evil}, runs=(made_up_run(evil), made_up_run("b")),
            examples=Examples(drawn=evil, searches=(search,)), silos=(SiloSummary(name=evil, items=1, train=1),),
            label_table=LabelTable((evil,), (evil,), np.ones((1, 1), np.int64)),
            warnings=(ReportWarning("training", evil),),
        )
    )  # fmt: skip
    assert not {"\x1b", "\u202e", "\u2069", "\u200b", "\0"} & set(page)
    assert page.count("⟨U+001B⟩[31m⟨U+202E⟩red⟨U+2069⟩⟨U+200B⟩⟨U+0000⟩⟨U+000A⟩") > 10


def test_method_that_uses_the_label_of_the_query_is_kept_apart():
    unfair = made_up_run("unfair", 0.3, cards=(card("unfair", needs_label_at_query=True),))
    page = render(made_up_report(runs=(made_up_run("a"), made_up_run("b", 0.1), unfair)))
    assert "<h1>a finds relevant items with 60\u00a0% average precision (mAP) and b with 70\u00a0%.</h1>" in page
    assert "Not compared" in page
    comparison = page[page.index('id="comparison"') : page.index('id="results"')]
    assert '<th scope="col">unfair</th>' not in comparison
    assert "(uses the label of the query)" in page


def test_leader_is_tinted_and_an_overlap_is_said():
    page = render(made_up_report(runs=(made_up_run("a"), made_up_run("b", 0.01))))
    assert page.count('<td class="best">') == 4
    assert page.count("overlaps</small>") == 4
    assert "overlaps</small>" not in render(made_up_report(runs=(made_up_run("a"), made_up_run("b", 0.1))))


def test_figures_over_unseen_items_are_beside_those_over_all_items():
    run = made_up_run("fedcafe")
    unseen = tuple(replace(one, value=0.4, low=0.38, high=0.42, protocol=f"{one.protocol}{UNSEEN}") for one in run.rows)
    page = render(made_up_report(runs=(replace(run, unseen=unseen[1:]),)))
    table = page[page.index('id="results"') :]
    assert table.count("unseen items only</th>") == 1
    assert table.count('<span class="figure">40.0</span> <span class="soft">38.0–42.0</span>') == len(unseen) - 1
    whole = render(made_up_report(runs=(replace(run, unseen=unseen),)))
    note = "<p>Without the items that silos trained on: Training together with fedcafe finds relevant items with 40\u00a0% "
    assert note in whole
    assert whole.index("60\u00a0%") < whole.index(note)  # the headline is about all items


def test_figures_over_unseen_items_are_left_out_where_they_are_the_same():
    page = render(made_up_report())
    assert "unseen" not in page
    assert "Without the items" not in page
    several = (made_up_run("a"), made_up_run("b", unseen=(row(run="b", protocol=f"default{UNSEEN}"),)))
    assert "Without the items" not in render(made_up_report(runs=several))  # one of the runs has no such figures


def test_costs_of_hashing_are_side_by_side_if_they_are_known():
    run = made_up_run("fedcafe")
    costs = tuple(row(run=name, value=value, low=0.3, high=0.5) for name, value in (("ITQ", 0.42), ("fedcafe", 0.41)))
    page = render(made_up_report(runs=(replace(run, costs=costs),)))
    table = page[page.index('id="costs"') : page.index('id="results"')]
    assert table.index(">ITQ</th>") < table.index(">fedcafe</th>")
    assert table.index('<span class="figure">42.0</span>') < table.index('<span class="figure">41.0</span>')
    assert '<a href="#costs">' in page
    assert "What hashing costs" not in render(made_up_report(runs=(run,)))


def test_queries_without_a_relevant_item_are_counted_per_evaluation():
    others = (row(task="i2t", queries_without_relevant=1234), row(evaluation="XS", queries_without_relevant=0))
    rows = (row(), row(measure="P@10"), *others)
    page = render(made_up_report(runs=(MethodRun(name="fedcafe", rows=rows),)))
    assert "Queries without a relevant item: 12 (GG t2i); 1,234 (GG i2t)." in page
    assert "Queries without a relevant item" not in render(
        made_up_report(runs=(MethodRun(name="fedcafe", rows=(row(queries_without_relevant=0),)),))
    )


def test_silos_keep_their_color_and_examples_may_name_others():
    found = badges(made_up_report(silos=tuple(SiloSummary(name=f"s{n}", items=1, train=1) for n in range(7))))
    assert found == {"s0": 1, "s1": 2, "s2": 3, "s3": 4, "s4": 5, "s5": 6, "s6": 1, "north": 2, "south": 3}
    assert badges(REPORTS["nothing"]) == {}


def test_curve_without_any_precision_is_left_out():
    run = made_up_run("a")
    empty = tuple(type(curve)(curve.task, (NAN, NAN), (0.0, 1.0), name="a") for curve in run.radius_curves)
    page = render(made_up_report(runs=(made_up_run("a", radius_curves=empty),)))
    assert 'id="radius"' not in page
    assert 'id="training"' in page


def test_reliability_has_a_diagram_and_the_expected_calibration_error():
    run = made_up_run("a")
    sure = replace(run.radius_curves[0], reliability=((0.35, 0.25, 0.5), (0.85, 0.65, 0.5)))
    page = render(made_up_report(runs=(made_up_run("a", radius_curves=(sure, run.radius_curves[1])),)))
    figure = page[page.index('<figure id="reliability">') :]
    assert figure.index("<svg") < figure.index("</figure>")
    cells = re.findall(r'<td class="n">([\d.]*)</td>', figure[: figure.index("</figure>")])
    assert [float(cell) for cell in cells if cell] == [35.0, 25.0, 50.0, 15.0, 85.0, 65.0, 50.0]
    assert 'id="reliability"' not in render(made_up_report(runs=(run,)))


def test_long_curves_are_listed_at_evenly_spaced_radii():
    run = made_up_run("a")
    shares = tuple(n / 64 for n in range(65))
    curve = type(run.radius_curves[0])("t2i", shares, shares, name="a")
    page = render(made_up_report(runs=(made_up_run("a", radius_curves=(curve,)),)))
    radii = [int(n) for n in re.findall(r'<td>t2i</td><td class="n">(\d+)</td>', page)]
    assert radii == list(range(0, 65, 4))


def test_equal_data_give_equal_pages(tmp_path):
    write_report(made_up_report(), tmp_path / "a.html")
    write_report(made_up_report(), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_oracle_figures_have_no_headline():
    rows = tuple(row(run="a", database_code=f"one view{ORACLE}", task=task) for task in ("i2t", "t2i"))
    page = render(made_up_report(runs=(made_up_run("a", rows=rows),)))
    assert "<h1>These are oracle figures: queries were encoded with their true labels.</h1>" in page
    assert "mAP@all (oracle)" in page


def test_rounds_without_a_loss_have_a_dash():
    curve = RoundCurve("fedcafe", (1, 2), (NAN, NAN), (0.3, 0.6), best_round=2)
    page = render(made_up_report(runs=(made_up_run("fedcafe", curve=curve),)))
    assert '<td class="n">2 (kept)</td><td class="n">–</td><td class="n">60.0</td>' in page
    assert "Training loss" not in page


def test_a_report_by_pairs_has_no_empty_columns_and_no_nan():
    pairs = tuple(
        row(run="fedcafe", task=task, measure=measure, value=value, low=value / 2, high=value * 2, best=NAN, worst=NAN)
        for task in ("i2t", "t2i")
        for measure, value in (("R@10[by=pairs]", 0.25), ("MedR[by=pairs]", 41.5))
    )
    silos = (SiloSummary(name="north", items=3, train=2), SiloSummary(name="south", items=5, train=1))
    run = made_up_run("fedcafe", rows=pairs, radius_curves=())
    examples = replace(made_up_examples(), relevant=OWN_PARTNER)
    page = render(made_up_report(runs=(run,), silos=silos, label_table=None, examples=examples))
    assert "label drift" not in page.lower()
    assert not re.search(r">\s*nan\b", page, flags=re.IGNORECASE)
    assert "41.5" in page
    assert "4150" not in page
    assert page.count('<svg class="mark"') == 2
    assert "shares a label with the query" not in page
    assert "The items of the split query were searched." in page
    assert "Recall of pairs" in page
    assert "<b>✓ own partner</b>" in page
    assert "<b>✗ another item</b>" in page
    assert "not relevant</b>" not in page
    labeled = render(made_up_report())
    assert "label drift" in labeled.lower()
    assert "Recall of pairs" not in labeled
    assert "A result is relevant if it shares a label with the query." in labeled


def interval_mark(value, **changed):
    """Draws a figure as the table of all figures does."""
    macros = html_environment("silohash.report").get_template("macros.html").make_module({"isfinite": math.isfinite})
    return macros.mark(row(value=value, **changed))


def test_interval_mark_stays_within_its_scale():
    svg = interval_mark(1.2, low=-0.3, high=2.0, worst=NAN, best=NAN, prior=NAN)
    places = [float(place) for place in re.findall(r'(?:x1|x2|cx)="([^"]+)"', svg)]
    assert min(places) == 2
    assert max(places) == 122
    assert "circle" not in interval_mark(NAN, low=NAN, high=NAN, worst=NAN, best=NAN, prior=0.2)


def test_interval_mark_is_drawn_to_scale():
    svg = interval_mark(0.5, low=0.25, high=0.75, worst=0.1, best=0.9, prior=0.2)
    lines = [(float(a), float(b)) for a, b in re.findall(r'<line x1="([^"]+)" y1="8" x2="([^"]+)"', svg)]
    assert lines == [(2, 122), (14, 110), (32, 92)]
    assert 'cx="62.0"' in svg
    assert '<line x1="26.0" y1="3" x2="26.0" y2="13"' in svg


def test_the_interval_mark_in_full():
    assert interval_mark(0.5, low=0.25, high=0.75, worst=0.0, best=1.0, prior=NAN) == (
        '<svg class="mark" viewBox="0 0 124 16" width="124" height="16" aria-hidden="true">'
        '<line x1="2" y1="8" x2="122" y2="8" stroke="var(--line)" stroke-width="1"/>'
        '<line x1="2.0" y1="8" x2="122.0" y2="8" stroke="var(--accent)" stroke-width="1.5" stroke-opacity="1.0"/>'
        '<line x1="32.0" y1="8" x2="92.0" y2="8" stroke="var(--accent)" stroke-width="6.0" stroke-opacity="0.35"/>'
        '<circle cx="62.0" cy="8" r="3.4" fill="var(--accent)"/></svg>'
    )
