"""The folder of the cache: named by the user, else where the system keeps caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.cache import cache_folder


def test_order_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.setenv("SILOHASH_CACHE", "/named")
    assert cache_folder() == Path("/named")
    monkeypatch.setenv("SILOHASH_CACHE", "")
    assert cache_folder() == Path("/elsewhere/silohash")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("SILOHASH_CACHE")
    assert cache_folder() == tmp_path / ".cache" / "silohash"
