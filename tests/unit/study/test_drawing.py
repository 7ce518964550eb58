"""What is drawn in a panel: bands, heat maps, surfaces, points, bars and example searches."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from matplotlib.colors import to_hex

from silohash.report.examples import ExampleHit, ExampleItem, ExampleSearch
from silohash.report.plots import LabelTable
from silohash.report.style import INK, LINE, SERIES, drawing
from silohash.study.drawing import (
    LARGEST_DISK,
    MOST_STACKED,
    OTHER,
    RELEVANT,
    draw_band,
    draw_bubbles,
    draw_heat_map,
    draw_planes,
    draw_relief,
    draw_searches,
    draw_stacked,
    scale_axis,
)
from silohash.study.run_data import LabeledCodes


def axes_with(draw):
    """Draws on an empty panel and returns the panel and the result."""
    with drawing(4.0, 3.0) as figure:
        axes = figure.subplots()
        return axes, draw(axes)


def test_band_is_the_mean_between_the_extremes_of_common_rounds():
    curves = [([1.0, 2.0, 3.0], [1.0, 2.0, 9.0]), ([3.0, 4.0], [3.0, 2.5])]
    axes, drawn = axes_with(lambda axes: draw_band(axes, curves, 0))
    assert drawn
    (line,) = axes.lines
    assert line.get_xdata() == pytest.approx([2.0, 3.0])
    assert line.get_ydata() == pytest.approx([2.0, 2.25])
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).extents == pytest.approx([2.0, 1.0, 3.0, 3.0])
    for changed, band in ((curves[:1], True), (curves, False)):
        bare, _ = axes_with(lambda axes, changed=changed, band=band: draw_band(axes, changed, 0, band=band))
        assert (len(bare.lines), len(bare.collections)) == (1, 0)


def test_places_without_a_value_for_some_seed_are_left_out():
    curves = [([0.0, 0.2, 1.0], [nan, 0.8, 0.5]), ([0.1, 0.4, 1.0], [1.0, 0.6, 0.5])]
    axes, _ = axes_with(lambda axes: draw_band(axes, curves, 0))
    assert axes.lines[0].get_xydata().tolist() == [pytest.approx([0.3, 0.7]), [1.0, 0.5]]


@pytest.mark.parametrize("curves", [[], [([], [])], [([1.0, 2.0], [nan, nan])]])
def test_nothing_to_draw(curves):
    axes, drawn = axes_with(lambda axes: draw_band(axes, curves, 0))
    assert not drawn
    assert len(axes.lines) == 0


def test_heat_map_has_a_color_and_a_number_per_figure_and_a_frame_around_the_highest():
    values = np.array([[0.2, 0.5, nan], [0.3, 0.25, 0.4]])
    axes, _ = axes_with(lambda axes: draw_heat_map(axes, values, ["0.2", "0.8"], ["a", "b", "c"]))
    assert [[tick.get_text() for tick in ticks] for ticks in (axes.get_yticklabels(), axes.get_xticklabels())] == [
        ["0.2", "0.8"], ["a", "b", "c"],
    ]  # fmt: skip
    assert [(text.get_position(), text.get_text(), text.get_color()) for text in axes.texts] == [
        ((0, 0), "0.200", INK), ((1, 0), "0.500", "white"), ((0, 1), "0.300", INK), ((1, 1), "0.250", INK),
        ((2, 1), "0.400", "white"),
    ]  # fmt: skip
    (frame,) = axes.patches
    assert frame.get_xy() == (0.5, -0.5)
    (shown,) = axes.images
    assert shown.get_array().mask.tolist() == [[False, False, True], [False, False, False]]


def test_heat_map_without_figures_has_names_only():
    axes, _ = axes_with(lambda axes: draw_heat_map(axes, np.full((1, 2), nan), ["1"], ["2", "3"]))
    assert (len(axes.texts), len(axes.patches)) == (0, 0)
    assert len(axes.get_xticklabels()) == 2


@pytest.mark.parametrize(
    ("places", "scale"),
    [([16, 32, 128], "log"), ([2, 5, 10], "linear"), (range(100, 1001, 100), "linear"), ([0, 10, 100], "linear")],
)
def test_an_axis_is_logarithmic_where_that_spreads_its_values(places, scale):
    axes, _ = axes_with(lambda axes: scale_axis(axes, np.array(places, float)))
    assert axes.get_xscale() == scale


def test_relief_has_the_figures_as_heights():
    values = np.array([[0.2, 0.5, 0.3], [0.3, 0.25, 0.4]])
    with drawing(4.0, 3.0) as canvas:
        axes = canvas.subplots(subplot_kw={"projection": "3d"})
        draw_relief(axes, values, ["0.2", "0.8"], ["a", "b", "c"])
        assert axes.get_zlim() == pytest.approx((0.2, 0.5), abs=0.01)
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0.2", "0.8"]
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c"]
        (surface,) = axes.collections
        assert len(surface.get_facecolors()) == 2
        draw_relief(canvas.add_subplot(projection="3d"), np.full((2, 2), nan), ["1", "2"], ["3", "4"])


def test_points_have_the_color_of_their_label_in_every_panel():
    signs = np.ones((3, 4), np.int8)
    one = LabeledCodes(signs, np.array([0, 1, 1]), ("a", "b", "c"), ("cat", "dog"))
    other = LabeledCodes(signs, np.array([0, 0, 1]), ("a", "b", "c"), ("dog", "eel"))
    points = np.arange(6.0).reshape(3, 2)
    with drawing(7.2, 3.0) as canvas:
        draw_planes(canvas, ["first", "second"], [one, other], [points, points])
        first, second = canvas.axes
        found = [[(to_hex(dots.get_facecolor()[0]), dots.get_offsets().tolist()) for dots in axes.collections]
                 for axes in (first, second)]  # fmt: skip
        assert found[0] == [(SERIES[0], points[:1].tolist()), (SERIES[1], points[1:].tolist())]
        assert found[1] == [(SERIES[1], points[:2].tolist()), (SERIES[2], points[2:].tolist())]
        assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["cat", "dog", "eel"]
        draw_planes(canvas, ["1", "2", "3", "4"], [one] * 4, [points] * 4)
        assert [axes.axison for axes in canvas.axes[2:]] == [True] * 4 + [False] * 2


def test_bars_add_up_to_the_counts_with_the_rarest_labels_together():
    counts = np.arange(2 * (MOST_STACKED + 2)).reshape(2, -1)
    table = LabelTable(("north", "south"), tuple(f"label {n}" for n in range(MOST_STACKED + 2)), counts)
    axes, _ = axes_with(lambda axes: draw_stacked(axes, table))
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["north", "south"]
    names = [bars.get_label() for bars in axes.containers]
    assert names[0] == f"label {MOST_STACKED + 1}"
    assert names[-1] == "2 other labels"
    ends = [bar.get_x() + bar.get_width() for bar in axes.containers[-1]]
    assert ends == counts.sum(axis=1).tolist()
    assert [bar.get_width() for bar in axes.containers[-1]] == counts[:, :2].sum(axis=1).tolist()
    assert to_hex(axes.containers[-1][0].get_facecolor()) == LINE
    few, _ = axes_with(lambda axes: draw_stacked(axes, LabelTable(("a",), ("b", "c"), np.array([[1, 2]]))))
    assert [bars.get_label() for bars in few.containers] == ["c", "b"]


def test_areas_of_disks_follow_the_counts():
    table = LabelTable(("north", "south"), ("rare", "frequent"), np.array([[1, 4], [0, 2]]))
    axes, _ = axes_with(lambda axes: draw_bubbles(axes, table))
    (disks,) = axes.collections
    places = {tuple(place): area for place, area in zip(disks.get_offsets().tolist(), disks.get_sizes(), strict=True)}
    assert places == {
        (0, 0): LARGEST_DISK, (0, 1): LARGEST_DISK / 4, (1, 0): LARGEST_DISK / 2, (1, 1): 0.0,
    }  # fmt: skip
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["frequent", "rare"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def test_results_are_framed_by_relevance_and_have_their_picture_or_text():
    hits = [
        ExampleHit(item=ExampleItem(item_id=str(place), silo="a", text=f"text {place}", picture=picture),
                   distance_bits=place, relevant=relevant)
        for place, (picture, relevant) in enumerate([(PICTURE, True), ("", False), ("", None)])
    ]  # fmt: skip
    query = ExampleItem(item_id="q", silo="a", text="query")
    searches = [ExampleSearch(task="t2i", query=query, hits=tuple(hits[:count])) for count in (3, 1)]
    with drawing(7.2, 3.0) as canvas:
        draw_searches(canvas, searches, 2)
        first, *shown = canvas.axes
        assert [text.get_text() for text in first.texts] == ["query"]
        assert [axes.get_title(loc="left") for axes in shown[:2]] == ["1 ✓ 0 bits", "2 ✗ 1 bit"]
        assert [len(axes.images) for axes in shown[:2]] == [1, 0]
        assert [text.get_text() for text in shown[1].texts] == ["text 1"]
        frames = [to_hex(axes.spines["top"].get_edgecolor()) for axes in (first, *shown[:2])]
        assert frames == [INK, RELEVANT, OTHER]
        assert [axes.axison for axes in shown[2:]] == [True, True, False]


def test_results_of_a_model_that_scores_have_their_rank_and_score():
    item = ExampleItem(item_id="a", silo="a", text="text")
    hits = tuple(
        ExampleHit(item=item, distance_bits=4, rank=rank, score=score, relevant=True)
        for rank, score in [(1, 0.75), (37, -0.125)]
    )
    with drawing(7.2, 3.0) as canvas:
        draw_searches(canvas, [ExampleSearch(task="t2i", query=item, hits=hits)], 2)
        assert [axes.get_title(loc="left") for axes in canvas.axes[1:]] == ["1 ✓ score 0.750", "37 ✓ score -0.125"]
