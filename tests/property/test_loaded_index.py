"""A modality that follows the changes of its store equals one that is loaded from it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.index.base import IndexManifest
from silohash.index.store import Store
from silohash.search import loaded_index
from silohash.search.filters import labeled
from silohash.search.loaded_index import LoadedIndex

IDS = st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=6, unique=True)
CHANGES = st.lists(
    st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "compact"]), IDS), max_size=3), min_size=1, max_size=6
)


def change(store: Store, kind: str, ids: list[str], number: int) -> None:
    """Change a store. An item that is added again gets another code and other labels."""
    if kind == "add":
        codes = [[(number * 7919 + 31 * ord(name)) % 65_536] for name in ids]
        labels = [{"labels": [name, f"number {number % 2}"]} for name in ids]
        store.add(ids, np.array(codes, np.uint16), [json.dumps(payload) for payload in labels])
    elif kind == "remove":
        store.remove(ids)
    else:
        store.compact()


def content(loaded: LoadedIndex) -> dict[str, object]:
    """Return everything that a search reads from a modality, by id."""
    keys = loaded.index.keys
    names = [name for name, _ in loaded.rows(keys.tolist())] if len(keys) else []
    query = np.array([0b1010_1100_0101_0011], np.uint16)
    found = {k: [part.tolist() for part in loaded.nearest(query, k)] for k in (1, 3, 50)} if len(keys) else {}
    return {
        "keys": keys.tolist(),
        "rows": loaded.rows(keys.tolist()) if len(keys) else [],
        "codes": [loaded.words(name).tolist() for name in names],
        "digests": loaded.digests(keys).tolist(),
        "labels": {label: loaded.allowed(loaded.passing(labeled(label))).tolist() for label in loaded.labels()},
        "nearest": {k: sorted(zip(*pair, strict=True)) for k, pair in found.items()},
        "within": sorted(zip(*(part.tolist() for part in loaded.within(query, 6)), strict=True)) if len(keys) else [],
    }


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, most_small=st.sampled_from([0, 5, 100]), named=st.booleans())
def test_changes_give_what_loading_gives(
    changes: list[list[tuple[str, list[str]]]], most_small: int, named: bool
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(loaded_index, "SMALL_ITEMS_IF_PREPARED", most_small),
    ):
        manifest = IndexManifest("m", 16, "text", silo="north" if named else "")
        with Store.create(Path(folder) / "text.sqlite", manifest) as store:
            change(store, "add", list("abc"), 0)
            loaded = LoadedIndex("north", store, "flat", prepared=True)
            number = 0
            for some in changes:
                for kind, ids in some:
                    number += 1
                    change(store, kind, ids, number)
                former, before = loaded, content_of_live(loaded, store)
                loaded = LoadedIndex("north", store, "flat", prepared=True, former=former)
                assert content(loaded) == content(LoadedIndex("north", store, "flat", prepared=True))
                assert content_of_live(former, store) == before, (
                    "queries that began before the change see no part of it"
                )


def content_of_live(loaded: LoadedIndex, store: Store) -> list[list[int]]:
    """Return what a modality finds, which reads nothing from the store."""
    assert store is loaded.store
    return [part.tolist() for part in loaded.within(np.zeros(1, np.uint16), 16)] if len(loaded.index) else []
