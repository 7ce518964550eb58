"""Plots: their texts are texts, their colors are those of the page, and equal data give equal plots."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from silohash.report.plots import (
    LabelTable,
    RadiusCurve,
    RoundCurve,
    interval_mark,
    label_map_height,
    legend_items,
    precision_recall,
    round_curves,
)
from silohash.report.style import COLORS
from tests.reports import NAN

ODD = 'a & b <c> "$x$" _hidden 例'
ROUNDS = RoundCurve(ODD, (1, 2, 3), (2.0, NAN, 0.5), (NAN, 0.6, 0.5), best_round=2)
SECOND = RoundCurve("_second", (1, 2, 3), (1.0, 1.0, 1.0))
RADIUS = RadiusCurve(ODD, "t2i", (NAN, 0.9, 0.6, 0.2), (0.0, 0.2, 0.7, 1.0), 0.17)
PLOTS = {
    "rounds": lambda: round_curves([ROUNDS, SECOND], measure="mAP@all"),
    "one round": lambda: round_curves([RoundCurve("a", (1,), (2.0,))]),
    "radius": lambda: precision_recall([RADIUS, RadiusCurve("_second", "i2t", (0.5, 0.2), (0.1, 1.0))]),
    "legend": lambda: [svg for _, svg in legend_items([ODD, "b"], {ODD, "b"})],
}


def parsed(svg):
    return ElementTree.fromstring(svg)  # noqa: S314  our own plot


def words(svg):
    return ["".join(element.itertext()) for element in parsed(svg).iter() if element.tag.endswith("text")]


@pytest.mark.parametrize("name", PLOTS)
def test_plot_is_complete_and_equal_when_drawn_again(name):
    panels = PLOTS[name]()
    assert panels == PLOTS[name]()
    for svg in panels:
        root = parsed(svg)
        assert root.tag.endswith("svg")
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert "matplotlib" not in svg
        assert "font-family" not in svg


@pytest.mark.parametrize("name", PLOTS)
def test_every_color_is_one_of_the_page(name):
    for svg in PLOTS[name]():
        plain = re.sub(r"var\(--[a-z0-9-]+, #[0-9a-f]{6}\)", "", svg)
        assert set(re.findall(r"#[0-9a-f]{6}\b", plain)) == set()
        assert set(re.findall(r"var\(--([a-z0-9-]+),", svg)) <= set(COLORS.values())


def test_plots_on_one_page_share_no_inner_ids():
    ids = [name for plot in PLOTS.values() for svg in plot() for name in re.findall(r' id="([^"]+)"', svg)]
    assert len(set(ids)) == len(ids)


def test_each_score_has_a_panel():
    loss, validation = PLOTS["rounds"]()
    assert "Training loss" in words(loss)
    assert "Validation: mAP@all" in words(validation)
    assert len(PLOTS["one round"]()) == 1
    assert round_curves([]) == []


def test_a_ring_marks_the_round_that_was_kept():
    with_ring = round_curves([ROUNDS])[1]
    without = round_curves([RoundCurve(ODD, (1, 2, 3), (2.0, NAN, 0.5), (NAN, 0.6, 0.5))])[1]
    assert with_ring.count("<use ") == without.count("<use ") + 1
    assert round_curves([ROUNDS])[0] == round_curves([RoundCurve(ODD, (1, 2, 3), (2.0, NAN, 0.5), (NAN, 0.6, 0.5))])[0]


def test_each_task_has_a_panel_with_the_level_of_random_codes():
    first, second = PLOTS["radius"]()
    assert "A picture finds texts (i2t)" in words(first)
    assert "A text finds pictures (t2i)" in words(second)
    assert "random codes" in words(second)
    assert "random codes" not in words(first)
    assert "≤ 1 bits" in words(second)
    assert precision_recall([]) == []


def test_runs_look_the_same_in_every_plot():
    first, second = RoundCurve("a", (1, 2), (1.0, 2.0)), RoundCurve("b", (1, 2), (1.0, 2.0))
    assert "--series-2" in round_curves([second], names=["a", "b"])[0]
    assert "--series-1" not in round_curves([second], names=["a", "b"])[0]
    assert "--series-1" in round_curves([first], names=["a", "b"])[0]
    assert [("--series-1" in svg, "--series-2" in svg) for _, svg in legend_items(["a", "b"], {"a", "b"})] == [
        (True, False),
        (False, True),
    ]


def test_legend_names_the_drawn_series_if_there_are_several():
    assert [name for name, _ in legend_items(["a", "b", "c"], {"c", "a"})] == ["a", "c"]
    assert legend_items(["a", "b"], {"a"}) == []


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


def test_labels_are_shown_by_frequency():
    table = LabelTable(("a", "b"), tuple("xyz"), np.array([[1, 5, 0], [1, 0, 3]]))
    assert table.shown() == [1, 2, 0]


def test_map_grows_with_its_labels_and_with_rotated_names():
    def height(silos, labels):
        return label_map_height(LabelTable(("a" * 3,) * silos, ("l",) * labels, np.ones((silos, labels), np.int64)))

    assert height(2, 5) - height(2, 4) == pytest.approx(0.25)
    assert height(9, 4) - height(8, 4) == pytest.approx(0.5)
    assert height(2, 30) == height(2, 31)
