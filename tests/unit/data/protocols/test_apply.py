"""How items are split, and what a protocol refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.base.errors import NoEffect, ProtocolUnmet, UnknownName, UserError
from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.protocols.apply import apply
from silohash.data.protocols.contents import Contents
from silohash.data.protocols.rule import SplitProtocol
from tests.unit.data.protocols.samples import raw_of, split_of

STATED = [one for dataset in benchmarks().values() for one in dataset.published]


def names(protocols: list[SplitProtocol]) -> list[str]:
    return [f"{protocol.dataset}/{protocol.name}" for protocol in protocols]


def small(name: str, dataset: str = "mirflickr25k", seed: int = 0, **changes: object):
    sizes = {"items": 30, "query": 4, "train": 10, "population": "all", "database": None}
    return split_of(raw_of(30), dataset, name, seed, **(sizes | changes))


def test_rows_in_the_order_of_the_files() -> None:
    first = small("dcmh")
    assert first.splits["query"].tolist() == [0, 1, 2, 3]
    assert first.splits["train"].tolist() == list(range(4, 14))
    assert first.splits["database"].tolist() == list(range(4, 30))
    last = small("ucch", train=26)
    assert last.splits["query"].tolist() == [26, 27, 28, 29]
    assert last.splits["train"].tolist() == last.splits["database"].tolist() == list(range(26))


def test_rows_drawn_by_the_seed_are_the_same_queries_for_every_reading_of_a_paper() -> None:
    one, other = small("fedhap"), small("fedhap-text")
    assert one.splits["query"].tolist() == other.splits["query"].tolist()
    assert one.splits["train"].tolist() == other.splits["train"].tolist()
    assert len(one.splits["database"]) == 26
    assert len(other.splits["database"]) == 16
    assert not np.intersect1d(other.splits["database"], other.splits["train"]).size
    assert small("fedhap", seed=1).splits["query"].tolist() != one.splits["query"].tolist()
    assert one.splits["query"].tolist() != [0, 1, 2, 3]


def test_a_smaller_database_leaves_items_out() -> None:
    found = small("feduch-16015", database=20)
    assert len(found.rows) == 24
    assert np.isin(found.splits["train"], found.splits["database"]).all()


def test_the_permutation_of_torchcmh() -> None:
    order = np.random.RandomState(6).permutation(30)
    found = small("torchcmh")
    assert found.splits["query"].tolist() == sorted(order[:4])
    assert found.splits["train"].tolist() == sorted(order[4:14])
    assert found.splits["database"].tolist() == sorted(order[4:])


def stated(**splits: list[int]) -> Contents:
    return raw_of(30, stated={name: np.array(rows) for name, rows in splits.items()})


SIZES = {"items": 30, "classes": 24, "population": "all", "query": 3, "train": 7}


def test_splits_that_the_files_state() -> None:
    lists = stated(query=[0, 1, 2], train=list(range(3, 10)), database=list(range(3, 30)))
    found = split_of(lists, "coco", "deephash", **SIZES, database=27)
    assert found.splits["database"].tolist() == list(range(3, 30))
    assert found.query_in_database is False
    with pytest.raises(ProtocolUnmet, match=r"26.*database.*27.*deephash/scaled"):
        split_of(lists, "coco", "deephash", **SIZES, database=26)
    with pytest.raises(ProtocolUnmet, match=r"none.*deephash/drawn"):
        split_of(raw_of(30), "coco", "deephash", **SIZES)


def test_queries_in_the_stated_database_need_a_protocol_that_says_so() -> None:
    lists = stated(query=[10, 11, 12], train=list(range(3, 10)), database=[0, 1, 2, *range(10, 30)])
    found = split_of(lists, "coco", "hashnet-112218", **SIZES, database=23)
    assert found.query_in_database is True
    assert np.isin(found.splits["query"], found.splits["database"]).all()
    with pytest.raises(ProtocolUnmet, match=r"3.*3.*hashnet-112218"):
        split_of(lists, "coco", "deephash", **SIZES, database=23)
    free = split_of(lists, "coco", "default")
    assert free.query_in_database is False
    assert free.notes["queries removed from the stated database"] == "3"


def test_validation_items_are_no_queries_but_where_the_split_is_the_collectors() -> None:
    parts = stated(query=list(range(23, 30)), validation=[20, 21, 22], train=list(range(20)))
    sizes = {"items": 30, "classes": 24, "train": 20, "database": 20}
    without = split_of(parts, "wikipedia", "feduch", **sizes, query=7)
    assert without.notes["items left out"] == "3 of 30"
    assert len(split_of(parts, "wikipedia", "rasiwasia", **sizes, query=10).splits["query"]) == 10
    pairs = split_of(parts, "wikipedia", "dscmr", **{**sizes, "database": 7}, query=7)
    assert pairs.query_in_database is True
    assert pairs.splits["query"].tolist() == pairs.splits["database"].tolist()


def test_items_of_one_picture_stay_together_and_count_once() -> None:
    raw = raw_of(60, columns={"picture": np.repeat([f"p{number}" for number in range(20)], 3)})
    found = split_of(raw, "mirflickr25k", "fedhap", items=20, query=4, train=8, database=16, population="all")
    assert len(found.splits["query"]) == 12
    pictures = found.columns["picture"]
    assert not set(pictures[found.splits["query"]]) & set(pictures[found.splits["database"]])


def test_files_of_another_size_are_refused_with_both_numbers() -> None:
    with pytest.raises(ProtocolUnmet, match=r"20,015.*60.*60") as error:
        apply(raw_of(60), benchmarks()["mirflickr25k"].protocol("fedcafe"))
    assert 'protocol = "fedcafe/scaled"' in str(error.value)
    assert '"default"' in str(error.value)


def test_scaled_splits_what_is_there_in_the_same_proportions() -> None:
    found = apply(raw_of(200), benchmarks()["mirflickr25k"].protocol("fedcafe/scaled"))
    assert {name: len(rows) for name, rows in found.splits.items()} == {"query": 20, "database": 180, "train": 100}
    assert found.protocol == "mirflickr25k/fedcafe/scaled/200/100-180"
    few = apply(raw_of(200, 3), benchmarks()["mirflickr25k"].protocol("feduch-16015/scaled"))
    assert {name: len(rows) for name, rows in few.splits.items()} == {"query": 20, "database": 160, "train": 50}
    with pytest.raises(ProtocolUnmet, match=r"1.*Add.*more"):
        apply(raw_of(1), benchmarks()["mirflickr25k"].protocol("fedcafe/scaled"))


@pytest.mark.parametrize("protocol", STATED, ids=names(STATED))
def test_every_protocol_splits_small_files_when_asked_to(protocol: SplitProtocol) -> None:
    classes = max(protocol.classes, 3)
    raw = raw_of(300, classes)
    choice = benchmarks()[protocol.dataset].protocol(f"{protocol.name}/drawn/scaled")
    if protocol.population == "many tags":
        raw = replace(raw, text=np.array([" ".join(f"w{number}" for number in range(25))] * 300))
    found = apply(raw, choice)
    assert found.protocol.startswith(f"{protocol.dataset}/{protocol.name}/drawn/scaled/")
    assert found.query_in_database == protocol.query_in_database
    assert np.isin(found.splits["train"], found.splits["database"]).all() == protocol.train_in_database
    again = apply(raw, choice)
    assert all(again.splits[name].tolist() == rows.tolist() for name, rows in found.splits.items())


@pytest.mark.parametrize("name", ["fedcafe/scaled", "default"])
def test_a_sample_is_taken_from_all_splits(name: str) -> None:
    choice = benchmarks()["mirflickr25k"].protocol(name)
    whole, some = apply(raw_of(200), choice), apply(raw_of(200), choice, sample=30)
    assert len(some.rows) <= 30
    for split, rows in some.splits.items():
        held = some.rows[rows]
        assert len(held) >= 10 or len(held) == len(whole.splits[split])
        assert set(held) <= set(whole.rows[whole.splits[split]])
        assert held.max() - held.min() > 0.9 * np.ptp(whole.rows[whole.splits[split]])
    assert apply(raw_of(200), choice, sample=1000).protocol == whole.protocol


def test_the_free_protocol_takes_files_of_any_size() -> None:
    found = apply(raw_of(40), benchmarks()["mirflickr25k"].protocol("default"))
    assert {name: len(rows) for name, rows in found.splits.items()} == {"query": 4, "database": 36, "train": 36}
    lists = apply(
        stated(query=[0, 1], train=[5, 6], database=list(range(2, 9))), benchmarks()["coco"].protocol("default")
    )
    assert {name: len(rows) for name, rows in lists.splits.items()} == {"query": 2, "database": 7, "train": 2}


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        (
            "fedcaffe",
            UnknownName,
            r'mirflickr25k has no protocol "fedcaffe" \(did you mean "fedcafe"\?\); it has: fedcafe, fedhap',
        ),
        ("fedcafe/scale", UnknownName, "/scale"),
        ("default/scaled", NoEffect, None),
    ],
)
def test_mistyped_protocols_are_named(name, kind: type[UserError], says: str | None) -> None:
    with pytest.raises(kind, match=says):
        benchmarks()["mirflickr25k"].protocol(name)
