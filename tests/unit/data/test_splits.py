"""Splits depend on the keys of items alone, and keep items of one picture together."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.data.splits import default_splits, fold_splits, splits_of


@pytest.mark.parametrize(("count", "queries"), [(2, 1), (20, 2), (1000, 100), (30_000, 2000)])
def test_default_splits_ask_with_a_tenth(count, queries):
    splits = default_splits([f"item {number}" for number in range(count)])
    assert len(splits["query"]) == queries
    assert np.array_equal(splits["train"], splits["database"])
    assert sorted([*splits["query"], *splits["database"]]) == list(range(count))


def test_default_splits_follow_the_keys_and_not_their_order():
    keys = [f"item {number}" for number in range(200)]
    first = {keys[row] for row in default_splits(keys)["query"]}
    turned = keys[::-1]
    assert {turned[row] for row in default_splits(turned)["query"]} == first


def test_folds_ask_with_each_picture_once_and_keep_its_items_together():
    keys = [f"picture {number // 5}" for number in range(515)]
    asked = []
    for fold in range(10):
        splits = fold_splits(keys, fold, 10)
        queries = {keys[row] for row in splits["query"]}
        assert queries.isdisjoint(keys[row] for row in splits["database"])
        assert np.array_equal(splits["train"], splits["database"])
        assert sorted([*splits["query"], *splits["database"]]) == list(range(515))
        assert {keys[::-1][row] for row in fold_splits(keys[::-1], fold, 10)["query"]} == queries
        assert 10 <= len(queries) <= 11
        asked += queries
    assert sorted(asked) == sorted(set(keys))


def test_items_of_one_picture_stay_on_one_side():
    keys = [f"picture {number // 5}" for number in range(500)]
    splits = default_splits(keys)
    asked = {keys[row] for row in splits["query"]}
    assert asked.isdisjoint(keys[row] for row in splits["database"])
    assert len(splits["query"]) == 50


def test_items_with_both_modalities_ask_first():
    whole = np.arange(100) % 2 == 0
    splits = default_splits([str(number) for number in range(100)], whole)
    assert whole[splits["query"]].all()


def test_items_to_train_on_are_searched_unless_told_otherwise():
    parts = ["train", "query", "database", "held out", "train"]
    every = splits_of(parts)
    assert {name: rows.tolist() for name, rows in every.items()} == {
        "query": [1],
        "database": [0, 2, 4],
        "train": [0, 4],
    }
    assert splits_of(parts, search_training=False)["database"].tolist() == [2]


def test_a_single_key_asks_nothing():
    assert len(default_splits(["one", "one"])["query"]) == 0
    assert default_splits(["one", "one"])["database"].tolist() == [0, 1]


def test_items_without_both_modalities_ask_only_if_there_are_too_few_others() -> None:
    keys = [str(number) for number in range(50)]
    whole = np.arange(50) < 2
    asked = set(default_splits(keys, whole)["query"].tolist())
    assert len(asked) == 5
    assert {0, 1} <= asked


def test_a_picture_with_one_incomplete_item_counts_as_incomplete() -> None:
    keys = ["a", "a", *(f"k{number}" for number in range(18))]
    whole = np.arange(20) != 1
    assert not {0, 1} & set(default_splits(keys, whole)["query"].tolist())
