"""Fixtures of the tests of items."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.run.folder import Run
from tests.served import served_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A trained run. Each test adds silos of its own to it."""
    return Run.open(served_run(tmp_path_factory.mktemp("items")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty items folder."""
    (tmp_path / "items" / "put").mkdir(parents=True)
    return tmp_path / "items"
