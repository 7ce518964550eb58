"""What every test shares: thread limits, a cache of drawn pictures, files in memory, the real data sets, and marks."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

# Set before anything imports torch or numba's thread pool: tests run beside each other on few cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test asserts a duration. `make test-all` tests each property with more examples.
settings.register_profile("silohash", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("silohash")

REPOSITORY = Path(__file__).resolve().parent.parent
MEMORY = Path("/dev/shm")  # noqa: S108  each run makes a folder of its own
"""Linux keeps the files of this folder in memory."""
LEAST_FREE_BYTES = 4 << 30
QUICK = (REPOSITORY / "src", REPOSITORY / "tests" / "unit")
"""Folders of quick tests, except those that are marked as whole runs."""


def _cache_folder() -> Path:
    """Return this checkout's folder for decoded pictures: kept between runs, and replaced when its code changes.

    The user's cache is left alone: a test must neither read what another version wrote nor leave anything there.
    """
    source = hashlib.blake2b(digest_size=6)
    for part in ("data", "features"):
        for path in sorted((REPOSITORY / "src" / "silohash" / part).rglob("*.py")):
            source.update(path.read_bytes())
    return REPOSITORY / ".pytest_cache" / f"silohash-{source.hexdigest()}"


os.environ["SILOHASH_CACHE"] = str(_cache_folder())


def _use_files_in_memory() -> None:
    """Let tests write into memory if there is plenty: each file and each commit of an index waits for the disk otherwise.

    The user can choose a folder with ``--basetemp`` or with one of these variables.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return
    if shutil.disk_usage(MEMORY).free >= LEAST_FREE_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


_use_files_in_memory()


def _shared_data() -> Path:
    return Path(os.environ.get("SILOHASH_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark and skip the tests of the real data where it is missing, and order the files.

    Files that take long come first, and of the quick ones, those with most tests. So the files that run last are short, and
    all processes end at about the same time.
    """
    missing = not (_shared_data() / "README.md").is_file()
    skip = pytest.mark.skip(reason=f"the real data sets are not at {_shared_data()}; set SILOHASH_DATA")
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("shared_data")
        if missing and item.get_closest_marker("shared_data"):
            item.add_marker(skip)
    counts = Counter(item.path for item in items)
    long = {path for path in counts if not any(path.is_relative_to(folder) for folder in QUICK)}
    long |= {item.path for item in items if item.get_closest_marker("whole_run")}
    items.sort(key=lambda item: 0 if item.path in long else 1 / counts[item.path])


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from garbage collections, which would look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the real data sets; a test that asks for it is skipped where there is none."""
    return _shared_data()
