"""The faiss index by itself; its agreement with the flat index is a parity test."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import OutOfRange
from silohash.index.codes import pack

pytest.importorskip("faiss")

from silohash.index.faiss import FaissIndex

ZERO = np.zeros((1, 1), np.uint16)


def index_at(*distances, bits=16):
    """Return an index whose item 10 * n lies at the n-th distance from the code 0."""
    index = FaissIndex(bits)
    words = np.array([[(1 << distance) - 1] for distance in distances], np.uint16)
    index.add(10 * np.arange(len(distances)), words)
    return index


def test_neighbors_computed_by_hand():
    found = index_at(3, 1, 2, 1, 3, 3).search(ZERO, 4)
    assert found.keys.tolist() == [[10, 30, 20, 0]]
    assert found.distances.tolist() == [[1, 1, 2, 3]]
    assert found.ties_at_cut.tolist() == [2]


def test_missing_neighbors_are_minus_one():
    found = index_at(3, 1).search(ZERO, 4)
    assert found.keys.tolist() == [[10, 0, -1, -1]]
    assert found.distances.tolist() == [[1, 3, -1, -1]]
    assert found.ties_at_cut.tolist() == [0]


def test_a_radius_includes_its_own_distance():
    index = index_at(0, 1, 2)
    assert index.search_radius(ZERO, 1)[0].keys.tolist() == [[0, 10]]
    assert index.search_radius(ZERO, 0)[0].distances.tolist() == [[0]]


def test_filters_select_what_is_searched():
    index = index_at(0, 1, 2, 2)
    found = index.search(ZERO, 2, allowed=np.array([10, 20, 30]))
    assert (found.keys.tolist(), found.ties_at_cut.tolist()) == ([[10, 20]], [1])
    assert index.search_radius(ZERO, 2, allowed=np.array([False, True, False, False]))[0].keys.tolist() == [[10]]
    assert index.search(ZERO, 1, allowed=np.array([], np.int64)).keys.tolist() == [[-1]]


def test_added_replaced_and_removed():
    index = index_at(0, 1)
    index.add(np.array([0, 5]), np.array([[3], [1]], np.uint16))
    assert index.keys.tolist() == [0, 5, 10]
    assert len(index) == 3
    assert index.search(ZERO, 3).keys.tolist() == [[5, 10, 0]]
    assert index.remove(np.array([5, 5, 99])) == 1
    assert index.remove(np.array([5])) == 0
    assert index.keys.tolist() == [0, 10]


def test_an_empty_index_finds_nothing():
    index = FaissIndex(32)
    query = pack(np.ones((1, 32)))
    assert index.search(query, 2).keys.tolist() == [[-1, -1]]
    assert index.search_radius(query, 3)[0].keys.shape == (1, 0)
    assert index.remove(np.array([3])) == 0


@pytest.mark.parametrize("bits", [8, 32, 40])
def test_padding_does_not_change_distances(bits):
    index = FaissIndex(bits)
    index.add(np.arange(2), pack(np.vstack([np.ones(bits), -np.ones(bits)])))
    assert index.search(pack(np.ones((1, bits))), 2).distances.tolist() == [[0, bits]]


def test_mistakes_are_refused():
    for mistake in (lambda: index_at(0).search(ZERO, 0), lambda: index_at(0).search_radius(ZERO, -1)):
        with pytest.raises(OutOfRange):
            mistake()
    with pytest.raises(OutOfRange):
        FaissIndex(7)
