"""Which items get a code: those that have the modality and, for texts, a word that the model knows."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.types import Modality
from silohash.data.archive import Archive, ArchiveCard
from silohash.features.base import Featurizer
from silohash.features.given import GivenFeatures
from silohash.features.text import BagOfWords
from silohash.run.encodable import cannot_encode, encodable_rows, indexed_rows, left_out

TEXTS = np.array(["red parrot", "zebra", "", "of the 7", "red zebra", "quagga"])
ALL = np.arange(6)


def archive() -> Archive:
    return Archive(
        ids=np.array(list("abcdef")),
        image=np.ones((6, 2), np.float32),
        text=TEXTS,
        labels=None,
        label_names=(),
        splits={"query": ALL[:0], "database": ALL, "train": ALL[:1]},
        card=ArchiveCard(name="toy", source="this test", license="CC0"),
        has_image=np.array([True, True, False, False, False, False]),
        has_text=TEXTS != "",
    )


def featurizers() -> dict[Modality, Featurizer]:
    bag = BagOfWords(buckets=16)
    return {"image": GivenFeatures("image", 2), "text": bag.fitted(bag.statistics(TEXTS, ALL[:1]))}


def lists(encodable: dict[Modality, np.ndarray]) -> dict[str, list[int]]:
    return {modality: rows.tolist() for modality, rows in encodable.items()}


def test_texts_need_a_known_word() -> None:
    found = encodable_rows(archive(), featurizers(), ALL)
    assert lists(found) == {"image": [0, 1], "text": [0, 4]}
    assert indexed_rows(found).tolist() == [0, 1, 4]
    some = encodable_rows(archive(), featurizers(), np.array([4, 1, 2]))
    assert lists(some) == {"image": [1], "text": [4]}


def test_models_of_one_modality() -> None:
    only = {"image": featurizers()["image"]}
    assert lists(encodable_rows(archive(), only, ALL)) == {"image": [0, 1]}


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        (
            ALL,
            [
                "3 texts do not contain a word that the model knows. Of these items, 1 is indexed by picture only and 2 "
                "not at all.",
                "1 items are not indexed, because the model encodes items with a picture or a text and they do not have one",
            ],
        ),
        (
            [3, 4],
            [
                "1 text does not contain a word that the model knows. Of these items, 0 are indexed by picture only and 1 "
                "not at all."
            ],
        ),
        ([0, 4], []),
        ([], []),
    ],
)
def test_what_is_left_out_is_counted(rows: list[int], sentences: list[str]) -> None:
    chosen = np.array(rows, np.int64)
    assert list(left_out(archive(), chosen, encodable_rows(archive(), featurizers(), chosen))) == sentences


def test_texts_do_not_matter_to_a_model_of_pictures() -> None:
    encodable = encodable_rows(archive(), {"image": featurizers()["image"]}, ALL)
    assert list(left_out(archive(), ALL, encodable)) == [
        f"4 items are not indexed, because {cannot_encode(('image',))}"
    ]
    assert cannot_encode(("image",)) == "the model encodes items with a picture and they do not have one"
