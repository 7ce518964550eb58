"""Manifests, keys and filters: what is accepted and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.base.errors import BitsDiffer, IndexDiffers, ModelsDiffer, OutOfRange, UserError, WrongShape
from silohash.index.base import (
    FORMAT_VERSION,
    Index,
    IndexManifest,
    Neighbors,
    allowed_keys,
    check_k,
    check_keys,
    check_radius,
    chosen_keys,
    cut,
    distinct,
    first,
    merged_answers,
    ordered,
    positions,
)
from silohash.index.small import SmallIndex

MANIFEST = IndexManifest("digest-of-the-model", 64, "image")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"modality": "sound"}, 'unknown modality "sound"'),
        ({"bits": 7}, "code length 7"),
        ({"format_version": FORMAT_VERSION + 1}, f"format version {FORMAT_VERSION + 1}"),
    ],
)
def test_manifests_that_are_refused(value, message):
    with pytest.raises(UserError, match=message):
        replace(MANIFEST, **value)


def test_only_codes_of_the_same_model_and_length_are_compared():
    MANIFEST.check("digest-of-the-model", 64)
    with pytest.raises(BitsDiffer, match=r"64.*32"):
        MANIFEST.check("digest-of-the-model", 32)
    with pytest.raises(ModelsDiffer, match=r"digest-of-th.*another-mode"):
        MANIFEST.check("another-model", 64)


@pytest.mark.parametrize(
    ("keys", "count", "message"),
    [
        ([1, 2], 3, "one key per code"),
        ([[1], [2]], 2, "one key per code"),
        ([0, -1], 2, "key -1 is negative"),
        ([5, 3, 5], 3, "key 5 is given twice"),
        ([3, 3], 2, "key 3 is given twice"),
    ],
)
def test_keys_that_are_refused(keys, count, message):
    with pytest.raises(UserError, match=message):
        check_keys(np.array(keys), count)


@pytest.mark.parametrize("keys", [[], [0], [3, 1, 2], [0, 7]])
def test_keys_that_are_accepted(keys):
    found = check_keys(np.array(keys, np.int32), len(keys))
    assert found.dtype == np.int64
    assert found.tolist() == keys


def test_bounds_of_k_and_of_the_radius():
    check_k(1)
    check_radius(0)
    with pytest.raises(OutOfRange, match="0"):
        check_k(0)
    with pytest.raises(OutOfRange):
        check_radius(-1)


def test_positions_of_keys_that_exist_and_that_do_not():
    places, there = positions(np.array([2, 4, 6]), np.array([2, 3, 6, 7, 1]))
    assert places.tolist() == [0, 1, 2, 3, 0]
    assert there.tolist() == [True, False, True, False, False]
    for known in (np.arange(3, 8), np.array([3, 5, 6, 7]), np.array([5]), np.array([-2, -1, 0])):
        keys = np.arange(-4, 10)
        places, there = positions(known, keys)
        assert places.tolist() == [sum(other < key for other in known.tolist()) for key in keys.tolist()]
        assert there.tolist() == [key in known.tolist() for key in keys.tolist()]
        assert [len(part) for part in positions(known, keys[:0])] == [0, 0]
    places, there = positions(np.empty(0, np.int64), np.array([2]))
    assert (places.tolist(), there.tolist()) == ([0], [False])


def test_filters_by_key_and_by_mask():
    live = np.array([10, 20, 30])
    assert allowed_keys(np.array([30, 10, 30, 99]), live).tolist() == [10, 30]
    assert allowed_keys(np.array([False, True, True]), live).tolist() == [20, 30]
    assert allowed_keys(np.array([], np.int64), live).tolist() == []
    with pytest.raises(WrongShape):
        allowed_keys(np.array([True, False]), live)


def test_an_index_serves_its_own_silo_and_modality_only():
    of_north = IndexManifest("m", 64, "image", silo="north")
    of_north.check_holder("north", "image")
    with pytest.raises(IndexDiffers, match=r"north.*south"):
        of_north.check_holder("south", "image")
    with pytest.raises(IndexDiffers, match=r"image.*text"):
        of_north.check_holder("north", "text")


@pytest.mark.parametrize("keys", [[], [5], [-1, -1], [7, 2, 7, -1, 2, 0], [3, 3, 3, 4]])
def test_distinct_keys_are_those_of_numpy(keys: list[int]) -> None:
    found = distinct(np.array(keys, np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == sorted(set(keys))


class Untied(Index):
    """An index without `search_with_ties`."""

    def __init__(self, index):
        self.search, self.search_radius = index.search, index.search_radius


def test_an_index_without_ties_is_searched_twice():
    index = SmallIndex(8)
    index.add(np.arange(5), np.array([[0], [1], [2], [3], [255]], np.uint16))
    for k in (1, 2, 3, 5, 9):
        one, two = (each.search_with_ties(np.zeros((1, 1), np.uint16), k) for each in (index, Untied(index)))
        assert sorted(zip(*map(list, one), strict=True)) == sorted(zip(*map(list, two), strict=True))
    keys, distances = Untied(index).search_with_ties(np.zeros((1, 1), np.uint16), 2)
    assert (sorted(keys.tolist()), sorted(distances.tolist())) == ([0, 1, 2], [0, 1, 1])
    for each in (index, Untied(index)):
        keys, distances = each.search_with_ties(np.zeros((1, 1), np.uint16), 2, limit_bits=0)
        assert (keys.tolist(), distances.tolist()) == ([0], [0])


def test_the_first_items_are_found_without_sorting_all_ties() -> None:
    generator = np.random.default_rng(0)
    keys, distances = generator.permutation(500), generator.integers(0, 4, 500)
    for k in (1, 100, 499, 500, 600):
        found, expected = first(keys, distances, k), cut(*ordered(keys, distances), k)
        assert [part.tolist() for part in found[:2]] == [part.tolist() for part in expected[:2]]
        assert found[2] == expected[2]


def test_answers_of_several_queries_are_filled_up() -> None:
    first = (np.array([5, 2]), np.array([0, 3], np.int32), 4)
    merged = merged_answers([first, (np.zeros(0, np.int64), np.zeros(0, np.int32), 0)], 3)
    assert merged.keys.tolist() == [[5, 2, -1], [-1, -1, -1]]
    assert merged.distances.tolist() == [[0, 3, -1], [-1, -1, -1]]
    assert merged.ties_at_cut.tolist() == [4, 0]
    assert merged.keys.dtype == merged.ties_at_cut.dtype == np.int64


def test_filters_of_servers() -> None:
    index = SmallIndex(8)
    index.add(np.array([3, 5, 9]), np.zeros((3, 1), np.uint16))
    assert chosen_keys(np.array([9, 4, 9]), index).tolist() == [4, 9]
    assert chosen_keys(np.array([True, False, True]), index).tolist() == [3, 9]
    assert chosen_keys(np.ones(3, bool), index) is None
    with pytest.raises(WrongShape):
        chosen_keys(np.ones(2, bool), index)


def test_neighbors_print_as_one_line():
    made = Neighbors(np.zeros((30, 10), np.int64), np.zeros((30, 10), np.int32), np.zeros(30, np.int64))
    assert repr(made) == "Neighbors(the nearest 10 items of 30 queries: keys, distances, ties_at_cut)"
