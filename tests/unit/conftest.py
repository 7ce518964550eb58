"""Fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base import stamps


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read to compute their digests."""
    names: list[str] = []
    digest_file = stamps.digest_file

    def counted(path: Path) -> str:
        names.append(path.name)
        return digest_file(path)

    monkeypatch.setattr(stamps, "digest_file", counted)
    return names
