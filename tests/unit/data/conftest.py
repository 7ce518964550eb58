"""Fixtures that the tests of data share."""

from __future__ import annotations

import pytest


@pytest.fixture
def private_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give a test an empty cache of its own."""
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path_factory.mktemp("cache")))
