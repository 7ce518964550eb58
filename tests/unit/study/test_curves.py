"""Curves of a study's plots: their values, and what is drawn of several seeds."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest

from silohash.report.plots import RadiusCurve
from silohash.report.style import INK, drawing
from silohash.run.events import SiloRecord
from silohash.study.curves import CURVES, PLACES, draw_band, draw_heat_map, draw_precision
from tests.synthetic_studies import records


def axes_with(draw):
    """Draws on an empty panel and returns the panel and the result."""
    with drawing(4.0, 3.0) as figure:
        axes = figure.subplots()
        return axes, draw(axes)


def test_values_of_each_curve():
    rounds = records(3)
    (_, losses), (_, relative), (_, validations) = CURVES["loss"], CURVES["relative loss"], CURVES["validation"]
    assert losses(rounds) == pytest.approx([2.0, 1.0, 2 / 3])
    assert relative(rounds) == pytest.approx([1.0, 0.5, 1 / 3])
    assert validations(rounds) == pytest.approx([0.3, 0.4, 0.5])


def test_rounds_without_a_loss_or_a_score():
    first, *others = records(3)
    rounds = [replace(first, loss=None, validation=None), *others]
    assert CURVES["loss"][1](rounds) == pytest.approx([nan, 1.0, 2 / 3], nan_ok=True)
    assert CURVES["validation"][1](rounds) == pytest.approx([nan, 0.4, 0.5], nan_ok=True)
    assert np.isnan(CURVES["relative loss"][1](rounds)).all()
    assert np.isnan(CURVES["relative loss"][1]([replace(first, loss=0.0), *others])).all()
    assert CURVES["relative loss"][1]([]) == []


def test_places_over_rounds_and_over_the_training_of_all_silos():
    silos = [SiloRecord("a", 1, 0.0, 1.5), SiloRecord("b", 1, 0.0, 0.25)]
    rounds = [replace(record, silos=silos) for record in records(3)]
    assert PLACES["rounds"][1](rounds) == [1.0, 2.0, 3.0]
    assert PLACES["seconds"][1](rounds) == [1.75, 3.5, 5.25]


def test_band_is_the_mean_between_the_extremes_of_common_rounds():
    places, curves = [[1.0, 2.0, 3.0], [3.0, 4.0]], [[1.0, 2.0, 9.0], [3.0, 2.5]]
    axes, _ = axes_with(lambda axes: draw_band(axes, places, curves, 0))
    (line,) = axes.lines
    assert line.get_xdata() == pytest.approx([2.0, 3.0])
    assert line.get_ydata() == pytest.approx([2.0, 2.25])
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).extents == pytest.approx([2.0, 1.0, 3.0, 3.0])
    alone, _ = axes_with(lambda axes: draw_band(axes, places[:1], curves[:1], 0))
    assert (len(alone.lines), len(alone.collections)) == (1, 0)


@pytest.mark.parametrize("curves", [[], [[nan, nan]]])
def test_nothing_to_draw(curves):
    axes, _ = axes_with(lambda axes: draw_band(axes, [[1.0, 2.0]] * len(curves), curves, 0))
    assert len(axes.lines) == 0


def test_precision_over_recall_is_a_mean_per_radius():
    one = RadiusCurve("a", "i2t", (nan, 0.8, 0.5), (0.0, 0.2, 1.0))
    other = RadiusCurve("a", "i2t", (1.0, 0.6, 0.5), (0.1, 0.4, 1.0))
    axes, drawn = axes_with(lambda axes: draw_precision(axes, [one, other], 0))
    assert drawn
    (line,) = axes.lines
    assert line.get_xdata() == pytest.approx([0.3, 1.0])
    assert line.get_ydata() == pytest.approx([0.7, 0.5])


@pytest.mark.parametrize("curves", [[], [RadiusCurve("a", "i2t", (nan,), (0.0,))]])
def test_no_precision_to_draw(curves):
    axes, drawn = axes_with(lambda axes: draw_precision(axes, curves, 0))
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
