"""What every test shares: thread limits, a cache of drawn pictures, the real data sets."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

# Set before anything imports torch or numba's thread pool: tests run beside each other on few cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

REPOSITORY = Path(__file__).resolve().parent.parent


def _cache_folder() -> Path:
    """Returns this checkout's folder for decoded pictures: kept between runs, another when its code changes.

    It is not the user's own cache: a test must neither read what another version wrote nor leave anything there.
    """
    source = hashlib.blake2b(digest_size=6)
    for part in ("data", "features"):
        for path in sorted((REPOSITORY / "src" / "silohash" / part).rglob("*.py")):
            source.update(path.read_bytes())
    return REPOSITORY / ".pytest_cache" / f"silohash-{source.hexdigest()}"


os.environ["SILOHASH_CACHE"] = str(_cache_folder())


def _shared_data() -> Path:
    return Path(os.environ.get("SILOHASH_DATA", REPOSITORY.parent / "shared" / "data"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test that asks for the real data, and skips it where there is none."""
    missing = not (_shared_data() / "README.md").is_file()
    skip = pytest.mark.skip(reason=f"the real data sets are not at {_shared_data()}; set SILOHASH_DATA")
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("shared_data")
        if missing and item.get_closest_marker("shared_data"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of the real data sets; a test that asks for it is skipped where there is none."""
    return _shared_data()
