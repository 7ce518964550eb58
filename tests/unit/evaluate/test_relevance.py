"""Relevance by labels and by pairs, against plain loops over queries and items."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import LengthsDiffer, OutOfRange, RepeatedValue, UserError, WrongShape
from silohash.evaluate.relevance import MAX_SHARED_LABELS, Pairs, Relevance, label_words, to_words
from tests.unit.evaluate import rankings
from tests.unit.evaluate.rankings import evaluated


def labels(count, classes, seed, rate=0.3):
    return (np.random.default_rng(seed).random((count, classes)) < rate).astype(np.uint8)


@pytest.mark.parametrize("bits", [1, 8, 12, 63, 64, 65, 130, 256])
def test_words_hold_bit_k_of_a_code_at_weight_two_to_the_k(bits):
    signs = np.random.default_rng(bits).integers(0, 2, (3, bits), dtype=np.uint8)
    words = to_words(rankings.pack(signs), bits)
    assert words.shape == (3, -(-bits // 64))
    for row in range(3):
        number = sum(int(sign) << bit for bit, sign in enumerate(signs[row]))
        assert sum(int(word) << (64 * place) for place, word in enumerate(words[row])) == number


@pytest.mark.parametrize("classes", [1, 8, 63, 64, 65, 129])
def test_masks_hold_column_c_at_weight_two_to_the_c(classes):
    table = labels(4, classes, classes)
    masks = label_words(table)
    assert masks.shape == (4, -(-classes // 64))
    for row in range(4):
        number = sum(int(value) << column for column, value in enumerate(table[row]))
        assert sum(int(word) << (64 * place) for place, word in enumerate(masks[row])) == number


@pytest.mark.parametrize("ignore", [(), (0,), (2, 69)])
def test_gains_count_the_shared_labels_that_are_not_ignored(ignore):
    queries, items = labels(5, 70, 1), labels(9, 70, 2)
    relevance = Relevance(queries, items, ignore=ignore)
    rows = np.array([4, 0])
    expected = [
        [sum(int(queries[q, c] and items[i, c]) for c in range(70) if c not in ignore) for i in range(9)] for q in rows
    ]
    assert relevance.gains(rows).tolist() == expected
    most = max(sum(row) for row in np.delete(queries, ignore, axis=1).tolist())
    assert relevance.most_shared() <= most
    assert relevance.most_shared() >= max(map(max, expected))


def test_label_lists_are_positions_among_the_kept_columns():
    table = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [1, 0, 0, 0]], np.uint8)
    relevance = Relevance(table, table, ignore=(0,))
    assert relevance.kept.tolist() == [1, 2, 3]
    assert relevance.query_label_lists().tolist() == [[1, 2], [2, -1], [-1, -1]]


def test_labels_shared_with_the_item_that_is_left_out():
    table = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]], np.uint8)
    rows, shared = Relevance(table, table, left_out=np.array([1, -1, 2])).shared_with_left_out()
    assert (rows.tolist(), shared.tolist()) == ([0, 2], [1, 3])
    assert [len(part) for part in Relevance(table, table).shared_with_left_out()] == [0, 0]


def test_a_query_can_leave_several_items_out():
    table = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]], np.uint8)
    relevance = Relevance(table, table, left_out=np.array([[1, 2], [-1, -1], [0, -1]]))
    assert [part.tolist() for part in relevance.left_out_pairs()] == [[0, 0, 2], [1, 2, 0]]
    assert [part.tolist() for part in relevance.left_out_pairs(np.array([2, 1]))] == [[0], [0]]
    assert relevance.shared_with_left_out()[1].tolist() == [1, 2, 2]
    with pytest.raises(OutOfRange, match="name an item to leave out"):
        Relevance(table, table, left_out=np.array([[0, 3], [-1, -1], [-1, -1]]))


def test_more_shared_labels_than_can_be_graded_are_refused():
    few, many = (np.ones((1, count), np.uint8) for count in (MAX_SHARED_LABELS, MAX_SHARED_LABELS + 1))
    assert Relevance(few, few).most_shared() == 255
    with pytest.raises(OutOfRange, match=r"256.*255"):
        Relevance(many, many).most_shared()


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(WrongShape):
        Relevance(np.ones(3, np.uint8), np.ones((1, 3), np.uint8))
    with pytest.raises(LengthsDiffer, match=r"2.*3"):
        Relevance(np.ones((1, 2), np.uint8), np.ones((1, 3), np.uint8))


def test_pairs_of_groups_join_equal_names():
    queries, items = np.array(["b", "a", "x", "b"]), np.array(["a", "b", "a", "y"])
    pairs = Pairs.of_groups(queries, items)
    found = sorted(zip(pairs.query_rows.tolist(), pairs.database_rows.tolist(), strict=True))
    assert found == [(q, i) for q in range(4) for i in range(4) if queries[q] == items[i]]
    assert (pairs.queries, pairs.items) == (4, 4)
    assert pairs.gains(np.array([1, 2])).tolist() == [[1, 0, 1, 0], [0, 0, 0, 0]]


def test_success_over_pairs_is_recall_at_k_of_pictures_and_captions():
    pictures = rankings.pack(np.array([[0] * 8, [1] * 8]))
    captions = rankings.pack(np.array([[0] * 8, [1] * 4 + [0] * 4, [1] * 8, [1] * 7 + [0]]))
    pairs = Pairs.of_groups(np.array(["a", "b"]), np.array(["b", "a", "a", "b"]))
    # Picture a ranks its captions second and fourth, picture b second and fourth as well.
    values = [evaluated(f"Success@{k}", pictures, captions, pairs, 8).mean() for k in (1, 2, 4)]
    assert values == [0.0, 1.0, 1.0]


def test_labels_that_are_left_out_relate_nothing():
    labels = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0]], np.uint8)
    relevance = Relevance(labels, labels, ignore=(0,))
    np.testing.assert_array_equal(relevance.gains(np.arange(3)), np.diag([1, 1, 0]))
    codes = rankings.pack(np.zeros((3, 8)))
    without = evaluated("mAP@all", codes, codes, relevance, 8)
    equal = evaluated("mAP@all", codes, codes, Relevance(labels[:, 1:], labels[:, 1:]), 8)
    np.testing.assert_array_equal(without.value, equal.value)


@pytest.mark.parametrize("ignore", [(3,), (-1,)])
def test_a_label_column_that_is_not_there_cannot_be_left_out(ignore):
    with pytest.raises(OutOfRange, match="cannot be ignored"):
        Relevance(np.ones((1, 3), np.uint8), np.ones((1, 3), np.uint8), ignore=ignore)


def test_pairs_that_make_no_sense_are_refused():
    with pytest.raises(RepeatedValue):
        Pairs(2, 2, np.array([0, 0]), np.array([1, 1]))
    with pytest.raises(OutOfRange, match="item 2"):
        Pairs(2, 2, np.array([0]), np.array([2]))
    with pytest.raises(LengthsDiffer):
        Pairs(2, 2, np.array([0]), np.array([0, 1]))


def test_an_item_that_is_not_there_cannot_leave_a_ranking():
    labels = np.ones((2, 1), np.uint8)
    for wrong in (np.array([0]), np.array([0, 2]), np.array([-2, 0])):
        with pytest.raises(OutOfRange, match="name an item to leave out"):
            Relevance(labels, labels, left_out=wrong)


@pytest.mark.parametrize(
    ("codes", "bits", "says"),
    [
        (np.zeros(4, np.uint8), 8, "table of unsigned words"),
        (np.zeros((2, 1), np.int8), 8, "table of unsigned words"),
        (np.zeros((2, 1), np.uint8), 0, "given as codes of 0 bits"),
        (np.zeros((2, 33), np.uint8), 257, "given as codes of 257 bits"),
        (np.zeros((2, 1), np.uint8), 9, "Codes of 8 bits were given as codes of 9 bits"),
        (np.zeros((2, 9), np.uint8), 64, "Codes of 72 bits were given as codes of 64 bits"),
        (np.full((2, 1), 8, np.uint8), 3, "beyond their length of 3"),
    ],
)
def test_codes_that_are_refused(codes, bits, says):
    with pytest.raises(UserError, match=says):
        to_words(codes, bits)


def test_words_of_any_type_hold_the_same_code():
    octets = np.arange(1, 9, dtype=np.uint8)[None]
    expected = [[sum((place + 1) << (8 * place) for place in range(8))]]
    for kind in ("<u2", ">u2", "<u4", "<u8", ">u8"):
        given = octets.view(np.dtype(kind).newbyteorder("<")).astype(kind)
        assert to_words(given, 64).tolist() == expected
    assert to_words(np.full((1, 1), 7, np.uint8), 3).tolist() == [[7]]


def test_one_item_can_be_left_out():
    labels = np.ones((1, 1), np.uint8)
    for item in (0, -1):
        assert Relevance(labels, labels, left_out=np.array([item])).left_out.tolist() == [item]
    empty = Relevance(labels[:0], labels[:0], left_out=np.zeros(0, np.int64))
    assert (empty.queries, empty.most_shared()) == (0, 0)
    assert empty.query_label_lists().shape == (0, 0)


def test_labels_are_tables_on_both_sides():
    with pytest.raises(WrongShape):
        Relevance(np.ones((1, 3), np.uint8), np.ones(3, np.uint8))


def test_the_bound_is_the_smaller_of_both_sides():
    many, few = np.ones((1, 70), np.uint8), np.eye(70, dtype=np.uint8)[:1]
    assert Relevance(many, few).most_shared() == Relevance(few, many).most_shared() == 1
    assert Relevance(many, many).most_shared() == 70


def test_pairs_are_told_apart_by_both_rows():
    pairs = Pairs(3, 2, np.array([0, 2, 0]), np.array([1, 0, 0]))
    assert pairs.gains(np.array([0, 1, 2])).tolist() == [[1, 1], [0, 0], [1, 0]]
    assert Pairs(0, 0, np.zeros(0, np.int64), np.zeros(0, np.int64)).gains(np.zeros(0, np.int64)).shape == (0, 0)
    for query, item in ((-1, 0), (0, -1), (3, 0)):
        with pytest.raises(OutOfRange):
            Pairs(3, 2, np.array([query]), np.array([item]))
