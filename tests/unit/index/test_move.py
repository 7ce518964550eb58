"""Moving the indexes of a run between backends: all or none are searched there, and what is unused is removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import NotIndexed, SettingNeeded, UserError
from silohash.index import SERVERS
from silohash.index.config import IndexConfig, read_index_config
from silohash.index.copies import created_copies, digest_of
from silohash.index.move import follow_indexes, move_indexes
from silohash.index.store import Store
from silohash.search.silos import open_nodes, remove_items
from tests.unit.index.fake_server import FakeServer, keys_of
from tests.unit.index.stores import filled, names, words

PGVECTOR, OTHER = (IndexConfig(backend=name) for name in SERVERS.table)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    filled(tmp_path / "index" / "north" / "image.sqlite", 5, "north")
    filled(tmp_path / "index" / "south" / "image.sqlite", 3, "south")
    filled(tmp_path / "index" / ".south.1.2.old" / "image.sqlite", 3)
    return tmp_path


def backends_of(run: Path) -> list[str]:
    nodes = open_nodes(run / "index")
    found = [type(node._loaded["image"].index).__name__ if node._loaded else node._unusable["image"] for node in nodes]
    for node in nodes:
        node.close()
    return found


def test_all_silos_move_and_return(run: Path, server: FakeServer) -> None:
    lines: list[str] = []
    moved = move_indexes(run, PGVECTOR, lines.append)
    assert [(index.silo, index.modality, index.count) for index in moved] == [
        ("north", "image", 5),
        ("south", "image", 3),
    ]
    assert moved[0].digest == digest_of([(np.arange(5), words(5))], 64)[1]
    assert lines == [f"{index.silo}, image: {index.count} items, digest {index.digest[:12]}" for index in moved]
    assert read_index_config(run) == PGVECTOR
    assert backends_of(run) == ["FakeIndex"] * 2
    assert len(server.collections) == 2
    first = set(server.collections)
    assert move_indexes(run, OTHER) == moved
    assert backends_of(run) == ["FakeIndex"] * 2
    assert len(server.collections) == 2
    assert not first & set(server.collections)
    assert move_indexes(run, IndexConfig()) == moved
    assert backends_of(run) == ["SmallIndex"] * 2
    assert server.collections == {}
    assert created_copies(run / "index") == ()
    assert not list(run.glob("index/*/*.json"))


def test_an_interrupted_move_leaves_the_former_backend_and_is_repeated(run: Path, server: FakeServer) -> None:
    move_indexes(run, PGVECTOR)
    server.fail_after = 0
    with pytest.raises(UserError, match="stopped"):
        move_indexes(run, OTHER)
    assert read_index_config(run) == PGVECTOR
    assert backends_of(run) == ["FakeIndex"] * 2
    assert len(server.collections) == 3
    server.fail_after = 10**9
    assert [index.count for index in move_indexes(run, OTHER)] == [5, 3]
    assert len(server.collections) == 2


def test_copies_that_cannot_be_removed_remain_listed(run: Path, server: FakeServer) -> None:
    move_indexes(run, PGVECTOR)
    server.up = False
    lines: list[str] = []
    move_indexes(run, IndexConfig(), lines.append)
    assert sum("could not be removed" in line for line in lines) == 2
    assert backends_of(run) == ["SmallIndex"] * 2
    assert len(created_copies(run / "index")) == 2
    server.up = True
    follow_indexes(run)
    assert (server.collections, created_copies(run / "index")) == ({}, ())


def test_an_index_that_is_built_again_is_copied_again(run: Path, server: FakeServer) -> None:
    move_indexes(run, PGVECTOR)
    shutil.rmtree(run / "index" / "north")
    filled(run / "index" / "north" / "image.sqlite", 7, "north")
    assert "silohash index move RUN --to pgvector" in backends_of(run)[0]
    follow_indexes(run)
    assert backends_of(run) == ["FakeIndex"] * 2
    assert sorted(len(index) for index in server.collections.values()) == [3, 7]


def test_removed_items_leave_the_server(run: Path, server: FakeServer) -> None:
    move_indexes(run, PGVECTOR)
    assert remove_items(run / "index", ["item-1"]) == {"north": ["item-1"], "south": ["item-1"]}
    assert sorted(map(keys_of, server.collections.values())) == [[0, 2], [0, 2, 3, 4]]


def test_a_server_that_does_not_answer_is_a_missing_silo(run: Path, server: FakeServer) -> None:
    move_indexes(run, PGVECTOR)
    server.up = False
    assert backends_of(run) == ["The fake server does not answer."] * 2
    with Store.open(run / "index" / "north" / "image.sqlite") as store:
        store.add(names(1, "new"), words(1, seed=1))
    with pytest.raises(UserError):
        follow_indexes(run)


def test_the_file_of_the_url_is_found_from_any_folder(
    run: Path,
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(run)
    Path("url").write_text("http://127.0.0.1")
    move_indexes(run, IndexConfig(backend="pgvector", url_file=Path("url")))
    assert read_index_config(run).url_file == run / "url"


def test_a_move_without_the_url_of_the_server_leaves_nothing(
    run: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SILOHASH_PGVECTOR_URL")
    with pytest.raises(SettingNeeded, match="SILOHASH_PGVECTOR_URL"):
        move_indexes(run, PGVECTOR)
    assert created_copies(run / "index") == ()
    assert not list(run.glob("index/*/*.json"))


def test_a_run_without_indexes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotIndexed):
        move_indexes(tmp_path, IndexConfig())
    follow_indexes(tmp_path)
