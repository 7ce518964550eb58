"""Under differential privacy, silos share no sums over their items, and features that need some are refused."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.features import featurizer
from silohash.features.base import add_statistics
from silohash.training.updates.feature_sums import no_statistics

TEXTS = np.array(["a red parrot", "a green parrot", "harbour at night"])
VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)
ROWS = np.arange(3)


@pytest.mark.parametrize("kind", ["tfidf", "count", "binary"])
def test_words_are_weighed_without_the_silos_texts(kind: str) -> None:
    made = featurizer("text", TEXTS, {"kind": kind, "buckets": 64})
    sums = no_statistics(made, TEXTS, ROWS)
    assert not any(array.any() for array in sums.values())
    assert "word_digests" not in sums
    fitted = made.fitted(add_statistics([sums, sums]))
    rows = fitted.transform(TEXTS, ROWS)
    assert rows.any(axis=1).all()
    if kind == "tfidf":
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
    assert fitted.encode_one("a purple zebra").any()


def test_vectors_are_left_as_they_are() -> None:
    made = featurizer("image", VECTORS, {"kind": "given", "standardize": False})
    fitted = made.fitted(add_statistics([no_statistics(made, VECTORS, ROWS)]))
    assert np.array_equal(fitted.transform(VECTORS, ROWS), VECTORS)


@pytest.mark.parametrize(
    ("modality", "column", "options", "remedy"),
    [
        ("image", VECTORS, {}, r"Set features\.image\.standardize = false, and equal_lengths = true\."),
        ("text", TEXTS, {"min_texts": 2}, "with min_texts = 1"),
    ],
)
def test_features_that_need_sums_are_refused(modality, column, options, remedy) -> None:
    with pytest.raises(UserError, match=remedy):
        no_statistics(featurizer(modality, column, options), column, ROWS)
