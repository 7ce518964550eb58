"""Featurizers: turn pictures and texts into vectors without sharing either of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from silohash.base.errors import ModalityNeeded, UnknownName
from silohash.base.files import TRAIN_AGAIN, read_arrays, write_arrays
from silohash.base.forms import reading
from silohash.base.registry import Registry, suggestion
from silohash.base.types import Arrays, Modality
from silohash.data.archive import Column, is_features
from silohash.data.catalogue import check_options
from silohash.data.regions import Regions
from silohash.features.base import Featurizer

FEATURIZERS = Registry(
    "featurizer",
    "silohash.features",
    {
        "pixels": "silohash.features.image:PixelFeatures",
        "given": "silohash.features.given:GivenFeatures",
        "count": "silohash.features.text:BagOfWords",
        "binary": "silohash.features.text:BagOfWords",
        "tfidf": "silohash.features.text:BagOfWords",
        "tokens": "silohash.features.word_pieces:TokenFeatures",
        "regions": "silohash.features.nodes.regions:RegionFeatures",
        "picture_regions": "silohash.features.nodes.regions:RegionFeatures",
        "words": "silohash.features.nodes.word_ids:WordSequences",
        "cnnf": "silohash.features.network:NetworkFeatures",
        "huggingface": "silohash.features.network:NetworkFeatures",
    },
)
"""All kinds of featurizers. A class implements `Featurizer` and the class method ``make``.

Its attribute ``options`` maps the names of its options to their defaults. A class that several kinds share has a method
``options_of(kind)`` instead.
"""

VECTOR_KINDS = frozenset({"given", "regions"})
"""The kinds whose queries are feature vectors. Those of all others are texts or pictures."""

AUTO = "auto"


def featurizer(modality: Modality, column: Column | None, options: Mapping[str, object]) -> Featurizer:
    """Return an unfitted featurizer for one modality of an archive.

    Args:
        modality: ``image`` or ``text``.
        column: The archive's column of that modality.
        options: ``kind`` (default ``auto``: ``pixels`` for pictures, ``regions`` for their regions, ``tfidf`` for texts,
            ``given`` for vectors) and the options of that kind.

    Raises:
        UserError: If there is no such kind or option, or if the kind does not support the column.
    """
    if column is None:
        raise ModalityNeeded(f"This archive has no {modality} column, so {modality} features cannot be computed.")
    kind = _kind(str(options.get("kind", AUTO)), column)
    chosen = FEATURIZERS.resolve(kind)
    known = chosen.options_of(kind) if hasattr(chosen, "options_of") else chosen.options
    given = {name: value for name, value in options.items() if name != "kind"}
    check_options(f'[features] kind "{kind}"', given, tuple(known))
    created: Featurizer = chosen.make(kind, modality, column, {**known, **given})
    return created


def save(fitted: Featurizer, path: Path) -> None:
    """Write a featurizer's state to one safetensors file."""
    arrays, about = fitted.state()
    write_arrays(path, arrays, about)


def load(path: Path) -> Featurizer:
    """Return the featurizer that `save` wrote. Its outputs are bitwise equal to those of the saved one.

    Raises:
        UserError: If the file is missing, damaged or of another kind.
    """
    arrays, about = read_arrays(path)
    with reading(path, remedy=TRAIN_AGAIN):
        return restored(arrays, about)


def restored(arrays: Arrays, about: Mapping[str, Any]) -> Featurizer:
    """Return the featurizer whose `Featurizer.state` is given."""
    found: Featurizer = FEATURIZERS.resolve(str(about["kind"])).from_state(arrays, about)
    return found


def _kind(requested: str, column: Column) -> str:
    if requested != AUTO:
        names = [AUTO, *FEATURIZERS.names()]
        if requested not in names:
            raise UnknownName(
                f'[features] unknown kind "{requested}"{suggestion(requested, names)}. Available: {", ".join(names)}.'
            )
        return requested
    if isinstance(column, Regions):
        return "regions"
    if not isinstance(column, np.ndarray):
        return "pixels"
    return "given" if is_features(column) else "tfidf"
