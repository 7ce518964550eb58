"""The flat index against a full table of distances, and its additions, removals and filters."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import UnknownItem, UserError
from silohash.index.codes import pack
from silohash.index.flat import FlatIndex
from silohash.index.kernels import ALIGNED_BYTES, BLOCK_CODES
from tests.unit.index.stores import mistakes


def signs(count, bits, seed=0, chance=0.5):
    return np.where(np.random.default_rng(seed).random((count, bits)) < chance, -1, 1)


def expected(queries, database, k):
    """Distances and rows of the k nearest by a full table in int64, ties by row, and the ties left out."""
    distances = (database.shape[1] - queries @ database.T) // 2
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    cut = np.take_along_axis(distances, order[:, -1:], axis=1)
    return order, np.take_along_axis(distances, order, axis=1), (distances <= cut).sum(axis=1) - k


@pytest.mark.parametrize("bits", [8, 13, 16, 24, 32, 64, 128, 248, 249, 256])
@pytest.mark.parametrize("k", [1, 100, 3000])
def test_equals_the_full_table(bits, k):
    database, queries = signs(2 * BLOCK_CODES + 77, bits), signs(70, bits, 1)
    queries[0], queries[1] = database[-1], -database[5]
    index = FlatIndex(bits)
    index.add(np.arange(len(database)), pack(database))
    found = index.search(pack(queries), k)
    rows, distances, ties = expected(queries, database, k)
    assert (found.keys == rows).all()
    assert (found.distances == distances).all()
    assert (found.ties_at_cut == ties).all()


@pytest.mark.parametrize("bits", [128, 256])
def test_opposite_codes_lie_all_bits_apart(bits):
    index = FlatIndex(bits)
    index.add(np.arange(2), pack(np.vstack([np.ones(bits), -np.ones(bits)])))
    found = index.search(pack(np.ones((1, bits))), 2)
    assert found.distances.tolist() == [[0, bits]]
    assert index.search_radius(pack(np.ones((1, bits))), bits - 1)[0].keys.tolist() == [[0]]


def test_the_farthest_first_order_still_finds_the_nearest():
    """Every item is nearer than all before it, so that the store of candidates overflows again and again."""
    database = np.ones((60 * 64, 64))
    for row in range(len(database)):
        database[row, : 63 - row // 60] = -1
    index = FlatIndex(64)
    index.add(np.arange(len(database)), pack(database))
    found = index.search(pack(np.ones((1, 64))), 7)
    assert found.keys[0].tolist() == list(range(3780, 3787))
    assert found.ties_at_cut.tolist() == [53]


def test_threads_change_nothing():
    database, queries = signs(3000, 32), pack(signs(150, 32, 1))
    one, two = FlatIndex(32), FlatIndex(32, threads=2)
    for index in (one, two):
        index.add(np.arange(3000), pack(database))
    assert (one.search(queries, 20).keys == two.search(queries, 20).keys).all()


def test_few_items_and_none():
    query = pack(signs(2, 64))
    index = FlatIndex(64)
    empty = index.search(query, 3)
    assert empty.keys.tolist() == [[-1] * 3] * 2
    assert empty.distances.tolist() == [[-1] * 3] * 2
    assert empty.ties_at_cut.tolist() == [0, 0]
    assert [answer.keys.shape for answer in index.search_radius(query, 64)] == [(1, 0)] * 2
    index.add(np.array([4]), query[:1])
    assert index.search(query[:1], 3).keys.tolist() == [[4, -1, -1]]
    assert index.search(query[:0], 3).keys.shape == (0, 3)
    assert index.search(query[:1], 3, allowed=np.array([], np.int64)).keys.tolist() == [[-1, -1, -1]]


def test_replaced_removed_and_added_again():
    words = pack(signs(6, 64))
    index = FlatIndex(64)
    index.add(np.array([10, 30, 20]), words[:3])
    index.add(np.array([20, 15]), words[3:5])
    assert index.keys.tolist() == [10, 15, 20, 30]
    assert (index.words(np.array([20, 15, 10])) == words[[3, 4, 0]]).all()
    assert index.remove(np.array([20, 20, 99])) == 1
    assert index.search(words[3:4], 1).distances[0, 0] > 0
    with pytest.raises(UnknownItem, match="Key 20"):
        index.words(np.array([20]))
    index.add(np.array([20]), words[5:6])
    assert index.search(words[5:6], 1).keys.tolist() == [[20]]
    assert len(index) == 4


def test_tombstones_are_swept_out():
    index = FlatIndex(64)
    index.add(np.arange(10 * BLOCK_CODES), pack(signs(10 * BLOCK_CODES, 64)))
    before = index.memory_bytes
    index.remove(np.arange(9 * BLOCK_CODES))
    assert len(index) == BLOCK_CODES
    assert index.memory_bytes < before / 9


@pytest.mark.parametrize("removed", [0, 100])
@pytest.mark.parametrize("share", [0.004, 0.5])
def test_filters_narrow_and_wide(share, removed):
    database, queries = signs(5000, 64), signs(5, 64, 1)
    index = FlatIndex(64)
    index.add(np.arange(5000) * 3, pack(database))
    index.remove(np.arange(0, 3 * removed, 3))
    kept = np.random.default_rng(2).random(5000 - removed) < share
    rows, distances, ties = expected(queries, database[removed:][kept], 4)
    for allowed in (kept, index.keys[kept][::-1]):
        found = index.search(pack(queries), 4, allowed=allowed)
        assert (found.keys == index.keys[kept][rows]).all()
        assert (found.distances == distances).all()
        assert (found.ties_at_cut == ties).all()


def test_memory_of_a_million_codes():
    index = FlatIndex(64)
    for start in range(0, 1_000_000, 100_000):
        index.add(np.arange(start, start + 100_000), np.zeros((100_000, 1), np.uint64))
    assert index.memory_bytes <= 1_000_000 * (8 + 8) * 1.1


def test_mistakes_are_explained():
    index, words = FlatIndex(64), pack(signs(2, 64))
    for mistake, message in (
        *mistakes(index),
        (lambda: index.add(np.array([-1, 1]), words), "-1"),
        (lambda: FlatIndex(64, threads=0), "one thread"),
        (lambda: FlatIndex(300), "256"),
    ):
        with pytest.raises(UserError, match=message):
            mistake()


def test_defaults_and_reserved_memory():
    index = FlatIndex(8)
    assert FlatIndex.exact is True
    assert (index.threads, index.memory_bytes, len(index)) == (1, 0, 0)
    assert FlatIndex(8, capacity=BLOCK_CODES + 1).memory_bytes == 2 * BLOCK_CODES + 8 * (BLOCK_CODES + 1)


def test_a_radius_leaves_out_removed_and_filtered_items():
    database = np.ones((4, 8))
    database[1:, 0], database[3, 1] = -1, -1
    index = FlatIndex(8)
    index.add(np.arange(4), pack(database))
    query = pack(np.ones((1, 8)))
    assert index.search_radius(query, 1)[0].keys.tolist() == [[0, 1, 2]]
    assert index.search_radius(query, 0)[0].keys.tolist() == [[0]]
    index.remove(np.array([1]))
    (found,) = index.search_radius(query, 8)
    assert (found.keys.tolist(), found.distances.tolist()) == ([[0, 2, 3]], [[0, 1, 2]])
    assert found.ties_at_cut.tolist() == [0]
    (found,) = index.search_radius(query, 8, allowed=np.array([3, 2]))
    assert found.keys.tolist() == [[2, 3]]


def test_the_last_key_is_replaced_rather_than_appended():
    words = pack(signs(3, 64))
    index = FlatIndex(64)
    index.add(np.array([4]), words[:1])
    index.add(np.array([4]), words[1:2])
    assert index.keys.tolist() == [4]
    assert (index.words(np.array([4])) == words[1:2]).all()
    index.add(np.array([0]), words[2:])
    assert index.keys.tolist() == [0, 4]


def test_a_quarter_of_tombstones_is_kept_and_more_are_not():
    index = FlatIndex(64)
    index.add(np.arange(8), pack(signs(8, 64)))
    full = index.memory_bytes
    index.remove(np.array([0, 1]))
    assert index.memory_bytes == full + 8
    index.add(np.array([8]), pack(signs(1, 64, 3)))
    assert index.keys.tolist() == [2, 3, 4, 5, 6, 7, 8]
    index.remove(np.array([2]))
    assert len(index._slot_keys[: index._used]) == len(index) == 6


def test_items_added_after_a_removal_are_found():
    index = FlatIndex(64)
    words = pack(signs(40, 64))
    index.add(np.arange(20), words[:20])
    index.remove(np.array([3]))
    index.add(np.arange(20, 40), words[20:])
    assert index.search(words[30:31], 1).keys.tolist() == [[30]]
    assert index.remove(np.array([3])) == 0
    index.add(np.array([3]), words[:1])
    assert index.search(words[:1], 2).keys.tolist() == [[0, 3]]


@pytest.mark.parametrize("count", [4, 100])
def test_results_are_filled_up_if_a_filter_passes_fewer_than_k(count):
    index, words = FlatIndex(64), pack(signs(count, 64))
    index.add(np.arange(count), words)
    found = index.search(words[:1], 3, allowed=np.array([2]))
    assert found.keys.tolist() == [[2, -1, -1]]
    assert found.distances[0, 1:].tolist() == [-1, -1]


def test_a_copy_changes_alone():
    first = FlatIndex(16)
    first.add(np.arange(5), np.arange(5, dtype=np.uint16)[:, None])
    first.remove(np.array([1]))
    second = first.copy()
    second.add(np.array([4, 7]), np.array([[40], [70]], np.uint16))
    second.remove(np.array([0]))
    assert (first.keys.tolist(), second.keys.tolist()) == ([0, 2, 3, 4], [2, 3, 4, 7])
    assert first.words(np.array([0, 4])).tolist() == [[0], [4]]
    assert second.words(np.array([2, 4, 7])).tolist() == [[2], [40], [70]]
    whole = FlatIndex(16, threads=3)
    whole.add(np.arange(2), np.array([[5], [6]], np.uint16))
    copied = whole.copy()
    copied.add(np.array([0]), np.array([[9]], np.uint16))
    assert (copied.threads, copied.bits) == (3, 16)
    assert (whole.words(np.array([0])).tolist(), copied.words(np.array([0])).tolist()) == ([[5]], [[9]])
    copied.remove(np.array([1]))
    assert whole.keys.tolist() == [0, 1]


def test_codes_begin_at_a_cache_line_after_every_change() -> None:
    index = FlatIndex(64)
    index.add(np.arange(3000), pack(signs(3000, 64)))
    starts = [index._blocks.ctypes.data]
    index.add(np.arange(3000, 9000), pack(signs(6000, 64, 1)))
    starts.append(index._blocks.ctypes.data)
    index.remove(np.arange(0, 9000, 2))
    starts += [index._blocks.ctypes.data, index.copy()._blocks.ctypes.data]
    assert [start % ALIGNED_BYTES for start in starts] == [0, 0, 0, 0]
