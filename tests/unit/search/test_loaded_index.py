"""One modality of a silo: the digests of its items, its labels, and changes to its store."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from silohash.base.errors import DamagedFile, UnknownItem
from silohash.index.base import IndexManifest, allowed_keys
from silohash.index.digests import item_digests
from silohash.index.items import ItemRows
from silohash.index.store import Store
from silohash.search.filters import Condition
from silohash.search.loaded_index import ItemSet, LoadedIndex, in_all
from silohash.search.order import output_cosines


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "text.sqlite", IndexManifest("m", 16, "text", silo="north")) as opened:
        payloads = [json.dumps({"labels": labels}) for labels in (["bird"], [], ["bird", "red"])]
        opened.add(["a", "b", "c"], np.array([[1], [2], [3]], np.uint16), payloads)
        yield opened


def test_digests_are_those_of_silo_and_id(store):
    loaded = LoadedIndex("north", store, "flat")
    keys = loaded.index.keys
    assert loaded.digests(keys[[2, 0]]).tolist() == item_digests(["north"] * 2, ["c", "a"]).tolist()
    assert loaded.digests(keys).tolist() == item_digests(["north"] * 3, ["a", "b", "c"]).tolist()
    assert loaded.digests(keys[:0]).tolist() == []


def test_labels_select_keys(store):
    loaded = LoadedIndex("north", store, "flat")
    assert loaded.passing([Condition("labels", "=", ("bird",))]).tolist() == [True, False, True]
    assert not loaded.passing([Condition("labels", "=", ("car",))]).any()
    assert loaded.passing([Condition("labels", "=", ("\u00a0bird\u200b",))]).tolist() == [True, False, True]


@pytest.mark.parametrize("total", [1, 63, 64, 1000])
def test_items_that_are_in_all_sets(total):
    """Few items are kept as positions, and many as bits; a set of either kind meets both."""
    generator = np.random.default_rng(total)
    shares = (0.0, 0.01, 0.02, 0.3, 0.9, 1.0)
    rows = [np.flatnonzero(generator.random(total) < share) for share in shares]
    sets = [ItemSet.of(each, total) for each in rows]
    assert {each.bits is None for each in sets} == {True, False}
    assert in_all([]).every().tolist() == []
    for first, other in product(range(len(sets)), repeat=2):
        assert sets[first].holds(rows[other]).tolist() == np.isin(rows[other], rows[first]).tolist()
        found = in_all([sets[first], sets[other]])
        assert len(found) == len(found.every())
        assert found.every().tolist() == np.intersect1d(rows[first], rows[other]).tolist()


@pytest.mark.parametrize("in_memory", [True, False])
def test_items_are_chosen_as_an_index_takes_them(store, in_memory):
    """A mask of many items for an index in memory, and otherwise keys."""
    store.add([str(number) for number in range(997)], np.arange(997, dtype=np.uint16)[:, None])
    store.remove(["b"])
    loaded = LoadedIndex("north", store, "flat")
    keys = loaded.index.keys
    if not in_memory:
        loaded._codes = None
    generator = np.random.default_rng(0)
    for share, passing in product((0.005, 0.5), (None, generator.random(999) < 0.5)):
        rows = np.flatnonzero(generator.random(999) < share)
        chosen = loaded.chosen(ItemSet.of(rows, 999), passing)
        assert (chosen.dtype == bool) == (in_memory and share == 0.5)
        assert allowed_keys(chosen, keys).tolist() == keys[rows if passing is None else rows[passing[rows]]].tolist()
    assert loaded.chosen(None) is None
    assert allowed_keys(loaded.chosen(None, passing), keys).tolist() == keys[passing].tolist()


def test_outputs_follow_the_changes_of_the_store(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    words, magnitudes = generator.integers(0, 1 << 16, (9, 1)).astype(np.uint16), generator.integers(0, 256, (9, 16))
    magnitudes = magnitudes.astype(np.uint8)
    with Store.create(tmp_path / "image.sqlite", IndexManifest("m", 16, "image"), magnitudes=True) as store:
        store.add([*"abcd"], words[:4], magnitudes=magnitudes[:4])
        first = LoadedIndex("north", store, "flat", outputs=True)
        assert not LoadedIndex("north", store, "flat").has_outputs
        store.add([*"bef"], words[4:7], magnitudes=magnitudes[4:7])
        store.remove(["a"])
        read = []
        monkeypatch.setattr(store, "magnitudes", lambda first: read.append(first) or Store.magnitudes(store, first))
        changed = LoadedIndex("north", store, "flat", outputs=True, former=first)
        assert read == [1], "what is in memory is not read again"
        rows = [2, 3, 4, 5, 6]
        for loaded in (changed, LoadedIndex("north", store, "flat", outputs=True)):
            found = loaded.cosines(loaded.index.keys, words[0], magnitudes[0])
            assert found.tolist() == output_cosines(words[rows], magnitudes[rows], words[0], magnitudes[0]).tolist()
        store.add(["g"], words[7:8])
        assert not LoadedIndex("north", store, "flat", outputs=True, former=changed).has_outputs


def test_a_change_of_the_store_is_noticed(store):
    loaded = LoadedIndex("north", store, "flat")
    assert not loaded.outdated()
    store.remove(["a"])
    assert loaded.outdated()


def test_the_edition_differs_after_a_code_was_replaced_or_removed(store):
    def edition(former=None):
        return LoadedIndex("north", store, "flat", former=former).edition

    loaded = LoadedIndex("north", store, "flat")
    store.add(["d"], np.array([[4]], np.uint16))
    assert edition(loaded) == edition() == loaded.edition, "what was there has the same codes"
    seen = {edition()}
    for change in (lambda: store.add(["a"], np.array([[5]], np.uint16)), lambda: store.remove(["b"])):
        change()
        assert edition() == edition(loaded)
        assert edition() not in seen
        seen.add(edition())
    store.compact()
    assert edition() not in seen - {edition()}


def test_an_item_that_is_removed_while_the_index_is_loaded_makes_an_edition_of_its_own(store, monkeypatch):
    before = LoadedIndex("north", store, "flat").edition
    load = Store.load
    monkeypatch.setattr(Store, "load", lambda self, *args, **more: store.remove(["a"]) and load(self, *args, **more))
    during = LoadedIndex("north", store, "flat").edition
    monkeypatch.undo()
    assert len({before, during, LoadedIndex("north", store, "flat").edition}) == 3


def test_digests_in_the_store_are_used_without_reading_ids(tmp_path, monkeypatch):
    with Store.create(tmp_path / "image.sqlite", IndexManifest("m", 16, "image", silo="north")) as store:
        store.add(list("abcd"), np.array([[1], [2], [3], [4]], np.uint16))
        store.remove(["b"])
        monkeypatch.setattr(Store, "item_ids", lambda self, keys: pytest.fail("ids were read"))
        loaded = LoadedIndex("north", store, "flat")
        assert loaded.digests(np.array([3, 0])).tolist() == item_digests(["north"] * 2, "da").tolist()
        assert loaded.digests(np.array([2])).tolist() == item_digests(["north"], "c").tolist()


def test_digests_that_the_store_lacks_are_computed(tmp_path):
    with Store.create(tmp_path / "image.sqlite", IndexManifest("m", 16, "image", silo="north")) as store:
        for ids in ("ab", "cd"):
            store.add(list(ids), np.array([[1], [2]], np.uint16))
        store._database.connection.execute("DELETE FROM digests WHERE entry = 1")
        expected = item_digests(["north"] * 4, "abcd").tolist()
        assert LoadedIndex("north", store, "flat").digests(np.arange(4)).tolist() == expected
        other = LoadedIndex("south", store, "flat")
        assert other.digests(np.arange(4)).tolist() == item_digests(["south"] * 4, "abcd").tolist()


def test_missing_digests_are_computed_in_parts(store, monkeypatch):
    monkeypatch.setattr("silohash.search.loaded_index.ENTRY_ROWS", 2)
    read = []
    item_ids = Store.item_ids
    monkeypatch.setattr(Store, "item_ids", lambda self, keys: read.append(len(keys)) or item_ids(self, keys))
    loaded = LoadedIndex("south", store, "flat")
    assert read == [2, 1]
    monkeypatch.setattr(Store, "item_ids", lambda self, keys: pytest.fail("ids were read"))
    assert loaded.digests(loaded.index.keys).tolist() == item_digests(["south"] * 3, "abc").tolist()


def test_a_change_that_leaves_all_items_is_no_reason_to_load_them(store):
    loaded = LoadedIndex("north", store, "flat")
    before = store.stamp()
    with Store(store.path) as other:
        other._database.connection.execute("CREATE TABLE extra (value)")
    assert store.stamp() != before
    assert not loaded.outdated()
    assert loaded._stamp == store.stamp()


def test_few_items_are_scanned_with_numpy_unless_many_queries_follow(store, monkeypatch):
    assert type(LoadedIndex("north", store, "flat", prepared=True).index).__name__ == "SmallIndex"
    monkeypatch.setattr("silohash.search.loaded_index.SMALL_ITEMS_IF_PREPARED", 2)
    assert type(LoadedIndex("north", store, "flat", prepared=True).index).__name__ == "FlatIndex"
    assert type(LoadedIndex("north", store, "flat").index).__name__ == "SmallIndex"


def test_the_nearest_codes_with_their_ties(store):
    loaded = LoadedIndex("north", store, "flat")
    keys, distances = loaded.nearest(np.zeros(1, np.uint16), 1)
    assert dict(zip(keys.tolist(), distances.tolist(), strict=True)) == {0: 1, 1: 1}
    keys, distances = loaded.nearest(np.zeros(1, np.uint16), 2, loaded.index.keys[[2]])
    assert (keys.tolist(), distances.tolist()) == ([2], [2])


@pytest.mark.parametrize("backend", ["flat", "faiss"])
def test_the_code_of_an_item(store, backend, monkeypatch):
    if backend == "faiss":
        pytest.importorskip("faiss")
    else:
        monkeypatch.setattr(Store, "words", lambda self, ids: pytest.fail("the log was read"))
    loaded = LoadedIndex("north", store, backend)
    assert [loaded.words(name).tolist() for name in "cab"] == [[3], [1], [2]]


def test_the_code_of_an_item_that_does_not_exist(store):
    with pytest.raises(UnknownItem):
        LoadedIndex("north", store, "flat").words("d")


def test_rows_are_read_from_memory_if_many_queries_follow(store, monkeypatch):
    loaded = LoadedIndex("north", store, "flat", prepared=True)
    expected = store.rows([2, 0])
    monkeypatch.setattr(Store, "rows", lambda *_: pytest.fail("the file was read"))
    monkeypatch.setattr(Store, "label_keys", lambda *_: pytest.fail("the file was read"))
    assert loaded.rows([2, 0]) == expected == [("c", {"labels": ["bird", "red"]}), ("a", {"labels": ["bird"]})]
    assert loaded.labels() == {"bird": 2, "red": 1}


def test_rows_after_a_change_are_those_of_the_file(store):
    """Items are added, removed and replaced, by this connection and by another, as another process does."""
    loaded = LoadedIndex("north", store, "flat", prepared=True)
    with Store(store.path) as other:
        for writer in (store, other):
            new = f"new of {writer is store}"
            writer.add([new, "b"], np.array([[8], [9]], np.uint16), ['{"labels": ["car"]}', '{"caption": "again"}'])
            writer.remove(["a"])
            assert loaded.outdated()
            loaded = LoadedIndex("north", store, "flat", prepared=True, former=loaded)
            keys = loaded.index.keys.tolist()
            assert loaded.rows(keys) == store.rows(keys)
            assert dict(loaded.rows(keys))["b"] == {"caption": "again"}
            assert "a" not in dict(loaded.rows(keys))
            assert loaded.labels()["car"] == len([name for name, _ in loaded.rows(keys) if name.startswith("new")])
            assert loaded._rows is not None


def test_only_new_rows_are_read_after_a_change(store, monkeypatch):
    former = LoadedIndex("north", store, "flat", prepared=True)
    store.add(["d"], np.array([[8]], np.uint16), ["{}"])
    begun = []
    after = ItemRows.after
    monkeypatch.setattr(ItemRows, "after", lambda self, key: begun.append(key) or after(self, key))
    LoadedIndex("north", store, "flat", prepared=True, former=former)
    former._stamp = (99, *former._stamp[1:])  # as if the file had been opened again, possibly another one
    LoadedIndex("north", store, "flat", prepared=True, former=former)
    assert begun == [2, -1]


def test_a_row_that_is_not_kept_is_read_from_the_file(store):
    loaded = LoadedIndex("north", store, "flat", prepared=True)
    [key] = store.add(["d"], np.array([[8]], np.uint16), ['{"caption": "new"}']).tolist()
    assert loaded.rows([key]) == [("d", {"caption": "new"})]
    store.remove(["d"])
    with pytest.raises(UnknownItem, match="3"):
        loaded.rows([key])


def test_damaged_rows_do_not_keep_a_silo_from_starting(store):
    store._database.connection.execute("UPDATE items SET checksum = 0 WHERE id = 'b'")
    loaded = LoadedIndex("north", store, "flat", prepared=True)
    assert loaded.rows([0]) == [("a", {"labels": ["bird"]})]
    with pytest.raises(DamagedFile, match="1"):
        loaded.rows([1])


@pytest.mark.parametrize("most_small", [2, 100])
def test_a_change_is_applied_without_loading_the_index_again(store, monkeypatch, most_small):
    monkeypatch.setattr("silohash.search.loaded_index.SMALL_ITEMS_IF_PREPARED", most_small)
    former = LoadedIndex("north", store, "flat", prepared=True)
    former.labels()
    for name in ("load", "digests", "words"):
        monkeypatch.setattr(Store, name, lambda *_, name=name, **__: pytest.fail(f"{name} was called"))
    store.add(["d", "b"], np.array([[8], [9]], np.uint16), [json.dumps({"labels": ["red"]})] * 2)
    store.remove(["a"])
    loaded = LoadedIndex("north", store, "flat", prepared=True, former=former)
    assert type(loaded.index) is type(former.index)
    assert loaded.index.keys.tolist() == [2, 3, 4]
    assert [loaded.words(name).tolist() for name in "cdb"] == [[3], [8], [9]]
    assert loaded.digests(loaded.index.keys).tolist() == item_digests(["north"] * 3, "cdb").tolist()
    assert loaded.labels() == {"bird": 1, "red": 3}
    assert not loaded.outdated()
    assert former.index.keys.tolist() == [0, 1, 2]
    assert former.nearest(np.zeros(1, np.uint16), 5)[0].tolist() == [0, 1, 2]


def test_many_changes_and_a_rewritten_file_are_loaded(store, monkeypatch):
    loads = []
    load = Store.load
    monkeypatch.setattr(Store, "load", lambda self, *args, **options: loads.append(1) or load(self, *args, **options))
    monkeypatch.setattr("silohash.search.loaded_index.ENTRY_ROWS", 2)
    loaded = LoadedIndex("north", store, "flat")
    store.add(["d", "e"], np.array([[8], [9]], np.uint16))
    loaded = LoadedIndex("north", store, "flat", former=loaded)
    assert len(loads) == 1
    store.add(["f", "g", "h"], np.array([[8], [9], [10]], np.uint16))
    loaded = LoadedIndex("north", store, "flat", former=loaded)
    assert len(loads) == 2
    store.remove(["f"])
    store.compact()
    assert LoadedIndex("north", store, "flat", former=loaded).index.keys.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert len(loads) == 3
    monkeypatch.setattr("silohash.search.loaded_index.SMALL_ITEMS", 8)
    loaded = LoadedIndex("north", store, "flat")
    store.add(["i"], np.array([[11]], np.uint16))
    assert type(LoadedIndex("north", store, "flat", former=loaded).index).__name__ == "SmallIndex", "8 items are few"
    store.add(["j"], np.array([[12]], np.uint16))
    assert type(LoadedIndex("north", store, "flat", former=loaded).index).__name__ == "FlatIndex", "9 items are not"
