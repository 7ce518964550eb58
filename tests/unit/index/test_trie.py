"""The trie against the flat index: before and after it is built, with changes, and what it costs in memory."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import UnknownItem, UserError
from silohash.index import trie
from silohash.index.codes import pack
from silohash.index.flat import FlatIndex
from silohash.index.trie import TrieIndex
from tests.unit.index.stores import mistakes

BITS = 64


@pytest.fixture(autouse=True)
def few_items_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trie, "TRIE_ITEMS", 1_000)


def words_of(count, seed=0, bits=BITS):
    """Return codes around ten centers, many of which are equal."""
    generator = np.random.default_rng(seed)
    centers = np.where(np.random.default_rng(9).random((10, bits)) < 0.5, -1, 1)
    flips = np.where(generator.random((count, bits)) < 0.02, -1, 1)
    return pack(centers[generator.integers(0, 10, count)] * flips)


def pair(count=3_000, **options):
    """Return a trie and a flat index with the same items."""
    both = TrieIndex(BITS, **options), FlatIndex(BITS)
    for index in both:
        index.add(np.arange(count) * 2, words_of(count))
    return both


def check_same(index, oracle, k=10, **options):
    """Check that two indexes give the same answers to some queries."""
    queries = words_of(5, 3)
    first, second = (each.search(queries, k, **options) for each in (index, oracle))
    assert (first.keys == second.keys).all()
    assert (first.distances == second.distances).all()
    assert (first.ties_at_cut == second.ties_at_cut).all()


def test_the_trie_is_built_when_the_expected_items_are_there():
    index = TrieIndex(BITS, capacity=2_000)
    words = words_of(2_000)
    index.add(np.arange(1_500), words[:1_500])
    assert len(index._trie.keys) == 0
    index.add(np.arange(1_500, 2_000), words[1_500:])
    assert len(index._trie.keys) == 2_000
    assert len(index._tail) == 0


def test_changes_are_followed_and_built_in_when_they_are_many():
    index, oracle = pair()
    assert len(index._trie.keys) == 3_000
    for each in (index, oracle):
        each.add(np.arange(1, 81, 2), words_of(40, 5))
        each.add(np.arange(0, 20, 2), words_of(10, 6))
        assert each.remove(np.array([40, 42, 1, 9_999])) == 3
    assert (len(index._tail), index._removed) == (49, 12)
    assert len(index) == len(oracle)
    assert (index.keys == oracle.keys).all()
    assert (index.words(index.keys) == oracle.words(index.keys)).all()
    check_same(index, oracle)
    built = index._trie
    for each in (index, oracle):
        each.remove(np.arange(100, 200, 2))
    assert index._trie is not built
    assert (len(index._tail), index._removed, len(index._trie.keys)) == (0, 0, len(oracle))
    check_same(index, oracle, 300)
    with pytest.raises(UnknownItem, match="Key 40 "):
        index.words(np.array([44, 40]))


def test_all_items_can_be_removed_and_others_added():
    index, _ = pair()
    assert index.remove(index.keys) == 3_000
    assert (len(index), index.keys.tolist()) == (0, [])
    assert index.search(words_of(1), 2).keys.tolist() == [[-1, -1]]
    index.add(np.array([3]), words_of(1))
    assert index.search(words_of(1), 2).keys.tolist() == [[3, -1]]


@pytest.mark.parametrize("share", [0.005, 0.3, 1.0])
@pytest.mark.parametrize("changed", [False, True])
def test_filters_by_mask_and_by_keys(share, changed):
    index, oracle = pair()
    if changed:
        for each in (index, oracle):
            each.add(np.arange(1, 41, 2), words_of(20, 5))
            each.remove(np.array([2, 4, 1]))
    passing = np.random.default_rng(1).random(len(index)) < share
    for allowed in (passing, index.keys[passing][::-1], np.append(index.keys[passing], 12_345)):
        check_same(index, oracle, allowed=allowed)


def test_a_copy_changes_alone():
    first, oracle = pair()
    second = first.copy()
    second.add(np.array([1, 4]), words_of(2, 8))
    second.remove(np.array([0]))
    assert (len(first), len(second)) == (3_000, 3_000)
    check_same(first, oracle)
    for key, words in zip((1, 4), words_of(2, 8), strict=True):
        oracle.add(np.array([key]), words[None])
    oracle.remove(np.array([0]))
    check_same(second, oracle)


@pytest.mark.parametrize("budget", [0.0, 1e3])
def test_answers_do_not_depend_on_the_budget(budget, monkeypatch):
    monkeypatch.setattr(trie, "BUDGET_SHARE", budget)
    monkeypatch.setattr(trie, "BATCH_BUDGET_SHARE", budget)
    index, oracle = pair()
    for k in (1, 30, 5_000):
        check_same(index, oracle, k)
    [found], [expected] = (each.search_radius(words_of(1, 3), 9) for each in (index, oracle))
    assert (found.keys == expected.keys).all()


def test_a_limit_leaves_out_items_beyond_it():
    index, oracle = pair()
    query = words_of(1, 3)
    for limit in (0, 3, 20):
        keys, distances = index.search_with_ties(query, 50, limit_bits=limit)
        expected = oracle.search_with_ties(query, 50, limit_bits=limit)
        assert sorted(zip(distances, keys, strict=True)) == sorted(zip(*expected[::-1], strict=True))
        assert (distances <= limit).all()


def test_before_the_trie_is_built_filters_and_limits_count():
    index, oracle = pair(900)
    assert len(index._trie.keys) == 0
    for share in (0.005, 0.5):
        passing = np.random.default_rng(1).random(900) < share
        check_same(index, oracle, allowed=passing)
        first, second = (
            each.search_with_ties(words_of(1, 3), 7, allowed=passing, limit_bits=9) for each in (index, oracle)
        )
        assert sorted(first[0]) == sorted(second[0])


def test_memory_and_mistakes():
    index, oracle = pair(60_000)
    assert index.memory_bytes - oracle.memory_bytes <= 5 * 60_000
    index.words(np.array([0]))
    assert 4 * 60_000 < index.memory_bytes - oracle.memory_bytes <= 9 * 60_000
    for mistake, message in mistakes(index):
        with pytest.raises(UserError, match=message):
            mistake()
