"""Pictures that occur several times."""

from __future__ import annotations

import numpy as np

from silohash.data.formats.repeated import (
    copies,
    describe_copies,
    describe_equal,
    describe_shared,
    equal_queries,
    queries_in_database,
)

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
