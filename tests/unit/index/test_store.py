"""A store: what comes back after opening, replacing, removing, compacting, and engines."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import (
    DependencyMissing,
    LengthsDiffer,
    MixedKinds,
    RepeatedValue,
    UnknownItem,
    UnknownName,
    UserError,
    WrongShape,
)
from silohash.index import store as module
from silohash.index.base import IndexManifest
from silohash.index.codes import Codes, pack
from silohash.index.store import Store
from tests.unit.index.stores import MANIFEST, filled, magnitudes, names, words


def test_items_come_back_after_opening_again(path):
    with Store(filled(path)) as store:
        assert store.manifest == IndexManifest("digest-of-the-model", 64, "image", count=50)
        assert len(store) == 50
        found = store.load().search(words(50), 1)
        assert found.distances.max() == 0
        assert store.item_ids(found.keys[:, 0]) == names(50)
        assert store.payloads(found.keys[[3, 3, 1], 0]) == [{"caption": f"item-{n}"} for n in (3, 3, 1)]


def test_an_id_that_is_there_is_replaced(path):
    with Store(filled(path)) as store:
        keys = store.add(["item-3", "new"], words(2, seed=1))
        assert len(store) == 51
        assert store.payloads(keys) == [{}, {}]
        assert store.item_ids(keys) == ["item-3", "new"]
        index = store.load()
        assert index.search(words(2, seed=1), 1).keys[:, 0].tolist() == keys.tolist()
        assert index.search(words(50)[3:4], 1).distances[0, 0] > 0
        with pytest.raises(UnknownItem, match="3"):
            store.item_ids(np.array([3]))


def test_a_file_keeps_the_magnitudes_of_all_items_or_of_none(path, tmp_path, monkeypatch):
    with Store.create(tmp_path / "without.sqlite", MANIFEST) as store:
        store.add(names(2), words(2), magnitudes=magnitudes(2))
        assert store.magnitudes() is None
    with Store(filled(path, 3, outputs=True)) as store:
        with pytest.raises(LengthsDiffer):
            store.add(["new"], words(1), magnitudes=magnitudes(2))
        with pytest.raises(LengthsDiffer):
            store.add(["new"], words(1), magnitudes=magnitudes(1).astype(np.int64))
        assert len(store.magnitudes()[0]) == 3
        store.add(["new"], words(1))
        assert store.magnitudes() is None
        store.add(["newer"], words(1), magnitudes=magnitudes(1))
        assert store.magnitudes() is None
    monkeypatch.setattr(module, "MOST_MAGNITUDE_BYTES", 64 * 4)
    with Store(filled(tmp_path / "large.sqlite", 4, outputs=True)) as store:
        assert len(store.magnitudes()[0]) == 4
        store.add(["fifth"], words(1), magnitudes=magnitudes(1))
        assert store.magnitudes() is None


def test_removal_passes_over_the_unknown(path):
    with Store(filled(path)) as store:
        assert store.remove(["item-3", "item-1", "item-3", "nobody"]) == ["item-3", "item-1"]
        assert store.remove(["item-1"]) == []
        assert len(store) == len(store.load()) == 48
        with pytest.raises(UnknownItem):
            store.item_ids(np.array([1]))


def test_compaction_keeps_the_answers_and_frees_the_disk(path):
    with Store.create(path, MANIFEST) as store:
        store.add(None, words(200_000))
        store.remove([str(key) for key in range(0, 200_000, 2)])
        before = store.load()
    size = path.stat().st_size
    with Store(path) as store:
        store.compact()
        after = store.load()
        assert (before.keys == after.keys).all()
        for one, other in zip(before.search_radius(words(9), 64), after.search_radius(words(9), 64), strict=True):
            assert (one.keys == other.keys).all()
            assert (one.distances == other.distances).all()
        assert path.stat().st_size < size / 2
        assert store.add(None, words(1)).tolist() == [200_000]


@pytest.mark.parametrize("bits", [8, 24, 100])
def test_keys_serve_as_ids(path, bits):
    with Store.create(path, IndexManifest("d", bits, "text")) as store:
        keys = store.add(None, words(5, bits=bits))
        assert store.item_ids(keys[[4, 0]]) == ["4", "0"]
        assert store.remove(["03", "3", "x", "99", "-1", "5"]) == ["3"]
        with pytest.raises(UnknownItem, match="3"):
            store.item_ids(np.array([3]))
        with pytest.raises(MixedKinds):
            store.add(["a"], words(1, bits=bits))
        kept = store.add(None, words(1, bits=bits), ['{"a": 1}'])
        assert store.item_ids(kept) == ["5"]
        assert store.payloads(np.array([5, 0])) == [{"a": 1}, {}]


def test_faulty_additions_change_nothing(path):
    with Store(filled(path)) as store:
        for ids, count, payload, message in (
            (["a", "a"], 2, None, "twice"),
            (["a"], 2, None, "1 ids"),
            (["a", ""], 2, None, "cannot be"),
            (["a", "b\ud800"], 2, None, "cannot be"),
            (["a", "b"], 2, ["{}"], "1 payloads"),
            (["a", "b"], 2, ["{}", "[1]"], "item 1 is not a JSON object"),
            (["a", "b"], 2, ["{}", "{"], "item 1 is not a JSON object"),
            (None, 2, None, "in the same way"),
        ):
            with pytest.raises(UserError, match=message):
                store.add(ids, words(count), payload)
        with pytest.raises(WrongShape, match="64 bits"):
            store.add(["a"], words(1, bits=32))
        assert store.add([], words(0)).tolist() == []
        assert len(store) == len(store.load()) == 50


def test_an_id_twice_across_entries_of_the_log(path, monkeypatch):
    monkeypatch.setattr("silohash.index.store.ENTRY_ROWS", 4)
    with Store(filled(path)) as store:
        with pytest.raises(RepeatedValue, match="twice"):
            store.add([*names(6, "new"), "new-0"], words(7))
        assert len(store.load()) == 50
        store.add(names(7, "new"), words(7))
        assert len(store.load()) == 57


def test_only_codes_of_the_same_model(path):
    def codes(digest, bits=64, modality="image"):
        return Codes(words(1, bits=bits), bits, np.array(["x"]), modality, digest)

    with Store.create(path, MANIFEST) as store:
        assert store.add_codes(codes(MANIFEST.model_digest)).tolist() == [0]
        for other, message in (
            (codes("another"), "cannot be compared"),
            (codes(MANIFEST.model_digest, bits=32), "32"),
            (codes(MANIFEST.model_digest, modality="text"), "text codes"),
        ):
            with pytest.raises(UserError, match=message):
                store.add_codes(other)


def test_two_stores_of_one_file_see_each_other(path):
    with Store(filled(path)) as one, Store(path) as other:
        one.add(["x"], words(1))
        assert other.add(["y"], words(1)).tolist() == [51]
        assert len(one.load()) == 52
        assert len(one) == 52


def test_engines(path, monkeypatch):
    with Store(filled(path)) as store:
        with pytest.raises(UnknownName, match="annoy"):
            store.load("annoy")
        assert type(store.load()).__name__ == "SmallIndex"
        monkeypatch.setattr(module, "SMALL_ITEMS", 50)
        assert type(store.load()).__name__ == "SmallIndex"
        monkeypatch.setattr(module, "SMALL_ITEMS", 49)
        assert type(store.load()).__name__ == "FlatIndex"
        present = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba" else present(name))
        pytest.importorskip("faiss")
        assert type(store.load()).__name__ == "FaissIndex"
        assert len(store.load()) == 50
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(DependencyMissing):
            store.load("faiss")


def test_a_store_returns_the_codes_of_its_items(tmp_path: Path) -> None:
    signs = [[1] * 16, [-1] * 16, [1, -1] * 8]
    with Store.create(tmp_path / "text.sqlite", IndexManifest("m", 16, "text")) as store:
        store.add(["a", "b"], pack(signs[:2]))
        store.add(["c"], pack(signs[2:]))
        store.remove(["a"])
        assert store.words(["c", "b"]).tolist() == pack([signs[2], signs[1]]).tolist()
        assert (store.has("b"), store.has("a"), store.has("d")) == (True, False, False)
        with pytest.raises(UnknownItem):
            store.words(["b", "a"])


def test_rows_are_ids_and_payloads(path):
    with Store(filled(path)) as store:
        assert store.rows([3, 0]) == [("item-3", {"caption": "item-3"}), ("item-0", {"caption": "item-0"})]
        assert store.rows([]) == []
        store.remove(["item-3"])
        with pytest.raises(UnknownItem, match="3"):
            store.rows([0, 3])


def test_rows_of_items_without_ids(path):
    with Store.create(path, MANIFEST) as store, Store(path) as other:
        store.add(None, words(3), ['{"a": 1}'] * 3)
        store.add(None, words(2))
        assert store.rows([4, 0]) == other.rows([4, 0]) == [("4", {}), ("0", {"a": 1})]
        store.remove(["4"])
        with pytest.raises(UnknownItem, match="4"):
            other.rows([4])


def test_the_number_of_items_for_the_small_index(path):
    with Store(filled(path)) as store:
        assert type(store.load(small_items=50)).__name__ == "SmallIndex"
        assert type(store.load(small_items=49)).__name__ == "FlatIndex"


def test_many_items_are_in_a_trie_if_many_queries_follow(path, monkeypatch):
    monkeypatch.setattr(module, "TRIE_ITEMS", 50)
    with Store(filled(path)) as store:
        assert type(store.load(small_items=0, trie=True)).__name__ == "TrieIndex"
        assert type(store.load(small_items=0)).__name__ == "FlatIndex"
        assert type(store.load("faiss", trie=True)).__name__ == "FaissIndex"
        monkeypatch.setattr(module, "TRIE_ITEMS", 51)
        assert type(store.load(small_items=0, trie=True)).__name__ == "FlatIndex"
