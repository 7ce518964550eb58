"""The choice of an index backend: its file, and the place of the URL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from silohash.base.errors import DependencyMissing, InvalidFile, SettingNeeded
from silohash.base.optional import EXTRAS
from silohash.index import IN_MEMORY, SERVERS
from silohash.index.config import COMPILED, CONFIG, IndexConfig, read_index_config, write_index_config


def test_without_a_file_codes_are_searched_in_memory(tmp_path: Path) -> None:
    config = read_index_config(tmp_path)
    assert config == IndexConfig()
    assert (config.backend, config.in_memory, config.approximate) == ("flat", True, False)
    assert not any(IndexConfig(backend=name).in_memory for name in SERVERS.table)
    assert IndexConfig(backend="faiss").in_memory


def test_the_choice_is_written_and_read(tmp_path: Path) -> None:
    config = IndexConfig(backend="pgvector", url_env="MY_URL", approximate=True)
    write_index_config(tmp_path, config)
    assert (tmp_path / CONFIG).read_text() == 'engine = "pgvector"\nurl_env = "MY_URL"\napproximate = true\n'
    assert read_index_config(tmp_path) == config
    write_index_config(tmp_path, IndexConfig(outputs=False))
    assert (tmp_path / CONFIG).read_text() == 'engine = "flat"\noutputs = false\n'
    assert not read_index_config(tmp_path).outputs
    write_index_config(tmp_path, IndexConfig())
    assert (tmp_path / CONFIG).read_text() == 'engine = "flat"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('engine = "annoy"', "engine"),
        ('engin = "flat"', "engin"),
        ('url_env = "X"', None),
        ('engine = "pgvector"\nurl_env = "X"\nurl_file = "y"', None),
        ("engine =", "index.toml"),
    ],
)
def test_mistakes_in_the_file_are_explained(tmp_path: Path, text: str, message: str | None) -> None:
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(InvalidFile, match=message):
        read_index_config(tmp_path)


def test_the_url_comes_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_PGVECTOR_URL", " postgresql://one ")
    monkeypatch.setenv("OTHER", "http://two")
    path = tmp_path / "url"
    path.write_text("http://three\n")
    assert IndexConfig(backend="pgvector").url() == "postgresql://one"
    assert IndexConfig(backend="pgvector", url_env="OTHER").url() == "http://two"
    assert IndexConfig(backend="pgvector", url_file=path).url() == "http://three"
    monkeypatch.delenv("SILOHASH_PGVECTOR_URL")
    with pytest.raises(SettingNeeded, match=r"SILOHASH_PGVECTOR_URL.*pgvector"):
        IndexConfig(backend="pgvector").url()
    path.write_text("\n")
    with pytest.raises(SettingNeeded):
        IndexConfig(backend="pgvector", url_file=path).url()


@pytest.mark.parametrize("name", [name for name in (*IN_MEMORY.table, *SERVERS.table) if name not in COMPILED])
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (module for module, extra in EXTRAS.items() if extra == name):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"silohash.index.{name}", raising=False)
    with pytest.raises(DependencyMissing, match=rf"silohash\[{name}"):
        IndexConfig(backend=name).check_installed()
    IndexConfig().check_installed()
