"""What passes the filters in the indexes of a silo: the newest items, and the counts of values."""

from __future__ import annotations

import json

import numpy as np
import pytest

from silohash.base.errors import NotSearchable
from silohash.index.base import IndexManifest
from silohash.index.store import Store
from silohash.search.browse import check_columns, counts_in, newest_items, passing_places
from silohash.search.loaded_index import LoadedIndex
from silohash.search.nearest import NO_KEY, NearItems
from silohash.search.requests import Browse

DATES = {"a": "2001", "b": "2001-05-03", "c": "1999-12-31T23:00:00-02:00", "d": "soon", "e": ""}
HELD = {"image": "abc", "text": "bcde"}


@pytest.fixture
def indexes(tmp_path):
    loaded = {}
    for modality, names in HELD.items():
        store = Store.create(tmp_path / f"{modality}.sqlite", IndexManifest("m", 16, modality, silo="north"))
        payloads = [json.dumps({"columns": {"date": DATES[name]}}) for name in names]
        store.add([*names], np.arange(len(names), dtype=np.uint16)[:, None], payloads)
        loaded[modality] = LoadedIndex("north", store, "flat")
    return loaded


def everything(indexes):
    return {modality: loaded.passing(()) for modality, loaded in indexes.items()}


def names_of(indexes, items):
    return [
        next(
            loaded.store.item_ids(np.array([items.keys[modality][place]]))[0]
            for modality, loaded in indexes.items()
            if items.keys[modality][place] != NO_KEY
        )
        for place in range(len(items))
    ]


def test_the_newest_items_have_the_latest_dates(indexes):
    request = Browse(newest_by="date")
    items = newest_items(indexes, everything(indexes), request, 9)
    assert names_of(indexes, items)[:3] == ["b", "a", "c"]
    assert {*names_of(indexes, items)[3:]} == {"d", "e"}
    placed = [*zip(items.distances_bits, items.order_values, strict=True)]
    assert placed == sorted(placed)
    assert placed[1][1] == 0
    assert placed[2][1] == 23 * 3600  # 1 a.m. of the next day, counted backwards from a midnight
    assert names_of(indexes, newest_items(indexes, everything(indexes), request, 2)) == ["b", "a"]


def test_an_item_is_as_old_as_in_the_index_where_fewer_are_newer(indexes):
    items = newest_items(indexes, everything(indexes), Browse(), 9)
    ages = dict(zip(names_of(indexes, items), items.distances_bits, strict=True))
    assert ages == {"c": 0, "e": 0, "b": 1, "d": 1, "a": 2}


def test_an_item_of_two_indexes_counts_once(indexes):
    counts = counts_in(indexes, everything(indexes), ("silo", "date"), "north")
    assert counts == {"silo": {"north": 5}, "date": {value: 1 for value in DATES.values() if value}}


def test_a_column_without_values_is_named(indexes):
    check_columns(indexes, ("date", "labels"))
    with pytest.raises(NotSearchable):
        check_columns(indexes, ("museum",))


def test_places_of_items_that_pass_in_one_of_the_indexes(indexes):
    passing = everything(indexes)
    passing["image"][:] = False
    passing["text"][1:] = False
    items = NearItems([0, 0, 0], {"image": [0, 1, 2], "text": [NO_KEY, 0, 1]})
    assert passing_places(indexes, items, passing) == [1]
