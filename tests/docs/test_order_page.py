"""The tables on the order of hits say what the figures of single runs say."""

from __future__ import annotations

from tests.docs.feduch_page import PAPERS
from tests.docs.order_page import figures, tables


def test_each_table_stands_on_the_page() -> None:
    page = (PAPERS.parent / "docs" / "how-to" / "search.md").read_text(encoding="utf-8")
    for table in tables():
        assert table in page, "run: python -m tests.docs.order_page"


def test_each_figure_is_that_of_three_seeds() -> None:
    assert {tuple(seeds) for seeds in figures().values()} == {("0", "1", "2")}
