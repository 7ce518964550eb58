"""What is probably not meant in a table: labels that are several, look alike, or stand for none."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.data.formats.doubts import (
    copies,
    describe_copies,
    describe_equal,
    describe_shared,
    doubts_about_labels,
    doubts_about_texts,
    doubts_about_values,
    equal_queries,
    joined_labels,
    queries_in_database,
    quoted,
    stands_for_nothing,
)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["bird; tree", "bird, tree", "bird", "tree"], {";": ["bird; tree"], ",": ["bird, tree"]}),
        (["bird; tree", "tree; sea"], {";": ["bird; tree", "tree; sea"]}),
        (["bird\uff0ctree", "tree"], {"\uff0c": ["bird\uff0ctree"]}),
        (["a|b", "a"], {"|": ["a|b"]}),
        (["Bird; Tree", "bird"], {";": ["Bird; Tree"]}),
        (["red & white", "red"], {"&": ["red & white"]}),
        (["x/y", "x"], {"/": ["x/y"]}),
        (["London, UK", "AC/DC", "rock, paper", "sea"], {}),
        (["rock; paper", "a b"], {";": ["rock; paper"]}),
        (["0 1 5", "0", "1", "5"], {" ": ["0 1 5"]}),
        (["sea lion", "sea"], {}),
        (["C++", "C", "a,"], {}),
    ],
)
def test_labels_that_are_several(names, found):
    assert joined_labels(names) == found


def test_doubts_are_sentences():
    assert list(doubts_about_labels(["bird", "tree"])) == []
    assert list(doubts_about_labels(["Sea", "sea", "sea; sky", "N/A"])) == [
        'These labels look similar but are different: "Sea" and "sea". Write them the same way if they mean the same.',
        'These labels contain ";" and may be several labels each: "sea; sky". Write labels as bird|tree, or as a list such '
        'as ["bird", "tree"] if they are.',
        'These labels look like missing values, but count as labels: "N/A". Leave the cells empty if the items have no '
        "labels.",
    ]


def test_zeros_and_ones_that_may_be_values_for_each_label():
    assert list(doubts_about_labels(["0", "1"], [("0",), ("1",)])) == []
    for names in (["0", "1"], ["False", "True"]):
        assert list(doubts_about_labels(names, [names])) == [
            f"All labels are {' or '.join(names)}, and some items have both. Write the names of the labels if these are "
            "values for each label."
        ]


def test_texts_that_stand_for_none():
    assert list(doubts_about_texts({2: "a dog", 3: ""})) == []
    assert list(doubts_about_texts({2: "nan", 3: "None", 4: "x"})) == [
        "The texts of some rows look like missing values, but count as texts: row 2, 3. Leave the cells empty if the items "
        "have no text."
    ]
    unreadable = {2: "['a', nan]", 3: "['a' ... 'z']", 4: "[Untitled]", 5: '("Hello", she said)', 6: "(a dog)"}
    assert list(doubts_about_texts(unreadable)) == [
        "The texts of some rows look like lists that cannot be read: row 2, 3. Write one row per text."
    ]


def test_texts_of_one_word_each_are_doubted_unless_they_share_words():
    names = {number: f"photo{number}.jpg" for number in range(40)}
    (found,) = doubts_about_texts(names)
    assert found.startswith("Nearly every text is a single word of its own: ")
    assert not list(doubts_about_texts(dict(list(names.items())[:10])))  # too few to tell
    assert not list(doubts_about_texts(names | dict.fromkeys(range(20), "boat")))
    assert not list(doubts_about_texts({number: f"a boat {number}" for number in range(40)}))
    assert not list(doubts_about_texts({number: "船" * number + "很大" for number in range(40)}))


def test_values_that_divide_the_items():
    museums = ["Bern", "bern", "Z\u00fcrich", "Zu\u0308rich", "basel", "basel", "basel", "bern", "bern", "bern"]
    assert list(doubts_about_values("museum", museums)) == [
        'These values of column "museum" look similar but are different: "Bern" and "bern". Write them the same way if they '
        "mean the same."
    ]
    assert list(doubts_about_values("title", ["Boat", "boat", "a", "b"])) == []


def test_words_for_nothing():
    for value in ("nan", "None", "NULL", "N/A", "#N/A", "<NA>", "-", "[nan]", "['']", "{}"):
        assert stands_for_nothing(value)
    for value in ("", "banana", "non", "0", "sea", "no"):
        assert not stands_for_nothing(value)


def test_the_first_five_are_named():
    assert quoted(["a\u200b", "b"]) == '"a⟨U+200B⟩", "b"'
    assert quoted("abcdefg") == '"a", "b", "c", "d", "e" and 2 more'


SPLITS = {"query": np.array([0, 1, 2]), "database": np.array([3, 4, 5])}


def test_copies_have_the_first_name():
    digests = {"c": "1", "b": "1", "a": "2", "d": "1", "e": "", "f": ""}
    assert copies(digests) == {"c": "b", "d": "b"}


def test_queries_in_the_database():
    assert queries_in_database(SPLITS, ["x", "", "y", "y", "", "z"]).tolist() == [2]
    assert queries_in_database(SPLITS, ["x", "z", "y", "y", "x", "z"]).tolist() == [0, 1, 2]
    assert queries_in_database(SPLITS, list("abcdef")).dtype == np.int64


def test_equal_features():
    values = np.arange(6 * 40, dtype=np.float32).reshape(6, 40)
    assert equal_queries(values, SPLITS).tolist() == []
    values[5] = values[1]
    values[4] = values[0]
    values[4, 39] += 1  # differs only after the features that are compared first
    assert equal_queries(values, SPLITS).tolist() == [1]
    values[[2, 3]] = 0
    assert equal_queries(values, SPLITS).tolist() == [1]
    assert equal_queries(values[:, :3], SPLITS).tolist() == [0, 1]


def test_sentences():
    assert list(describe_copies({})) == list(describe_shared([], kept=False)) == list(describe_equal([])) == []
    assert list(describe_copies({"b": "a"})) == [
        '1 picture file is a copy of another one: "b" (of "a"). A picture and its copies count as one.'
    ]
    assert "2 picture files are copies" in next(describe_copies({"b": "a", "c": "a"}))
    assert '(2) are in the database as well: "x", "y". They are left out' in next(
        describe_shared(["x", "y"], kept=False)
    )
    assert "left out" not in next(describe_shared(["x"], kept=True))
    assert 'some queries (1) equal those of an item of the database: "x".' in next(describe_equal(["x"]))
