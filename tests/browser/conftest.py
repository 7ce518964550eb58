"""Settings of the tests of the page in a browser."""

import pytest

from silohash.service.web import pages

LATE = ("test_late_silos", "test_accessibility", "test_photographs")
"""Modules that look at results which come in late. In all others, a busy machine must not make results late."""


@pytest.fixture(autouse=True)
def all_answers_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page wait for all silos, so that no result is replaced while a test clicks on it."""
    if request.module.__name__.rpartition(".")[2] not in LATE:
        monkeypatch.setattr(pages, "GATHER_SECONDS", 60.0)
