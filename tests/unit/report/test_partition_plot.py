"""The picture of a partition: what it draws, and that it is the same file again."""

from __future__ import annotations

import matplotlib.image
import numpy as np
import pytest

from silohash.data.partition.drift import DISTANCES, Drift
from silohash.report.partition_plot import draw_partition, partition_figure
from silohash.report.plots import LabelTable, label_map_height
from silohash.report.style import drawing
from silohash.types import UserError

COUNTS = np.array([[4, 1, 0], [0, 2, 2], [0, 0, 0]])
DRIFT = Drift(("north", "south", "empty"), COUNTS, COUNTS.sum(axis=0), np.array([5, 4, 1]))
LABELS = ("arrow", "boat", "chess")


def test_three_panels_a_column_a_silo():
    table = LabelTable(DRIFT.silos, LABELS, COUNTS)
    with drawing(7.2, 5) as figure:
        partition_figure(figure, DRIFT, table, (1.0, label_map_height(table), 2.0))
        sizes, cells, distances = figure.axes
        assert [bar.get_height() for bar in sizes.patches] == [5, 4, 1]
        assert [bar.get_center()[0] for bar in sizes.patches] == pytest.approx([0.5, 1.5, 2.5])
        assert [text.get_position()[0] for text in sizes.texts] == pytest.approx([0.5, 1.5, 2.5])
        assert distances.get_ylim() == (-0.04, 1.04)
        assert [text.get_text() for text in cells.texts] == [str(n) for n in COUNTS[:, table.shown()].ravel()]
        assert [text.get_text() for text in cells.get_xticklabels()] == ["north", "south", "empty"]
        marks = [line for line in distances.lines if line.get_marker() != "None"]
        assert len(marks) == len(DISTANCES)
        for line, name in zip(marks, DISTANCES, strict=True):
            assert np.array_equal(line.get_ydata(), DRIFT.from_pool(name), equal_nan=True)
        assert [text.get_text() for text in distances.get_xticklabels()] == ["1.6", "2.0", "–"]
        assert {panel.get_xlim() for panel in figure.axes} == {(0.0, 3.0)}


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_same_partition_same_bytes(tmp_path, suffix):
    for name in ("a", "b"):
        draw_partition(DRIFT, LABELS, tmp_path / f"{name}.{suffix}", title="three silos")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_the_picture_shows_something(tmp_path):
    draw_partition(DRIFT, LABELS, tmp_path / "a.png", title="three silos")
    pixels = matplotlib.image.imread(tmp_path / "a.png")
    assert pixels.shape[1] == pytest.approx(7.2 * 200, abs=2)
    assert 0.01 < (pixels[..., :3].min(axis=2) < 0.9).mean() < 0.5


def test_other_forms_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"neither \.svg nor \.png"):
        draw_partition(DRIFT, LABELS, tmp_path / "a.pdf", title="three silos")
    assert list(tmp_path.iterdir()) == []
