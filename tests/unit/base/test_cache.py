"""The folder of the cache: named by the user, else where the system keeps caches."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from silohash.base.cache import cache_folder, private_cache
from silohash.base.files import digest_bytes
from silohash.base.stamps import remember
from silohash.data.pictures.checking import check_pictures
from silohash.features.cache import NetworkVectors
from silohash.features.image import PixelFeatures
from tests.archives import drawn_pictures
from tests.unit.data.formats.matlab_files import photographs, write_mat


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


def test_what_comes_from_a_users_files_is_private_whatever_the_umask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("SILOHASH_CACHE", str(cache))
    (tmp_path / "a.png").touch()
    before = os.umask(0)
    try:
        check_pictures(tmp_path, ["a.png"])
        remember(tmp_path, {"a.png": digest_bytes(b"")})
        PixelFeatures(8, 3).transform(drawn_pictures(100), np.arange(100))
        vectors = NetworkVectors(private_cache("vectors") / "key", 2)
        vectors.add([digest_bytes(b"")], np.zeros((1, 2), np.float32))
        vectors.flush()
        write_mat("v5", tmp_path / "a.mat", {"IAll": photographs(2, height=8, width=6)}).variable(
            "IAll"
        ).pictures().digest()
    finally:
        os.umask(before)
    assert {path.name for path in cache.iterdir()} == {"files", "matfiles", "pictures", "pixels", "vectors"}
    modes = {path: path.stat().st_mode & 0o777 for path in cache.rglob("*")}
    assert {path for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == set()
    assert all(any(path.is_file() for path in kind.rglob("*")) for kind in cache.iterdir())
