"""Fixtures that the tests of an index share."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.index import SERVERS, copies
from silohash.index.config import IndexConfig
from tests.unit.index.fake_server import FakeServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store that does not exist yet."""
    return tmp_path / "silo" / "image.sqlite"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Replace all servers by one in this process."""
    fake = FakeServer()
    monkeypatch.setattr(copies, "connect", fake.connect)
    monkeypatch.setattr(copies, "drop_copy", fake.drop)
    monkeypatch.setattr(IndexConfig, "check_installed", lambda config: None)
    for name in SERVERS.table:
        monkeypatch.setenv(f"SILOHASH_{name.upper()}_URL", "http://127.0.0.1")
    return fake
