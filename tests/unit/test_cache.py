"""The folder of the cache: named by the user, else where the system keeps caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.cache import cache_folder, private_cache


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


def test_a_private_folder_is_closed_even_if_an_earlier_version_left_it_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "pictures"
    for _ in range(2):
        assert private_cache("pictures") == folder
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o755)


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "file"))
    assert private_cache("pictures") == tmp_path / "file" / "pictures"
