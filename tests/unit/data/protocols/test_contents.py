"""Items as they are read from a data set's files, and the population that a protocol includes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import LabelsNeeded, ProtocolUnmet
from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.contents import Contents, Population, population_of
from silohash.data.protocols.rule import SplitProtocol
from tests.unit.data.protocols.samples import raw_of, split_of


def test_an_item_has_a_modality_unless_its_features_are_nan_or_its_text_or_file_name_is_empty() -> None:
    features = np.array([[1, np.nan], [np.nan, np.nan], [0, 0]], np.float32)
    raw = Contents(np.array(["a", "b", "c"]), features, np.array(["x", "", "z"]), None, ())
    assert raw.has("image").tolist() == [True, False, True]
    assert raw.has("text").tolist() == [True, False, True]
    assert replace(raw, text=None).has("text").tolist() == [False] * 3
    assert replace(raw, image=PictureFiles(Path(), ["1", "", "3"])).has("image").tolist() == [True, False, True]


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
    assert found.notes["tags"] == "2 of 62 occur on 20 items or more and are kept"
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
    with pytest.raises(ProtocolUnmet, match=r"24.*4"):
        split_of(raw, "mirflickr25k", "dcmh-24581", items=60)
    with pytest.raises(ProtocolUnmet, match=r"38.*4.*option.*concepts.*38"):
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
    with pytest.raises(LabelsNeeded, match="30"):
        split_of(raw_of(30, labels=None, label_names=()), "coco", "fedhap", items=20)
    with pytest.raises(ProtocolUnmet):
        split_of(raw_of(30, text=None), "mirflickr25k", "dcmh")


def population(raw: Contents, *, scaled: bool = False, **rules: object) -> Population:
    """Returns the population of a protocol of the given rules."""
    sizes = {"query": 1, "train": 1, "database": None}
    rule = SplitProtocol(dataset="shapes", name="some", source="nobody", about="", **(sizes | rules))  # type: ignore[arg-type]
    return population_of(raw, rule, scaled=scaled)


def tagged(*tags: str) -> Contents:
    """Returns items of one label each with the given tags."""
    return raw_of(len(tags), 1, text=np.array(tags))


def test_a_tag_counts_once_per_item_and_its_threshold_is_inclusive() -> None:
    raw = tagged("a a a", "a b", "b", "c")
    found = population(raw, population="frequent tags", least=2)
    assert found.rows.tolist() == [0, 1, 2]
    assert found.text is not None
    assert found.text.tolist() == ["a a a", "a b", "b"]
    assert found.notes == {"tags": "2 of 3 occur on 2 items or more and are kept"}
    assert population(raw, population="frequent tags", least=3).rows.tolist() == []


def test_many_tags_are_different_ones() -> None:
    raw = tagged("a a a", "a b", "b c d", "")
    for least, rows in ((1, [0, 1, 2]), (2, [1, 2]), (3, [2])):
        assert population(raw, population="many tags", least=least).rows.tolist() == rows
    assert population(raw, population="tagged", least=9).rows.tolist() == [0, 1, 2]
    assert population(raw, population="tagged").notes == {}


def test_columns_of_tags_have_the_same_threshold() -> None:
    raw = raw_of(4, 1, text=np.array([[1, 0], [1, 2], [0, 0], [0, 0.5]], np.float32))
    for least, rows in ((2, [0, 1, 3]), (3, [])):
        assert population(raw, population="frequent tags", least=least).rows.tolist() == rows


@pytest.mark.parametrize(
    ("collected", "scaled", "least"),
    [
        (20, True, 2),  # 4 x 10 / 20
        (10, True, 4),
        (5, True, 4),  # more items than were collected do not raise the threshold
        (1000, True, 1),  # 0.04, but at least 1
        (16, True, 2),  # 2.5 is rounded to the even number
        (0, True, 4),
        (20, False, 4),
    ],
)
def test_thresholds_shrink_with_the_files(collected: int, scaled: bool, least: int) -> None:
    often = {"one": 1, "two": 2, "three": 3, "four": 4}
    raw = tagged(*(name for name, count in often.items() for _ in range(count)))
    found = population(raw, scaled=scaled, population="frequent tags", least=4, collected=collected)
    assert found.text is not None
    assert set(found.text.tolist()) == {name for name, count in often.items() if count >= least}


def test_a_label_that_occurs_just_often_enough_counts() -> None:
    labels = np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 0]], np.uint8)
    raw = raw_of(5, 2, labels=labels)
    three = population(raw, population="frequent labels", least=3)
    assert (three.rows.tolist(), three.label_names) == ([0, 1], ("class 0",))
    assert three.notes == {"labels left out": "1 of 2"}
    two = population(raw, population="frequent labels", least=2)
    assert (two.rows.tolist(), two.label_names, two.notes) == ([0, 1, 2, 3], ("class 0", "class 1"), {})


@pytest.mark.parametrize("rule", ["frequent labels", "labeled", "frequent tags"])
def test_a_population_of_the_published_size_is_not_filtered_again(rule: str) -> None:
    raw = raw_of(4, 2, labels=np.zeros((4, 2), np.uint8))
    assert population(raw, population=rule, least=2, items=4).rows.tolist() == [0, 1, 2, 3]
    assert population(raw, population=rule, least=2, items=5).rows.tolist() == []


def test_fewer_labels_are_accepted_only_at_another_scale_and_more_never() -> None:
    raw = raw_of(6, 3)
    assert population(raw, classes=4, scaled=True).label_names == ("class 0", "class 1", "class 2")
    for classes, scaled in ((4, False), (2, True), (2, False)):
        with pytest.raises(ProtocolUnmet, match=f"some.*shapes.*{classes}.*3"):
            population(raw, classes=classes, scaled=scaled)
    with pytest.raises(ProtocolUnmet, match=r"hold.*6.*3"):
        population(raw_of(6, 6), classes=7)


def test_the_most_frequent_labels_keep_their_order_and_of_equals_the_first_is_kept() -> None:
    labels = np.array([[0, 1, 1, 1], [0, 1, 1, 1], [1, 0, 0, 1]], np.uint8)
    raw = raw_of(3, 4, labels=labels)
    found = population(raw, labels="most frequent", classes=2)
    assert found.label_names == ("class 1", "class 3")
    assert found.labels is not None
    assert found.labels.tolist() == [[1, 1], [1, 1], [0, 1]]
    assert population(raw, labels="last", classes=3).label_names == ("class 1", "class 2", "class 3")


def test_features_are_checked_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.data.protocols.contents.BLOCK_ROWS", 3)
    features = np.ones((8, 2), np.float32)
    features[[0, 2, 3, 7]] = np.nan
    raw = raw_of(8, 1, image=features)
    assert raw.has("image").tolist() == [False, True, False, False, True, True, True, False]
