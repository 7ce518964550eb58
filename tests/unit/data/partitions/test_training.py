"""The items that silos train on and hold back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from silohash.base.types import MODALITIES
from silohash.data.partitions.training import TrainingSilo, held_back_pairs, items_of, parts_of
from tests.archives import made_up_archive


def test_a_silo_has_both_modalities_unless_it_is_said() -> None:
    silo = TrainingSilo("a", np.arange(5), np.arange(2))
    assert (silo.has_image, silo.has_text, silo.paired) == (True, True, True)
    lacking = replace(silo, has_text=False)
    assert (lacking.holds("image"), lacking.holds("text")) == (True, False)


def test_pictures_and_texts_of_unpaired_silos_are_items_of_their_own() -> None:
    archive = made_up_archive(8)
    archive = replace(archive, has_text=np.array([True, True, True, False] * 2))
    rows = np.array([1, 3, 4, 6])
    silo = TrainingSilo("a", rows, rows[:0], paired=False)
    found = items_of(archive, silo, rows, MODALITIES)
    assert found.rows.tolist() == [1, 3, 4, 6, 1, 4, 6]
    assert found.has["image"].tolist() == [True] * 4 + [False] * 3
    assert found.has["text"].tolist() == [False] * 4 + [True] * 3
    paired = items_of(archive, replace(silo, paired=True), rows, MODALITIES)
    assert paired.rows.tolist() == rows.tolist()
    assert (paired.has["image"].tolist(), paired.has["text"].tolist()) == ([True] * 4, [True, False, True, True])
    for lacking in (replace(silo, has_text=False), replace(silo, has_text=False, paired=True)):
        pictures = items_of(archive, lacking, rows, MODALITIES)
        assert (len(pictures), pictures.has["image"].all(), pictures.has["text"].any()) == (4, True, False)
    texts = items_of(archive, silo, rows, ("text",))
    assert texts.has["text"].tolist() == [True, False, True, True]
    assert not texts.has["image"].any()


def test_the_parts_are_the_items_to_train_on_and_those_held_back() -> None:
    archive = made_up_archive(12)
    silo = TrainingSilo("a", np.array([0, 2, 5]), np.array([1, 7]), paired=False)
    train, held = parts_of(archive, silo, MODALITIES)
    assert train.rows.tolist() == [0, 2, 5, 0, 2, 5]
    assert held.rows.tolist() == [1, 7, 1, 7]


def test_a_share_of_the_pictures_with_a_text_is_held_back() -> None:
    archive = made_up_archive(200)
    archive = replace(archive, has_text=np.arange(200) % 4 > 0)
    train = archive.split("train")
    pairs = train[archive.has_text[train]]
    held = held_back_pairs(archive, 0.3, 0)
    assert len(held) == int(0.3 * len(pairs))
    assert set(held.tolist()) < set(pairs.tolist())
    assert np.array_equal(held, np.sort(held))
    assert not np.array_equal(held, held_back_pairs(archive, 0.3, 1))
