"""What every featurizer keeps, and how one is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import (
    DamagedFile,
    MissingFile,
    ModalityNeeded,
    SilosDiffer,
    TooFewSilos,
    UnknownName,
    UnknownOption,
    UnsuitableFeatures,
    UserError,
    WrongType,
)
from silohash.features import FEATURIZERS, featurizer, load, save
from silohash.features.base import add_statistics
from silohash.features.network import NETWORKS
from tests.archives import drawn_pictures, made_up_archive

COUNT = 120
ROWS = np.arange(COUNT)
ARCHIVE = made_up_archive(COUNT)
COLUMNS = {
    "pixels": ("image", drawn_pictures(COUNT), {"size": 8}),
    "given": ("image", ARCHIVE.image, {}),
    "count": ("text", ARCHIVE.text, {"buckets": 64, "numbers": True}),
    "binary": ("text", ARCHIVE.text, {"vocabulary": ["parrot", "harbour", "violin"]}),
    "tfidf": ("text", ARCHIVE.text, {"buckets": 64, "log_tf": True, "single_letters": True, "common_words": True}),
}


WITH_TESTS_OF_THEIR_OWN = {"regions", "picture_regions", "words", "tokens", *NETWORKS}


def test_every_kind_is_tried_here():
    assert set(COLUMNS) | WITH_TESTS_OF_THEIR_OWN == set(FEATURIZERS.table)


@pytest.mark.parametrize("kind", list(COLUMNS))
def test_round(kind, tmp_path):
    modality, column, options = COLUMNS[kind]
    made = featurizer(modality, column, {"kind": kind, **options})
    assert (made.kind, made.modality) == (kind, modality)
    parts = [made.statistics(column, ROWS[start::2]) for start in range(2)]
    federated = made.fitted(add_statistics(parts))
    pooled = made.fitted(made.statistics(column, ROWS))
    found = federated.transform(column, ROWS)
    assert found.shape == (COUNT, *federated.shape)
    np.testing.assert_allclose(found, pooled.transform(column, ROWS), atol=1e-6)
    save(federated, tmp_path / "state.safetensors")
    restored = load(tmp_path / "state.safetensors")
    assert type(restored) is type(federated)
    np.testing.assert_array_equal(restored.transform(column, ROWS), found)
    query = column.picture(3) if kind == "pixels" else column[3]
    np.testing.assert_array_equal(restored.encode_one(query if kind != "tfidf" else str(query))[0], found[3])
    first, second = federated.state(), restored.state()
    assert first[1] == second[1]
    for name, array in first[0].items():
        np.testing.assert_array_equal(array, second[0][name])


@pytest.mark.parametrize(
    ("column", "modality", "kind"),
    [
        (drawn_pictures(3), "image", "pixels"),
        (ARCHIVE.image, "image", "given"),
        (ARCHIVE.image, "text", "given"),
        (ARCHIVE.text, "text", "tfidf"),
    ],
)
def test_the_natural_kind(column, modality, kind):
    assert featurizer(modality, column, {"kind": "auto"}).kind == kind
    assert featurizer(modality, column, {}).modality == modality


def test_gray_pictures_stay_gray():
    assert featurizer("image", drawn_pictures(3, color=False), {"size": 16}).shape == (1, 16, 16)
    assert featurizer("image", drawn_pictures(3), {}).shape == (3, 32, 32)
    assert featurizer("image", drawn_pictures(3), {"channels": 1, "cache": False}).shape == (1, 32, 32)


@pytest.mark.parametrize(
    ("modality", "column", "options", "kind", "message"),
    [
        ("text", ARCHIVE.text, {"kind": "tfid"}, UnknownName, r"tfid.*tfidf"),
        (
            "text",
            ARCHIVE.text,
            {"bukets": 8},
            UnknownOption,
            "bukets",
        ),
        (
            "image",
            ARCHIVE.image,
            {"size": 8},
            UnknownOption,
            r"given.*size.*whiten.*reveal_items",
        ),
        ("image", ARCHIVE.image, {"kind": "pixels"}, UnsuitableFeatures, None),
        ("text", ARCHIVE.text, {"kind": "given"}, UnsuitableFeatures, None),
        ("image", drawn_pictures(2), {"kind": "tfidf"}, UnsuitableFeatures, None),
        ("text", ARCHIVE.text, {"numbers": "yes"}, WrongType, r"numbers.*yes"),
        ("text", ARCHIVE.text, {"vocabulary": 3}, WrongType, None),
        ("text", ARCHIVE.text, {"vocabulary": "not-there.txt"}, MissingFile, r"not-there.txt.*missing"),
        ("image", None, {}, ModalityNeeded, None),
    ],
)
def test_what_does_not_fit_is_said(modality, column, options, kind: type[UserError], message: str | None):
    with pytest.raises(kind, match=message):
        featurizer(modality, column, options)


def test_a_vocabulary_file(tmp_path):
    (tmp_path / "words.txt").write_text("parrot\n\nviolin\n", encoding="utf-8")
    made = featurizer("text", ARCHIVE.text, {"kind": "count", "vocabulary": str(tmp_path / "words.txt")})
    assert made.shape == (2,)


def test_statistics_that_do_not_fit_together():
    small, large = (featurizer("text", ARCHIVE.text, {"buckets": b}).statistics(ARCHIVE.text, ROWS) for b in (8, 16))
    with pytest.raises(SilosDiffer):
        add_statistics([small, large])
    with pytest.raises(TooFewSilos):
        add_statistics([])


def test_damaged_state(tmp_path):
    path = tmp_path / "state.safetensors"
    save(featurizer("text", ARCHIVE.text, {}), path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DamagedFile, match="damaged"):
        load(path)
