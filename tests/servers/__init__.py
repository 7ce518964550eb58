"""Real servers for tests of index backends, one module per server. No other machine can reach them."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


def started(backend: str) -> AbstractContextManager[str]:
    """Run the server of an index backend, and yield its URL. Skip the test if it is not installed, or cannot run here."""
    return importlib.import_module(f"tests.servers.{backend}").started()


@contextmanager
def short_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder with a short path, because the path of a Unix socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")))  # noqa: S108
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
