"""Plots: their texts are texts, their colors are those of the page, and equal data give equal plots."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from silohash.measure.evaluation import RadiusCurve
from silohash.report import plots
from silohash.report.plots import (
    LabelTable,
    RoundCurve,
    label_cells,
    label_map_height,
    legend_items,
    precision_recall,
    reliability,
    round_curves,
)
from silohash.report.style import COLORS, drawing
from tests.reports import NAN

ODD = 'a & b <c> "$x$" _hidden 例'
ROUNDS = RoundCurve(ODD, (1, 2, 3), (2.0, NAN, 0.5), (NAN, 0.6, 0.5), best_round=2)
SECOND = RoundCurve("_second", (1, 2, 3), (1.0, 1.0, 1.0))
RADIUS = RadiusCurve("t2i", (NAN, 0.9, 0.6, 0.2), (0.0, 0.2, 0.7, 1.0), 0.17, name=ODD)
PLOTS = {
    "rounds": lambda: round_curves([ROUNDS, SECOND], measure="mAP@all"),
    "one round": lambda: round_curves([RoundCurve("a", (1,), (2.0,))]),
    "radius": lambda: precision_recall([RADIUS, RadiusCurve("i2t", (0.5, 0.2), (0.1, 1.0), name="_second")]),
    "reliability": lambda: reliability([replace(RADIUS, reliability=((0.3, 0.2, 0.4), (0.9, 0.8, 0.6)))]),
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
    assert round_curves([RoundCurve("a", (1, 2), (NAN, NAN))]) == []
    (scores,) = round_curves([RoundCurve("a", (1, 2), (NAN, NAN), (0.3, 0.6))])
    assert "Validation" in scores


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


def test_labels_are_shown_by_frequency():
    table = LabelTable(("a", "b"), tuple("xyz"), np.array([[1, 5, 0], [1, 0, 3]]))
    assert table.shown() == [1, 2, 0]


def test_map_grows_with_its_labels_and_with_rotated_names():
    def height(silos, labels):
        return label_map_height(LabelTable(("a" * 3,) * silos, ("l",) * labels, np.ones((silos, labels), np.int64)))

    assert height(2, 5) - height(2, 4) == pytest.approx(0.25)
    assert height(9, 4) - height(8, 4) == pytest.approx(0.5)
    assert height(2, 30) == height(2, 31)


@pytest.fixture
def figures(monkeypatch):
    """Collect the figures instead of writing them as SVG."""
    found = []
    monkeypatch.setattr(plots, "page_svg", lambda figure, *_, **__: found.append(figure))
    return found


def test_the_panel_of_a_task_holds_its_curve_radii_and_level(figures):
    precision_recall([RadiusCurve("t2i", (0.9, 0.9, 0.9, NAN), (0.0, 0.1, 0.14, 0.9), 0.17, name="a")])
    (panel,) = figures[0].axes
    assert figures[0].get_size_inches().tolist() == [4.0, 2.7]
    assert (panel.get_xlim(), panel.get_ylim()) == ((-0.02, 1.02), (0, 1.03))
    assert panel.lines[0].get_xdata().tolist() == [0.0, 0.1, 0.14, 0.9]
    assert panel.lines[1].get_ydata() == [0.17, 0.17]
    radii = {text.get_text(): getattr(text, "xy", text.get_position()) for text in panel.texts}
    assert radii == {"≤ 0 bits": (0.0, 0.9), "2": (0.14, 0.9), "random codes": (0.0, pytest.approx(0.185))}


def test_radii_are_far_enough_apart_in_either_direction(figures):
    precision_recall([RadiusCurve("t2i", (0.9, 0.8, 0.76), (0.2, 0.2, 0.2), name="a")])
    assert [text.get_text() for text in figures[0].axes[0].texts] == ["≤ 0 bits", "2"]


def test_several_curves_have_no_radii_and_equal_levels_one_line(figures):
    precision_recall(
        [RadiusCurve("t2i", (0.9,), (0.1,), prior, name=name) for name, prior in (("a", 1e-7), ("b", 3e-7))]
    )
    (panel,) = figures[0].axes
    assert len(panel.lines) == 3
    assert [text.get_text() for text in panel.texts] == ["random codes"]


def test_rounds_are_whole_numbers_and_the_ring_stands_on_its_line(figures):
    round_curves([RoundCurve("a", (1, 2), (1.0, 0.5), (0.25, 0.5), best_round=2)])
    loss, validation = (figure.axes[0] for figure in figures)
    assert all(float(tick).is_integer() for tick in validation.get_xticks())
    line, ring = validation.lines
    assert line.get_ydata().tolist() == [0.25, 0.5]
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([2], [0.5])
    assert len(loss.lines) == 1


def test_a_swatch_is_a_line_with_one_marker(figures):
    legend_items(["a", "b"], {"a", "b"})
    (axes,) = figures[1].axes
    assert figures[1].get_size_inches().tolist() == [0.36, 0.16]
    assert axes.get_position().bounds == (0.0, 0.0, 1.0, 1.0)
    assert (axes.lines[0].get_xdata().tolist(), axes.lines[0].get_ydata().tolist()) == ([0, 1, 2], [0, 0, 0])
    assert axes.lines[0].get_markevery() == [1]
    assert not axes.axison


def test_cells_are_as_strong_as_their_silos_share():
    strengths = [0.25, 1.0, 0.75, 0.0]
    table = LabelTable(("a", "b"), ("x", "y"), np.array([[1, 3], [3, 0]]))
    with drawing(4, 3) as figure:
        axes = figure.subplots()
        label_cells(axes, table)
        background, cells = axes.collections
        assert cells.get_facecolor()[:, 3] == pytest.approx([0.62 * strength for strength in strengths])
        assert background.get_facecolor()[0, 3] == 0.35
        first, last = cells.get_paths()[0].vertices, cells.get_paths()[3].vertices
        assert first[:4].tolist() == [[0.02, 0.04], [0.98, 0.04], [0.98, 0.96], [0.02, 0.96]]
        assert last[0].tolist() == pytest.approx([1.02, 1.04])
        places = [(text.get_text(), text.get_position()) for text in axes.texts]
        assert places == [("1", (0.5, 0.5)), ("3", (0.5, 1.5)), ("3", (1.5, 0.5)), ("0", (1.5, 1.5))]
        assert not any(text.get_in_layout() for text in axes.texts)
        assert (axes.get_xlim(), axes.get_ylim()) == ((0, 2), (2, 0))
        assert (axes.get_xticks().tolist(), axes.get_yticks().tolist()) == ([0.5, 1.5], [0.5, 1.5])
        assert not any(spine.get_visible() for spine in axes.spines.values())
        assert not any(line.get_visible() for line in axes.get_xgridlines())


def test_relative_cells_reach_the_strongest_color():
    table = LabelTable(("a", "b", "c"), ("x",), np.array([[2], [1], [1]]))
    with drawing(4, 3) as figure:
        axes = figure.subplots()
        label_cells(axes, table)
        assert axes.collections[1].get_facecolor()[0, 3] == pytest.approx(0.62)


@pytest.mark.parametrize(("silos", "numbers"), [(16, 16), (17, 0)])
def test_numbers_are_left_out_with_many_silos(silos, numbers):
    table = LabelTable(("s",) * silos, ("x" * 29,), np.zeros((silos, 1), np.int64))
    with drawing(4, 3) as figure:
        axes = figure.subplots()
        label_cells(axes, table)
        assert len(axes.texts) == numbers
        assert [text.get_text() for text in axes.get_yticklabels()] == ["x" * 27 + "…"]
        assert axes.get_xticklabels()[0].get_rotation() == 35


@pytest.mark.parametrize(("length", "silos", "extra"), [(40, 2, 0.0), (27, 3, 0.5), (1, 8, 0.0), (1, 9, 0.5)])
def test_names_are_turned_if_they_do_not_fit(length, silos, extra):
    table = LabelTable(("n" * length,) * silos, ("x",), np.ones((silos, 1), np.int64))
    assert label_map_height(table) == pytest.approx(0.62 + 0.25 + extra)
