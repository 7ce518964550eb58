"""The page of what differs from the papers is what the configs of the studies say."""

from __future__ import annotations

import pytest

from tests.docs.papers_page import PAGE, page, section

STALE = "run: python -m tests.docs.papers_page"


@pytest.mark.parametrize("paper", ["dlffh", "fedbignns"])
def test_a_section_is_up_to_date(paper: str) -> None:
    assert section(paper) in PAGE.read_text(encoding="utf-8"), STALE


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), STALE
