"""Protocols: who counts, how many of each there are, which rows are drawn, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.data.benchmarks.raw import Raw
from silohash.data.protocols.apply import PROTOCOLS, apply, protocol_of
from silohash.data.protocols.rule import DRAWS, POPULATIONS, SEARCHED, SplitProtocol
from silohash.evaluate.measures import Measure
from silohash.types import UserError

EVERY = [protocol for table in PROTOCOLS.values() for protocol in table.values()]
STATED = [protocol for protocol in EVERY if protocol.draw != "free"]


def names(protocols: list[SplitProtocol]) -> list[str]:
    return [f"{protocol.dataset}/{protocol.name}" for protocol in protocols]


def raw_of(count: int, classes: int = 24, **changes: object) -> Raw:
    """Returns items of one label each, with two words that all share and one of their own."""
    labels = np.zeros((count, classes), np.uint8)
    labels[np.arange(count), np.arange(count) % classes] = 1
    values = {
        "ids": np.array([f"item-{number}" for number in range(count)]),
        "image": np.arange(2 * count, dtype=np.float32).reshape(count, 2),
        "text": np.array([f"sea sun word{number}" for number in range(count)]),
        "labels": labels,
        "label_names": tuple(f"class {column}" for column in range(classes)),
    }
    return Raw(**(values | changes))


def split_of(raw: Raw, dataset: str, name: str, seed: int = 0, **changes: object):
    choice = protocol_of(dataset, name)
    return apply(raw, replace(choice, protocol=replace(choice.protocol, **changes)), seed)


# --- the table ---


@pytest.mark.parametrize("protocol", EVERY, ids=names(EVERY))
def test_protocols_are_told_in_words(protocol: SplitProtocol) -> None:
    assert len(protocol.about) > 20
    assert protocol.population in POPULATIONS
    assert protocol.draw in DRAWS
    assert protocol.searched in SEARCHED
    assert all(protocol.rules().values())
    assert protocol_of(protocol.dataset, protocol.name).name == protocol.name


@pytest.mark.parametrize("protocol", STATED, ids=names(STATED))
def test_the_counts_of_a_protocol_fit_together(protocol: SplitProtocol) -> None:
    assert min(protocol.query, protocol.train) > 0
    if protocol.database is None or protocol.items is None:
        return
    assert protocol.used is not None
    assert protocol.used <= protocol.items
    if protocol.searched == "rest":
        assert protocol.train <= protocol.database
    if protocol.searched == "train":
        assert protocol.train == protocol.database
    if protocol.searched == "query":
        assert protocol.query == protocol.database


@pytest.mark.parametrize(
    ("dataset", "name", "total", "train", "query", "database", "classes"),
    [
        ("mirflickr25k", "fedcafe", 20_015, 10_000, 2_000, 18_015, 24),
        ("nus-wide", "fedcafe", 195_834, 10_500, 2_100, 193_734, 21),
        ("fashionvc", "fedcafe", 19_862, 16_862, 3_000, 16_862, 27),
        ("ssense", "fedcafe", 15_696, 13_696, 2_000, 13_696, 28),
        ("nus-wide", "fedhap", 195_834, 10_000, 2_100, 193_734, 21),
        ("mirflickr25k", "fedhap", 20_015, 10_000, 2_000, 18_015, 24),
        ("mirflickr25k", "fedhap-text", 20_015, 10_000, 2_000, 8_015, 24),
        ("coco", "fedhap", 117_218, 10_000, 4_992, 112_226, 80),
        ("wikipedia", "feduch", 2_635, 2_173, 462, 2_173, 10),
        ("iapr-tc12", "feduch", 20_000, 5_000, 2_000, 18_000, 255),
        ("mirflickr25k", "feduch", 20_015, 5_000, 2_000, 18_015, 24),
        ("mirflickr25k", "feduch-16015", 18_015, 5_000, 2_000, 16_015, 24),
        ("coco", "feduch", 123_287, 5_000, 2_000, 121_287, 80),
        ("nus-wide", "feduch", 195_834, 5_000, 2_000, 193_834, 21),
        ("mirflickr25k", "dlffh", 20_015, 10_000, 2_000, 18_015, 24),
        ("nus-wide", "dlffh", 195_834, 10_000, 2_000, 193_834, 21),
        ("iapr-tc12", "dlffh", 20_000, 10_000, 2_000, 18_000, 255),
        ("coco", "deephash", 122_218, 10_000, 5_000, 117_218, 80),
        ("coco", "hashnet-112218", 122_218, 10_000, 5_000, 112_218, 80),
        ("mirflickr25k", "deephash", 25_000, 4_000, 1_000, 20_000, 38),
        ("nus-wide", "ucch", 186_577, 184_477, 2_100, 184_477, 10),
    ],
)
def test_the_papers_own_numbers(dataset, name, total, train, query, database, classes) -> None:
    protocol = PROTOCOLS[dataset][name]
    found = (protocol.used, protocol.train, protocol.query, protocol.database, protocol.classes)
    assert found == (total, train, query, database, classes)


def test_the_five_papers_have_the_measures_they_report() -> None:
    measures = {protocol.source: set() for protocol in EVERY}
    for protocol in EVERY:
        measures[protocol.source].add(protocol.measure)
    assert measures["FedUCH"] == {"mAP@50[denominator=retrieved]"}
    assert all(str(Measure.parse(protocol.measure)) == protocol.measure for protocol in EVERY)
    assert measures["FedCAFE"] == measures["FedHAP"] == measures["DLFFH"] == {"mAP@all"}
    assert measures["FedBi-GNNs"] == {"Success@1"}


def test_what_contradicts_itself_has_two_names() -> None:
    mirflickr, nus, coco = (PROTOCOLS[key] for key in ("mirflickr25k", "nus-wide", "coco"))
    assert (mirflickr["fedhap-table-classes"].classes, nus["fedhap-table-classes"].classes) == (21, 24)
    assert mirflickr["fedhap-text"].train_in_database is False
    assert mirflickr["fedhap"].train_in_database is True
    assert mirflickr["dcmh-20-tags"].population == "many tags"
    assert {mirflickr[name].items for name in ("dcmh", "dcmh-24581", "deephash")} == {20_015, 24_581, 25_000}
    assert coco["hashnet-112218"].query_in_database is True
    assert coco["deephash"].query_in_database is False
    assert "7,972" in coco["fedbi-gnns"].about
    assert coco["fedbi-gnns"].partition != coco["fedbi-gnns-7972"].partition
    assert PROTOCOLS["ssense"]["shdch-column-8"].classes == 24


# --- who counts ---


def test_items_without_a_label_or_a_frequent_tag_do_not_count() -> None:
    raw = raw_of(60)
    texts = raw.text.astype("U40")
    texts[0] = "word0 rare"
    texts[1] = ""
    labels = raw.labels.copy()
    labels[2] = 0
    found = split_of(
        replace(raw, text=texts, labels=labels), "mirflickr25k", "dcmh", items=57, query=10, train=20, database=47
    )
    assert found.rows.tolist() == list(range(3, 60))
    assert set(found.text.tolist()) == {"sea sun"}
    assert found.notes["tags"] == "2 of 62, those on 20 items or more"
    assert found.notes["items left out"] == "3 of 60"
    assert found.protocol == "mirflickr25k/dcmh/57/20-47"


def test_tags_given_as_columns_are_counted_alike() -> None:
    tags = np.zeros((60, 3), np.float32)
    tags[:, 0] = 1
    tags[:5, 1] = 1
    tags[7] = (0, 1, 0)
    raw = raw_of(60, text=tags)
    found = split_of(raw, "mirflickr25k", "dcmh", items=59, query=10, train=20, database=49)
    assert found.text.shape == (59, 1)
    assert 7 not in found.rows
    kept = split_of(raw, "mirflickr25k", "dcmh-20-tags", least=2, query=2, train=2)
    assert kept.rows.tolist() == [0, 1, 2, 3, 4]


def test_files_that_were_cut_before_are_taken_as_they_are() -> None:
    raw = raw_of(60)
    found = split_of(raw, "mirflickr25k", "dcmh", items=60, query=10, train=20, database=50)
    assert len(found.rows) == 60
    assert found.text.tolist() == raw.text.tolist()


def test_labels_are_taken_by_the_protocols_rule() -> None:
    raw = raw_of(60, 4)
    often = raw.labels.copy()
    often[:, 2] = 1
    named = replace(raw, labels=often, label_names=("a", "b_r1", "c", "d"))
    found = split_of(named, "mirflickr25k", "dcmh-24581", items=60, classes=3, query=5, train=5, database=55)
    assert found.label_names == ("a", "c", "d")
    frequent = split_of(named, "nus-wide", "dcmh", items=60, classes=1, query=5, train=5, database=55)
    assert (frequent.label_names, frequent.labels.shape) == (("c",), (60, 1))
    last = split_of(named, "ssense", "fedcafe", items=60, classes=2, query=5, train=55, database=55, population="all")
    assert last.label_names == ("c", "d")
    with pytest.raises(UserError, match=r"has 24 labels, and the files hold 4 .* or choose a protocol"):
        split_of(raw, "mirflickr25k", "dcmh-24581", items=60)
    with pytest.raises(UserError, match=r"has 38 labels, and the files hold 4 .*option concepts = 38"):
        split_of(raw, "mirflickr25k", "deephash")


def test_items_of_rare_labels_do_not_count() -> None:
    labels = np.zeros((40, 3), np.uint8)
    labels[:, 0] = 1
    labels[:4, 1] = 1
    labels[4:, 2] = 1
    raw = raw_of(40, 3, labels=labels)
    found = split_of(raw, "fashionvc", "fedcafe", items=36, least=5, classes=1, query=6, train=30, database=30)
    assert found.rows.tolist() == list(range(4, 40))
    assert found.label_names == ("class 2",)


def test_missing_labels_or_tags_are_named() -> None:
    with pytest.raises(UserError, match="hold no labels for their 30 items"):
        split_of(raw_of(30, labels=None, label_names=()), "coco", "fedhap", items=20)
    with pytest.raises(UserError, match="hold no tags"):
        split_of(raw_of(30, text=None), "mirflickr25k", "dcmh")


# --- which rows ---


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


def stated(**splits: list[int]) -> Raw:
    return raw_of(30, stated={name: np.array(rows) for name, rows in splits.items()})


SIZES = {"items": 30, "classes": 24, "population": "all", "query": 3, "train": 7}


def test_splits_that_the_files_state() -> None:
    lists = stated(query=[0, 1, 2], train=list(range(3, 10)), database=list(range(3, 30)))
    found = split_of(lists, "coco", "deephash", **SIZES, database=27)
    assert found.splits["database"].tolist() == list(range(3, 30))
    assert found.query_in_database is False
    with pytest.raises(UserError, match=r'expects 26 items in "database", and the files state 27\. .*deephash/scaled'):
        split_of(lists, "coco", "deephash", **SIZES, database=26)
    with pytest.raises(UserError, match=r"these state none\. Set protocol = .deephash/drawn"):
        split_of(raw_of(30), "coco", "deephash", **SIZES)


def test_queries_in_the_stated_database_need_a_protocol_that_says_so() -> None:
    lists = stated(query=[10, 11, 12], train=list(range(3, 10)), database=[0, 1, 2, *range(10, 30)])
    found = split_of(lists, "coco", "hashnet-112218", **SIZES, database=23)
    assert found.query_in_database is True
    assert np.isin(found.splits["query"], found.splits["database"]).all()
    with pytest.raises(UserError, match=r"3 of the 3 that the files state are\. .*hashnet-112218"):
        split_of(lists, "coco", "deephash", **SIZES, database=23)
    free = split_of(lists, "coco", "default")
    assert free.query_in_database is False
    assert free.notes["queries taken out of the stated database"] == "3"


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


# --- files of another size ---


def test_files_of_another_size_are_refused_with_both_numbers() -> None:
    with pytest.raises(UserError, match=r"expects 20,015 items and found 60 of 60") as error:
        apply(raw_of(60), protocol_of("mirflickr25k", "fedcafe"))
    assert 'protocol = "fedcafe/scaled"' in str(error.value)
    assert '"default"' in str(error.value)


def test_scaled_splits_what_is_there_in_the_same_proportions() -> None:
    found = apply(raw_of(200), protocol_of("mirflickr25k", "fedcafe/scaled"))
    assert {name: len(rows) for name, rows in found.splits.items()} == {"query": 20, "database": 180, "train": 100}
    assert found.protocol == "mirflickr25k/fedcafe/scaled/200/100-180"
    few = apply(raw_of(200, 3), protocol_of("mirflickr25k", "feduch-16015/scaled"))
    assert {name: len(rows) for name, rows in few.splits.items()} == {"query": 20, "database": 160, "train": 50}
    with pytest.raises(UserError, match=r"files hold 1 items that count\. Bring more"):
        apply(raw_of(1), protocol_of("mirflickr25k", "fedcafe/scaled"))


@pytest.mark.parametrize("protocol", STATED, ids=names(STATED))
def test_every_protocol_splits_small_files_when_asked_to(protocol: SplitProtocol) -> None:
    classes = max(protocol.classes, 3)
    raw = raw_of(300, classes)
    choice = protocol_of(protocol.dataset, f"{protocol.name}/drawn/scaled")
    if protocol.population == "many tags":
        raw = replace(raw, text=np.array([" ".join(f"w{number}" for number in range(25))] * 300))
    found = apply(raw, choice)
    assert found.protocol.startswith(f"{protocol.dataset}/{protocol.name}/drawn/scaled/")
    assert found.query_in_database == protocol.query_in_database
    assert np.isin(found.splits["train"], found.splits["database"]).all() == protocol.train_in_database
    again = apply(raw, choice)
    assert all(again.splits[name].tolist() == rows.tolist() for name, rows in found.splits.items())


def test_the_free_protocol_takes_files_of_any_size() -> None:
    found = apply(raw_of(40), protocol_of("mirflickr25k", "default"))
    assert {name: len(rows) for name, rows in found.splits.items()} == {"query": 4, "database": 36, "train": 36}
    lists = apply(stated(query=[0, 1], train=[5, 6], database=list(range(2, 9))), protocol_of("coco", "default"))
    assert {name: len(rows) for name, rows in lists.splits.items()} == {"query": 2, "database": 7, "train": 2}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fedcaffe", r'mirflickr25k has no protocol "fedcaffe" \(did you mean "fedcafe"\?\); it has: fedcafe, fedhap'),
        ("fedcafe/scale", r'no ending "/scale" \(did you mean "scaled"\?\)'),
        ("default/scaled", "takes files of any size"),
    ],
)
def test_mistyped_protocols_are_named(name, says) -> None:
    with pytest.raises(UserError, match=says):
        protocol_of("mirflickr25k", name)
