"""The choice of an index engine: its file, the place of the URL, and secrets that messages leave out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from silohash.base.types import UserError
from silohash.index import engines
from silohash.index.engines import (
    CONFIG,
    IndexConfig,
    explaining_server_errors,
    read_index_config,
    seconds_left,
    time_limit,
    without_secrets,
    write_index_config,
)


def test_without_a_file_codes_are_searched_in_memory(tmp_path: Path) -> None:
    config = read_index_config(tmp_path)
    assert config == IndexConfig()
    assert (config.engine, config.in_memory, config.approximate) == ("flat", True, False)
    assert not IndexConfig(engine="milvus").in_memory
    assert IndexConfig(engine="faiss").in_memory


def test_the_choice_is_written_and_read(tmp_path: Path) -> None:
    config = IndexConfig(engine="pgvector", url_env="MY_URL", approximate=True)
    write_index_config(tmp_path, config)
    assert (tmp_path / CONFIG).read_text() == 'engine = "pgvector"\nurl_env = "MY_URL"\napproximate = true\n'
    assert read_index_config(tmp_path) == config
    write_index_config(tmp_path, IndexConfig())
    assert (tmp_path / CONFIG).read_text() == 'engine = "flat"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('engine = "annoy"', '"engine" is not valid'),
        ('engin = "flat"', '"engin" is not valid'),
        ('url_env = "X"', "has neither a server"),
        ('engine = "milvus"\nurl_env = "X"\nurl_file = "y"', "Keep one"),
        ("engine =", "index.toml"),
    ],
)
def test_mistakes_in_the_file_are_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(UserError, match=message):
        read_index_config(tmp_path)


def test_the_url_comes_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_PGVECTOR_URL", " postgresql://one ")
    monkeypatch.setenv("OTHER", "http://two")
    monkeypatch.delenv("SILOHASH_MILVUS_URL", raising=False)
    path = tmp_path / "url"
    path.write_text("http://three\n")
    assert IndexConfig(engine="pgvector").url() == "postgresql://one"
    assert IndexConfig(engine="milvus", url_env="OTHER").url() == "http://two"
    assert IndexConfig(engine="milvus", url_file=path).url() == "http://three"
    with pytest.raises(UserError, match="SILOHASH_MILVUS_URL does not hold the URL of the milvus server"):
        IndexConfig(engine="milvus").url()
    path.write_text("\n")
    with pytest.raises(UserError, match="does not hold the URL"):
        IndexConfig(engine="milvus", url_file=path).url()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for engine, extra in (("pgvector", "pgvector"), ("milvus", "milvus"), ("faiss", "faiss")):
        with pytest.raises(UserError, match=rf"pip install 'silohash\[{extra}\]'"):
            IndexConfig(engine=engine).check_installed()
    IndexConfig().check_installed()


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("postgresql://me:s%40cret@db/x", ("s%40cret", "s@cret")),
        ("host=db user=me password='s3cret'", ("s3cret",)),
        ("postgresql://db/x?user=me&password=s3cret", ("s3cret",)),
        ("http://me:s3cret@[host", ("http://me:s3cret@[host",)),
    ],
)
def test_messages_do_not_hold_secrets(url: str, secrets: tuple[str, ...]) -> None:
    for secret in secrets:
        assert without_secrets(f"failed: {secret}!", url) == "failed: ***!"
        with (
            pytest.raises(
                UserError, match=r"milvus server of the index could not be used \(no \*\*\* here\)"
            ) as caught,
            explaining_server_errors("milvus", url, ValueError),
        ):
            raise ValueError(f"no {secret} here.")
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    assert without_secrets("nothing", "postgresql://db/x") == "nothing"


def test_a_time_limit_replaces_the_one_around_it_and_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(engines, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert seconds_left(1e9) == 1e9
    with time_limit(1_000):
        now[0] += 400
        assert seconds_left(1e9) == 600
        assert seconds_left(3.0) == 3.0
        with time_limit(None):
            assert seconds_left(1e9) == 1e9
        with time_limit(5):
            assert seconds_left(1e9) == 5
            now[0] += 5
            with pytest.raises(UserError, match="time limit of the search has passed"):
                seconds_left(1.0)
        assert seconds_left(1e9) == 595
    assert seconds_left(1e9) == 1e9
