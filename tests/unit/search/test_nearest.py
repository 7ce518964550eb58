"""The nearest items over two sides equal those of a plain scan, ties included."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.index.base import IndexManifest
from silohash.index.store import Store
from silohash.search.hits import Query
from silohash.search.nearest import NO_KEY, NearItems, nearest_items
from silohash.search.order import tie_order
from silohash.search.side import Side

BITS = 8
KEY = b"key"


def side_at(folder, modality, distances):
    """Return a side whose items lie at the given distances from the code 0; ``distances`` maps an id to a distance."""
    store = Store.create(folder / f"{modality}.sqlite", IndexManifest("m", BITS, modality))
    words = np.array([[(1 << distance) - 1] for distance in distances.values()], np.uint16).reshape(-1, 1)
    store.add(list(distances), words)
    return Side("north", store, "flat")


def query(**asked):
    return Query(words=np.zeros(1, np.uint16), bits=BITS, model_digest="m", target="item", tie_key=KEY, **asked)


def found(sides, k, radius_bits=None):
    items, left_out = nearest_items(sides, query(k=k), k, radius_bits)
    ids = []
    for place, (modality, *_) in enumerate(items.found_by):
        ids.append(sides[modality].store.item_ids(np.array([items.keys[modality][place]]))[0])
    return list(zip(items.distances_bits, ids, items.found_by, strict=True)), left_out


def plain(image, text, k, radius_bits=BITS):
    """Return the same by looking at every item."""
    rows = []
    for name in {*image, *text}:
        codes = {"image": image.get(name), "text": text.get(name)}
        nearest = min(distance for distance in codes.values() if distance is not None)
        if nearest <= radius_bits:
            matched = tuple(side for side, distance in codes.items() if distance == nearest)
            rows.append((nearest, int(tie_order(["north"], [name], KEY)[0]), name, matched))
    rows.sort()
    kept = [(distance, name, matched) for distance, _, name, matched in rows[:k]]
    more = sum(1 for distance, *_ in rows[k:] if kept and distance == kept[-1][0])
    return kept, ({kept[-1][0]: more} if more else {})


def test_an_item_is_found_by_the_nearer_of_its_codes(tmp_path):
    sides = {
        "image": side_at(tmp_path, "image", {"a": 1, "b": 5, "c": 2}),
        "text": side_at(tmp_path, "text", {"a": 4, "b": 0, "c": 2, "d": 3}),
    }
    expected = [(0, "b", ("text",)), (1, "a", ("image",)), (2, "c", ("image", "text")), (3, "d", ("text",))]
    assert found(sides, 9) == (expected, {})
    assert found(sides, 3) == (expected[:3], {})
    assert found(sides, 9, radius_bits=1) == (expected[:2], {})
    assert found({"text": sides["text"]}, 2)[0] == [(0, "b", ("text",)), (2, "c", ("text",))]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("k", [1, 2, 5, 11, 40])
def test_items_ties_and_counts_equal_a_plain_scan(tmp_path, seed, k):
    generator = np.random.default_rng([seed, k])
    names = [f"item {number}" for number in range(30)]
    image, text = (
        {name: int(generator.integers(0, 4)) for name in names if generator.random() < share} for share in (0.8, 0.6)
    )
    sides = {"image": side_at(tmp_path, "image", image), "text": side_at(tmp_path, "text", text)}
    assert found(sides, k) == plain(image, text, k)
    assert found(sides, k, radius_bits=1) == plain(image, text, k, radius_bits=1)


def test_the_tie_at_the_cut_counts_every_item_once(tmp_path):
    """Ten items tie on both sides, five on one: fifteen items, of which four are kept."""
    both = {f"b{number}": 2 for number in range(10)}
    sides = {
        "image": side_at(tmp_path, "image", both),
        "text": side_at(tmp_path, "text", {**both, **{f"t{number}": 2 for number in range(5)}}),
    }
    items, left_out = found(sides, 4)
    assert len(items) == 4
    assert left_out == {2: 11}


def test_a_side_that_ends_before_the_cut_of_the_other(tmp_path):
    sides = {
        "image": side_at(tmp_path, "image", {"a": 6, "b": 7}),
        "text": side_at(tmp_path, "text", {"a": 3, "c": 3, "d": 3}),
    }
    items, left_out = found(sides, 2)
    assert {distance for distance, *_ in items} == {3}
    assert left_out == {3: 1}


def test_no_items(tmp_path):
    assert found({"text": side_at(tmp_path, "text", {})}, 3) == ([], {})


def test_items_keep_a_key_per_side_and_can_be_chosen_from():
    items = NearItems([0, 1, 2], {"image": [NO_KEY, 4, 6], "text": [5, NO_KEY, 7]})
    assert len(items) == 3
    assert items.found_by == (("text",), ("image",), ("image", "text"))
    assert items.taken([2, 0]) == NearItems([2, 0], {"image": [6, NO_KEY], "text": [7, 5]})
    assert items.taken([]).found_by == ()
    assert NearItems([3], {"text": [8]}).found_by == (("text",),)
