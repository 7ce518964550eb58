"""The page of what differs from the papers is what the configs of the studies say."""

from __future__ import annotations

from tests.docs.papers_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.papers_page"
