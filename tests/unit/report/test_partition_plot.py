"""The picture of a partition: what it draws, and that it is the same file again."""

from __future__ import annotations

import matplotlib.image
import numpy as np
import pytest

from silohash.base.errors import WrongKindOfFile
from silohash.data.partitions.drift import DISTANCES, Drift
from silohash.report import plots
from silohash.report.plots import LabelTable, draw_partition, label_map_height, partition_figure
from silohash.report.style import drawing

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
    with pytest.raises(WrongKindOfFile):
        draw_partition(DRIFT, LABELS, tmp_path / "a.pdf", title="three silos")
    assert list(tmp_path.iterdir()) == []


def drawn(monkeypatch, silos, labels=3):
    """Return the axes of a partition whose silo i holds i + 1 items of label i, and the size of the figure in inches."""
    counts = np.zeros((silos, labels), np.int64)
    counts[np.arange(silos), np.arange(silos) % labels] = np.arange(silos) + 1
    names = tuple(f"s{number}" for number in range(silos))
    drift, figures = Drift(names, counts, counts.sum(axis=0), counts.sum(axis=1)), []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path, title: figures.append(figure))
    draw_partition(drift, tuple(f"l{number}" for number in range(labels)), "a.svg", title="made up")
    table = LabelTable(names, tuple(map(str, range(labels))), counts)
    return drift, figures[0].axes, figures[0].get_size_inches().tolist(), label_map_height(table), figures[0]


@pytest.mark.parametrize(("silos", "width"), [(3, 7.2), (20, 11.0), (40, 16.0)])
def test_the_figure_grows_with_silos_and_labels(monkeypatch, silos, width):
    _, (sizes, cells, distances), inches, map_inches, _ = drawn(monkeypatch, silos)
    assert inches == pytest.approx([width, 1.0 + map_inches + 1.9 + 0.7])
    assert sizes.get_gridspec().get_height_ratios() == pytest.approx([1.0, map_inches, 1.9])
    assert sizes.get_ylim() == pytest.approx((0, 1.2 * silos))
    assert cells.get_title(loc="left") == "Items of each label"
    assert distances.get_yticks().tolist() == [0, 0.5, 1]


def test_the_panel_of_sizes_has_neither_ticks_nor_frame(monkeypatch):
    _, (sizes, _, distances), _, _, figure = drawn(monkeypatch, 3)
    assert sizes.get_xticks().tolist() == sizes.get_yticks().tolist() == []
    assert not sizes.spines["left"].get_visible()
    assert not distances.spines["left"].get_visible()
    assert [bar.get_width() for bar in sizes.patches] == pytest.approx([0.62] * 3)
    assert [text.get_position()[1] for text in sizes.texts] == [1, 2, 3]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(DISTANCES)
    assert not any(line.get_visible() for line in sizes.get_xgridlines() + distances.get_xgridlines())
    assert all(line.get_visible() for line in distances.get_ygridlines())


def test_markers_of_a_silo_stand_side_by_side_and_lines_show_the_means(monkeypatch):
    drift, (_, _, panel), _, _, _ = drawn(monkeypatch, 3)
    markers = [line for line in panel.lines if line.get_marker() != "None"]
    for number, line in enumerate(markers):
        assert line.get_xdata().tolist() == pytest.approx([0.5 + 0.18 * (number - 1) + s for s in range(3)])
        assert line.get_linestyle() == "None"
    means = [line.get_ydata()[0] for line in panel.lines if line.get_marker() == "None" and line.get_xdata()[0] == 0]
    assert means[: len(DISTANCES)] == pytest.approx([drift.over_pairs(name)[0] for name in DISTANCES])
    borders = [line.get_xdata()[0] for line in panel.lines if list(line.get_ydata()) == [0, 1] and line.get_xdata()[0]]
    assert borders == [1, 2]
    assert panel.get_xticks().tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize(("labels", "says"), [(30, ""), (31, "the 30 most frequent labels; 1 are not shown")])
def test_labels_beyond_the_most_frequent_are_counted(monkeypatch, labels, says):
    _, (_, cells, _), _, _, _ = drawn(monkeypatch, 3, labels)
    assert cells.xaxis.get_label().get_text() == says


@pytest.mark.parametrize(("silos", "numbers"), [(16, 7.5), (17, 6.0)])
def test_numbers_are_smaller_with_many_silos(monkeypatch, silos, numbers):
    _, (sizes, _, distances), _, _, _ = drawn(monkeypatch, silos)
    assert sizes.texts[0].get_fontsize() == distances.get_xticklabels()[0].get_fontsize() == numbers


def test_a_partition_without_items_has_an_empty_panel_of_sizes():
    nothing = np.zeros((2, 2), np.int64)
    drift = Drift(("a", "b"), nothing, nothing.sum(axis=0), np.array([0, 0]))
    with drawing(7.2, 5) as figure:
        partition_figure(figure, drift, LabelTable(drift.silos, ("x", "y"), nothing), (1.0, 1.0, 1.0))
        assert figure.axes[0].get_ylim() == (0, 1.2)
