"""One side of a silo: the digests of its items, its labels, and changes to its store."""

from __future__ import annotations

import json

import numpy as np
import pytest

from silohash.index.base import IndexManifest
from silohash.index.store import Store
from silohash.search.order import item_digests
from silohash.search.side import Side


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "text.sqlite", IndexManifest("m", 16, "text")) as opened:
        payloads = [json.dumps({"labels": labels}) for labels in (["bird"], [], ["bird", "red"])]
        opened.add(["a", "b", "c"], np.array([[1], [2], [3]], np.uint16), payloads)
        yield opened


def test_digests_are_those_of_silo_and_id_and_each_id_is_read_once(store, monkeypatch):
    side = Side("north", store, "flat")
    keys = side.index.keys
    read = []
    item_ids = Store.item_ids
    monkeypatch.setattr(Store, "item_ids", lambda self, keys: read.extend(keys) or item_ids(self, keys))
    assert side.digests(keys[[2, 0]]).tolist() == item_digests(["north"] * 2, ["c", "a"]).tolist()
    assert side.digests(keys).tolist() == item_digests(["north"] * 3, ["a", "b", "c"]).tolist()
    assert sorted(read) == keys.tolist()
    assert side.digests(keys[:0]).tolist() == []


def test_labels_select_keys(store):
    side = Side("north", store, "flat")
    assert side.keys_with("bird").tolist() == side.index.keys[[0, 2]].tolist()
    assert side.keys_with("car").tolist() == []


def test_a_change_of_the_store_is_noticed(store):
    side = Side("north", store, "flat")
    assert not side.outdated()
    store.remove(["a"])
    assert side.outdated()
