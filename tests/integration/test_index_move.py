"""``silohash index move`` with a real PostgreSQL server: the same hits from every backend, and no secret in any file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.runs import silohash
from tests.unit.cli.test_search import found, indexed, run  # noqa: F401  fixtures

pytestmark = pytest.mark.whole_run


def test_hits_are_the_same_in_memory_and_on_a_server(
    run: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = found(run, "-k", 30)
    with servers.started("pgvector") as url:
        secret = "aword-that-no-file-may-hold"  # noqa: S105  the server trusts every user
        monkeypatch.setenv("SILOHASH_PGVECTOR_URL", f"{url}&password={secret}")
        moved = silohash("index", "move", run, "--to", "pgvector", "--json")
        assert moved.code == 0, moved.err
        document = moved.document()
        assert document["engine"] == "pgvector"
        assert sum(index["count"] for index in document["indexes"] if index["modality"] == "image") == 30
        assert found(run, "-k", 30) == expected
        assert found(run, "-k", 30, "--label", "green") == found(run, "-k", 30, "--label", "green", "--engine", "flat")
        gone = expected[0]
        assert silohash("index", run, "--remove", gone).code == 0
        assert found(run, "-k", 30) == expected[1:]
        assert silohash("index", run).code == 0
        assert found(run, "-k", 30) == expected
        monkeypatch.setenv("SILOHASH_PGVECTOR_URL", "")
        said = silohash("search", run, "red square")
        assert said.code == 2
        assert "SILOHASH_PGVECTOR_URL does not hold the URL" in said.err
        monkeypatch.setenv("SILOHASH_PGVECTOR_URL", f"{url}&password={secret}")
        back = silohash("index", "move", run, "--to", "flat")
        assert "Searches now use the backend flat." in back.err
        assert found(run, "-k", 30) == expected
    assert not [path for path in run.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert list(run.glob("index/*/*.json")) == list(run.glob("index/*/source.json"))
