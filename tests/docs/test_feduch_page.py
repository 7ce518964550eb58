"""The tables of FedUCH in the form of its paper say what the figures of single runs say."""

from __future__ import annotations

from tests.docs.feduch_page import PAPERS, figures, tables


def test_each_table_stands_on_the_page() -> None:
    page = (PAPERS / "feduch.md").read_text(encoding="utf-8")
    for table in tables():
        assert table in page, "run: python -m tests.docs.feduch_page"


def test_each_figure_is_that_of_the_named_seeds() -> None:
    assert {tuple(seeds) for name in ("wiki", "coco18") for seeds in figures(name).values()} == {("0", "1", "2")}
    assert {tuple(seeds) for seeds in figures("fashion").values()} == {("0", "1")}
