"""Distances to items: the nearer of two codes, counted as a plain loop counts."""

import numpy as np
import pytest

from silohash.base.errors import LengthsDiffer, MissingContent
from silohash.evaluate.items import ItemCodes, item_gains, item_histogram
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.evaluate.ties import histogram
from tests.unit.evaluate.rankings import pack


def task(bits=24, queries=7, items=60, classes=5, seed=0):
    generator = np.random.default_rng([seed, bits])
    signs = [generator.integers(0, 2, (count, bits), dtype=np.uint8) for count in (queries, items, items)]
    labels = [(generator.random((count, classes)) < 0.4).astype(np.uint8) for count in (queries, items)]
    held = generator.random((2, items)) < 0.7
    held[0] |= ~held[1]
    return signs, labels, held


def plain_distances(signs, held):
    queries, *sides = signs
    found = np.empty((len(queries), len(sides[0])), int)
    for query in range(len(queries)):
        for item in range(len(sides[0])):
            apart = [
                int((queries[query] != side[item]).sum()) for side, has in zip(sides, held, strict=True) if has[item]
            ]
            found[query, item] = min(apart)
    return found


def codes_of(signs, held):
    return pack(signs[0]), ItemCodes((pack(signs[1]), pack(signs[2])), (held[0], held[1]))


@pytest.mark.parametrize("bits", [8, 24, 64, 100])
@pytest.mark.parametrize("graded", [False, True])
def test_counts_equal_a_plain_loop(bits, graded):
    signs, labels, held = task(bits)
    queries, items = codes_of(signs, held)
    distances, shared = plain_distances(signs, held), labels[0].astype(int) @ labels[1].T.astype(int)
    np.testing.assert_array_equal(items.distances(queries, bits), distances)
    found = item_histogram(queries, items, Relevance(*labels), bits, graded=graded).counts
    expected = np.zeros_like(found)
    for query in range(len(queries)):
        for item in range(len(items)):
            level = shared[query, item] if graded else min(shared[query, item], 1)
            expected[query, distances[query, item], level] += 1
    np.testing.assert_array_equal(found, expected)


def test_counts_of_pairs():
    signs, _, held = task()
    queries, items = codes_of(signs, held)
    pairs = Pairs(7, 60, np.array([0, 3, 3, 6]), np.array([5, 5, 59, 0]))
    distances = plain_distances(signs, held)
    found = item_histogram(queries, items, pairs, 24).counts
    expected = np.zeros_like(found)
    for query in range(7):
        for item in range(60):
            partner = (query, item) in {(0, 5), (3, 5), (3, 59), (6, 0)}
            expected[query, distances[query, item], int(partner)] += 1
    np.testing.assert_array_equal(found, expected)


def test_items_with_two_equal_sides_are_those_of_one_side():
    signs, labels, _ = task(32)
    everyone = np.ones(60, bool)
    items = ItemCodes((pack(signs[1]), pack(signs[1])), (everyone, everyone))
    relevance = Relevance(*labels)
    one = histogram(pack(signs[0]), pack(signs[1]), relevance, 32)
    np.testing.assert_array_equal(item_histogram(pack(signs[0]), items, relevance, 32).counts, one.counts)


@pytest.mark.parametrize("graded", [False, True])
def test_an_item_that_is_left_out_is_not_counted(graded):
    signs, labels, held = task()
    labels[1][4] = labels[0][0] = 1
    queries, items = codes_of(signs, held)
    left_out = np.full((7, 2), -1)
    left_out[[0, 0, 2, 4], [0, 1, 1, 0]] = [4, 7, 59, 0]
    whole = item_histogram(queries, items, Relevance(*labels), 24, graded=graded).counts
    found = item_histogram(queries, items, Relevance(*labels, (), left_out), 24, graded=graded).counts
    distances, shared = plain_distances(signs, held), labels[0].astype(int) @ labels[1].T.astype(int)
    for query, item in ((0, 4), (0, 7), (2, 59), (4, 0)):
        whole[query, distances[query, item], shared[query, item] if graded else min(shared[query, item], 1)] -= 1
    np.testing.assert_array_equal(found, whole)
    [ranked] = item_gains(queries, items, Relevance(*labels, (), left_out), 24, np.array([0]))
    order = [item for item in np.argsort(distances[0], kind="stable") if item not in (4, 7)]
    assert ranked.tolist() == [*shared[0][order], 0, 0]


def test_an_item_that_is_left_out_comes_after_the_farthest():
    queries, codes = np.array([[0]], np.uint16), np.array([[0], [255]], np.uint16)
    items, ones = ItemCodes((codes,), (np.array([True, True]),)), np.ones((2, 1), np.uint8)
    relevance = Relevance(ones[:1], ones, (), np.array([0]))
    assert item_gains(queries, items, relevance, 8, np.array([0])).tolist() == [[1, 0]]


def test_gains_keep_the_order_of_the_database_among_ties():
    signs, labels, held = task(8)
    queries, items = codes_of(signs, held)
    distances, shared = plain_distances(signs, held), labels[0].astype(int) @ labels[1].T.astype(int)
    rows = np.array([5, 1])
    found = item_gains(queries, items, Relevance(*labels), 8, rows)
    for row, gains in zip(rows, found, strict=True):
        ranked = sorted(range(60), key=lambda item: (distances[row, item], item))
        assert gains.tolist() == shared[row][ranked].tolist()


def test_sides_of_different_sizes_are_refused():
    codes, held = np.zeros((3, 1), np.uint16), np.ones(3, bool)
    with pytest.raises(LengthsDiffer, match=r"2.*2.*3"):
        ItemCodes((codes, codes[:2]), (held, held))
    with pytest.raises(LengthsDiffer, match="2"):
        ItemCodes((codes, codes), (held,))


def test_an_item_without_a_code_is_refused():
    codes, held = np.zeros((3, 1), np.uint16), np.array([True, False, True])
    with pytest.raises(MissingContent, match="1"):
        ItemCodes((codes, codes), (held, held))


def test_relevance_of_other_items_is_refused():
    signs, labels, held = task()
    queries, items = codes_of(signs, held)
    with pytest.raises(LengthsDiffer, match=r"7.*60.*7.*59"):
        item_histogram(queries, items, Relevance(labels[0], labels[1][:59]), 24)
