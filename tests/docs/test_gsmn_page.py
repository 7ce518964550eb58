"""The tables on GSMN in silos say what the figures of single runs say."""

from __future__ import annotations

from tests.docs.gsmn_page import PAPERS, tables


def test_each_table_stands_on_the_page() -> None:
    page = (PAPERS / "fedbignn.md").read_text(encoding="utf-8")
    found = tables()
    assert found
    for table in found.values():
        assert table in page, "run: python -m tests.docs.gsmn_page"
