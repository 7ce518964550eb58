"""What the tests of benchmarks share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_cache(private_cache: None) -> None:
    """Give every test a cache of its own."""
