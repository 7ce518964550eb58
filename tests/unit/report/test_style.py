"""The style of plots: series that can be told apart, and figures as part of a page or as a file."""

from __future__ import annotations

from xml.etree import ElementTree

import matplotlib
import matplotlib.image
import pytest

from silohash.base.errors import WrongKindOfFile
from silohash.report.style import COLORS, INK, SERIES, drawing, legend, page_svg, save_figure, series, short


def test_text_is_shortened_only_if_it_is_too_long():
    assert (short("abcd", 4), short("abcde", 4)) == ("abcd", "abc…")


def test_many_series_can_be_told_apart():
    assert len({(look["color"], look["marker"]) for look in (series(number, 8) for number in range(36))}) == 36
    assert [series(0, points)["markevery"] for points in (40, 41, 100)] == [1, 4, 10]


def test_style_applies_inside_the_block_only():
    before = dict(matplotlib.rcParams)
    with drawing(2, 1) as figure:
        assert matplotlib.rcParams["text.color"] == INK
        assert tuple(figure.get_size_inches()) == (2, 1)
    assert dict(matplotlib.rcParams) == before


def test_legend_names_the_drawn_series_if_there_are_several():
    with drawing(4, 2) as figure:
        legend(figure, ["a", "b"], {"a"})
        assert figure.legends == []
        legend(figure, ["a", "b" * 50, "c"], {"a", "b" * 50})
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", f"{'b' * 39}…"]


@pytest.mark.parametrize(("series_count", "columns"), [(2, 2), (4, 4), (5, 3), (7, 3)])
def test_legend_is_one_line_until_five_series(series_count, columns):
    names = [f"run {number}" for number in range(series_count)]
    with drawing(4, 3) as figure:
        legend(figure, names, names)
        assert figure.legends[0]._ncols == columns


def drawn(title="a", salt=("s",)):
    with drawing(2, 1) as figure:
        figure.subplots().plot([0, 1], [0, 1], color=SERIES[0])
        return page_svg(figure, title, salt, css_class="swatch")


def test_figure_in_a_page_takes_its_colors_from_the_page():
    svg = drawn()
    root = ElementTree.fromstring(svg)  # noqa: S314  our own plot
    assert (root.get("class"), root.get("role"), root.get("aria-label")) == ("swatch", "img", "a")
    assert (root.get("width"), root.get("height")) == ("192", "96")
    assert f"var(--{COLORS[SERIES[0]]}, {SERIES[0]})" in svg
    assert svg == drawn()


@pytest.mark.parametrize("suffix", ["svg", "PNG"])
def test_equal_figures_give_equal_files(tmp_path, suffix):
    for name in ("a", "b"):
        with drawing(2, 1) as figure:
            figure.subplots().plot([0, 1], [0, 1])
            save_figure(figure, tmp_path / f"{name}.{suffix}", "A line")
    content = (tmp_path / f"a.{suffix}").read_bytes()
    assert content == (tmp_path / f"b.{suffix}").read_bytes()
    assert b"A line" in content
    if suffix == "PNG":
        assert matplotlib.image.imread(tmp_path / "a.PNG", format="png").shape[:2] == (200, 400)


def test_other_formats_are_refused(tmp_path):
    with drawing(2, 1) as figure, pytest.raises(WrongKindOfFile):
        save_figure(figure, tmp_path / "a.pdf", "A line")
    assert list(tmp_path.iterdir()) == []


def test_hidden_characters_are_shown_in_titles_and_names():
    assert short("a\x1bb", 20) == "a⟨U+001B⟩b"
    assert ElementTree.fromstring(drawn(title="a\x1b")).get("aria-label") == "a⟨U+001B⟩"  # noqa: S314  our own plot
