"""Items as they are read from a data set's files, and the population that a protocol includes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.contents import Contents
from silohash.types import UserError
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
    with pytest.raises(UserError, match=r"has 24 labels, but the files hold 4 .* or choose another protocol"):
        split_of(raw, "mirflickr25k", "dcmh-24581", items=60)
    with pytest.raises(UserError, match=r"has 38 labels, but the files hold 4 .*option concepts = 38"):
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
