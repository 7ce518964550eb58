"""What the tests of benchmarks share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path_factory.mktemp("cache")))
