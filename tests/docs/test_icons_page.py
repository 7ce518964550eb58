"""The tables on libraries of icons say what the figures of single runs say."""

from __future__ import annotations

from tests.docs.feduch_page import PAPERS
from tests.docs.icons_page import RUNS, tables
from tests.docs.run_figures import figures


def test_each_table_stands_on_the_page() -> None:
    page = (PAPERS.parent / "docs" / "how-to" / "icons.md").read_text(encoding="utf-8")
    for table in tables():
        assert table in page, "run: python -m tests.docs.icons_page"
    assert tables()[0] in (PAPERS.parent / "README.md").read_text(encoding="utf-8")


def test_each_figure_is_that_of_three_seeds() -> None:
    assert {tuple(seeds) for seeds in figures(RUNS).values()} == {("0", "1", "2")}
