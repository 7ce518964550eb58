"""The index for few items against the flat index: the same keys, distances, order and ties."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import OutOfRange, UnknownItem, UserError
from silohash.index.base import Neighbors
from silohash.index.codes import pack
from silohash.index.flat import FlatIndex
from silohash.index.small import SmallIndex
from tests.unit.index.stores import mistakes


def signs(count: int, bits: int, seed: int = 0) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random((count, bits)) < 0.5, -1, 1)


def same(one: Neighbors, other: Neighbors) -> bool:
    pairs = ((one.keys, other.keys), (one.distances, other.distances), (one.ties_at_cut, other.ties_at_cut))
    return all(np.array_equal(left, right) and left.dtype == right.dtype for left, right in pairs)


def test_distances_ties_and_order_of_a_few_codes() -> None:
    index = SmallIndex(8)
    bits = np.ones((5, 8))
    for row, ones in enumerate((6, 8, 7, 7, 0)):
        bits[row, ones:] = -1
    index.add(np.array([50, 40, 30, 20, 10]), pack(bits))
    found = index.search(pack(np.ones((1, 8))), 2)
    assert found.keys.tolist() == [[40, 20]]
    assert found.distances.tolist() == [[0, 1]]
    assert found.ties_at_cut.tolist() == [1]
    assert index.search_radius(pack(np.ones((1, 8))), 2)[0].keys.tolist() == [[40, 20, 30, 50]]
    assert index.search_radius(pack(np.ones((1, 8))), 8)[0].distances.tolist() == [[0, 1, 1, 2, 8]]


@pytest.mark.parametrize("bits", [8, 13, 16, 24, 64, 128, 256])
@pytest.mark.parametrize("k", [1, 40, 700])
def test_equals_the_flat_index(bits: int, k: int) -> None:
    keys = np.random.default_rng(1).permutation(2_000)[:600]
    words, queries = pack(signs(600, bits)), pack(np.vstack([signs(6, bits, 1), -signs(600, bits)[:1]]))
    indexes = (SmallIndex(bits), FlatIndex(bits))
    for index in indexes:
        index.add(keys, words)
        assert index.remove(np.concatenate([keys[:50], keys[:5], [9_999]])) == 50
        index.add(keys[40:60], words[:20])
    small, flat = indexes
    assert np.array_equal(small.keys, flat.keys)
    assert len(small) == len(flat) == 560
    mask = np.random.default_rng(2).random(len(flat)) < 0.3
    for allowed in (None, mask, flat.keys[mask][::-1], np.array([-5, int(flat.keys[3])]), np.zeros(0, np.int64)):
        assert same(small.search(queries, k, allowed=allowed), flat.search(queries, k, allowed=allowed))
        for radius in (0, bits // 3, bits):
            pairs = zip(
                small.search_radius(queries, radius, allowed=allowed),
                flat.search_radius(queries, radius, allowed=allowed),
                strict=True,
            )
            assert all(same(one, other) for one, other in pairs)


def test_few_items_and_none() -> None:
    query = pack(signs(2, 64))
    index = SmallIndex(64)
    empty = index.search(query, 3)
    assert (empty.keys.tolist(), empty.distances.tolist(), empty.ties_at_cut.tolist()) == (
        [[-1] * 3] * 2,
        [[-1] * 3] * 2,
        [0, 0],
    )
    assert [answer.keys.shape for answer in index.search_radius(query, 64)] == [(1, 0)] * 2
    index.add(np.array([4]), query[:1])
    assert index.search(query[:1], 3).keys.tolist() == [[4, -1, -1]]
    assert index.search(query[:0], 3).keys.shape == (0, 3)


def test_an_existing_key_gets_the_new_code() -> None:
    words = pack(signs(4, 64))
    index = SmallIndex(64)
    index.add(np.array([10, 30, 20]), words[:3])
    index.add(np.array([20]), words[3:])
    assert index.keys.tolist() == [10, 20, 30]
    assert index.search(words[3:], 1).keys.tolist() == [[20]]
    assert index.search(words[2:3], 1).distances[0, 0] > 0


def test_mistakes_are_explained() -> None:
    index, words = SmallIndex(64), pack(signs(2, 64))
    index.add(np.arange(2), words)
    for mistake, message in (
        *mistakes(index),
        (lambda: SmallIndex(7), "7"),
    ):
        with pytest.raises(UserError, match=message):
            mistake()


def near(index, query: np.ndarray, k: int, allowed: np.ndarray | None = None) -> list[tuple[int, int]]:
    keys, distances = index.search_with_ties(query, k, allowed=allowed)
    assert (keys.dtype, distances.dtype) == (np.int64, np.int32)
    return sorted(zip(keys.tolist(), distances.tolist(), strict=True))


@pytest.mark.parametrize("bits", [8, 64, 256])
@pytest.mark.parametrize("k", [1, 5, 60])
def test_ties_are_those_of_two_searches(bits: int, k: int) -> None:
    words, query = pack(signs(60, bits)), pack(signs(1, bits, 1))
    indexes = (SmallIndex(bits), FlatIndex(bits))
    for index in indexes:
        index.add(np.arange(60) * 2, words)
        index.remove(np.array([4, 8]))
    for allowed in (None, np.arange(0, 60, 4), np.zeros(0, np.int64)):
        found = indexes[0].search(query, k, allowed=allowed)
        cut = found.distances[0][found.keys[0] >= 0].max(initial=-1)
        whole = indexes[0].search_radius(query, bits, allowed=allowed)[0]
        within = whole.distances[0] <= cut
        expected = sorted(zip(whole.keys[0][within].tolist(), whole.distances[0][within].tolist(), strict=True))
        assert near(indexes[0], query, k, allowed) == near(indexes[1], query, k, allowed) == expected
    for index in indexes:
        with pytest.raises(OutOfRange, match="0"):
            index.search_with_ties(query, 0)


def test_codes_are_returned_by_key() -> None:
    words = pack(signs(4, 64))
    index = SmallIndex(64)
    index.add(np.array([10, 30, 20, 40]), words)
    index.remove(np.array([30]))
    assert (index.words(np.array([20, 10, 40])) == words[[2, 0, 3]]).all()
    with pytest.raises(UnknownItem, match="30"):
        index.words(np.array([10, 30]))


def test_a_copy_changes_alone() -> None:
    first = SmallIndex(16)
    first.add(np.arange(3), np.array([[5], [6], [7]], np.uint16))
    second = first.copy()
    second.add(np.array([0, 9]), np.array([[50], [90]], np.uint16))
    second.remove(np.array([1]))
    assert (first.keys.tolist(), second.keys.tolist()) == ([0, 1, 2], [0, 2, 9])
    assert first.words(first.keys).tolist() == [[5], [6], [7]]
    assert second.words(second.keys).tolist() == [[50], [7], [90]]
    assert second.bits == 16
