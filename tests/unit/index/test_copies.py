"""Copies of an index on a server: they are copied whole, follow the index file, and are not mistaken for one another."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import CopyMissing, DamagedFile, IndexDiffers, NotIndexed, SettingNeeded, UserError
from silohash.index import SERVERS
from silohash.index.config import IndexConfig, read_index_config, write_index_config
from silohash.index.copies import (
    copy_codes,
    copy_path,
    created_copies,
    digest_of,
    follow_indexes,
    load_index,
    move_indexes,
    open_copy,
    read_copy,
    refresh_copy,
)
from silohash.index.store import Store
from silohash.search.silos import open_nodes, remove_items
from tests.unit.index.fake_server import FakeIndex, FakeServer, keys_of
from tests.unit.index.stores import filled, names, words

CONFIG, *OTHERS = PGVECTOR, OTHER = [IndexConfig(backend=name) for name in SERVERS.table]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store(filled(tmp_path / "index" / "north" / "image.sqlite", 10))
    yield opened
    opened.close()


def test_a_copy_holds_what_the_file_holds(store: Store, server: FakeServer) -> None:
    count, digest = copy_codes(store, CONFIG)
    assert count == 10
    assert digest == digest_of([(np.arange(10), words(10))], 64)[1]
    assert keys_of(server.only()) == list(range(10))
    assert server.only().finished == 1
    copy = read_copy(store.path, CONFIG)
    assert copy.version == store.version()
    assert [created.collection for created in created_copies(store.path.parent.parent)] == [copy.collection]
    assert copy_codes(store, CONFIG) == (count, digest)
    assert server.only().added == [list(range(10))]


def test_the_digest_depends_on_keys_and_codes_and_not_on_parts() -> None:
    keys, codes = np.arange(6), words(6)
    whole = digest_of([(keys, codes)], 64)
    assert digest_of([(keys[:2], codes[:2]), (keys[2:], codes[2:])], 64) == whole
    assert digest_of([(keys + 1, codes)], 64) != whole
    assert digest_of([(keys, codes[::-1])], 64) != whole
    assert whole[0] == 6


def test_a_search_follows_additions_and_removals(store: Store, server: FakeServer) -> None:
    copy_codes(store, CONFIG)
    store.add(names(3, "new"), words(3, seed=1))
    index = open_copy(store, CONFIG)
    assert server.only().added[1:] == [[10, 11, 12]]
    store.remove(["item-2", "new-1"])
    assert open_copy(store, CONFIG) is index
    assert keys_of(server.only()) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    store.remove(["item-4"])
    store.add(names(1, "last"), words(1, seed=2))
    store.compact()
    open_copy(store, CONFIG)
    assert keys_of(server.only()) == [0, 1, 3, 5, 6, 7, 8, 9, 10, 12, 13]
    assert read_copy(store.path, CONFIG).version == store.version()
    assert copy_codes(store, CONFIG)[0] == 11


def test_a_store_searches_its_copy_and_closes_the_connection(store: Store, server: FakeServer) -> None:
    copy_codes(store, CONFIG)
    closed = server.only().closed
    index = load_index(store, CONFIG)
    assert index.search(words(10)[3:4], 1).keys.tolist() == [[3]]
    load_index(store, CONFIG)
    assert server.only().closed == closed + 1
    store.close()
    assert server.only().closed == closed + 2


def test_an_index_that_was_not_moved_is_refused(store: Store, server: FakeServer) -> None:
    with pytest.raises(CopyMissing, match="pgvector"):
        load_index(store, CONFIG)
    copy_codes(store, CONFIG)
    for other in (*OTHERS, IndexConfig(backend="pgvector", approximate=True)):
        with pytest.raises(CopyMissing):
            load_index(store, other)
    server.collections.clear()
    with pytest.raises(UserError, match="There is no collection"):
        load_index(store, CONFIG)


def test_an_interrupted_copy_is_refused_and_continued(store: Store, server: FakeServer) -> None:
    server.fail_after = 0
    with pytest.raises(UserError, match="stopped"):
        copy_codes(store, CONFIG)
    with pytest.raises(CopyMissing, match="pgvector"):
        open_copy(store, CONFIG)
    server.fail_after = server.only().fail_after = 10**9
    server.only().add(np.arange(4), words(10)[:4])
    copy_codes(store, CONFIG)
    assert server.only().added == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    assert len(created_copies(store.path.parent.parent)) == 1


def test_a_copy_that_differs_is_copied_again(store: Store, server: FakeServer) -> None:
    expected = copy_codes(store, CONFIG)
    before = read_copy(store.path, CONFIG).collection
    server.only().add(np.array([3]), words(1, seed=9))
    assert copy_codes(store, CONFIG) == expected
    assert read_copy(store.path, CONFIG).collection != before
    assert list(server.collections) == [read_copy(store.path, CONFIG).collection]


def test_a_server_that_changes_codes_is_reported(
    store: Store,
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeIndex, "stored", lambda index: iter([(index.keys[1:], index._words[1:])]))
    with pytest.raises(IndexDiffers, match=r"9.*10"):
        copy_codes(store, CONFIG)


def test_an_empty_server_in_place_of_the_former_is_filled(store: Store, server: FakeServer) -> None:
    copy_codes(store, CONFIG)
    server.collections.clear()
    assert copy_codes(store, CONFIG)[0] == 10
    assert len(server.only()) == 10


def test_refreshing_copies_or_follows(store: Store, server: FakeServer) -> None:
    refresh_copy(store, CONFIG)
    refresh_copy(store, CONFIG)
    assert server.only().added == [list(range(10))]
    store.add(names(1, "new"), words(1, seed=1))
    refresh_copy(store, CONFIG)
    assert server.only().added == [list(range(10)), [10]]


def test_a_damaged_record_is_reported(store: Store) -> None:
    copy_path(store.path, "pgvector").write_text("{")
    with pytest.raises(DamagedFile, match=r"image\.pgvector\.json"):
        load_index(store, CONFIG)


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


def test_a_move_does_not_change_whether_outputs_are_kept(run: Path, server: FakeServer) -> None:
    write_index_config(run, IndexConfig(outputs=False))
    move_indexes(run, PGVECTOR)
    assert read_index_config(run) == PGVECTOR.model_copy(update={"outputs": False})


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
    with Store(run / "index" / "north" / "image.sqlite") as store:
        store.add(names(1, "new"), words(1, seed=1))
    with pytest.raises(UserError, match="does not answer"):
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
