"""From pictures and texts to vectors, without sharing either."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from silohash.data.archive import Column, is_features
from silohash.features.base import Featuriser
from silohash.files import read_arrays, write_arrays
from silohash.registry import Registry, suggestion
from silohash.types import Modality, UserError

FEATURISERS = Registry(
    "featuriser",
    "silohash.features",
    {
        "pixels": "silohash.features.image:PixelFeatures",
        "given": "silohash.features.given:GivenFeatures",
        "count": "silohash.features.text:BagOfWords",
        "binary": "silohash.features.text:BagOfWords",
        "tfidf": "silohash.features.text:BagOfWords",
        "tokens": "silohash.features.tokens:TokenFeatures",
        "cnnf": "silohash.features.network:NetworkFeatures",
        "huggingface": "silohash.features.network:NetworkFeatures",
    },
)
"""Every kind of featuriser. A class has ``options`` (names and defaults; or ``options_of(kind)``, where several kinds share
it), ``make`` and what `Featuriser` asks for."""

AUTO = "auto"


def featuriser(modality: Modality, column: Column | None, options: Mapping[str, object]) -> Featuriser:
    """Return the featuriser, not yet fitted, for one modality of an archive.

    Args:
        modality: ``image`` or ``text``.
        column: the archive's column of that modality.
        options: ``kind`` (default ``auto``: ``pixels`` for pictures, ``tfidf`` for texts, ``given`` for vectors) and
            the kind's own options.

    Raises:
        UserError: if there is no such kind or option, or it does not fit the column.
    """
    if column is None:
        raise UserError(f"This archive has no {modality} column, so that no {modality} features can be made of it.")
    asked = str(options.get("kind", AUTO))
    if asked != AUTO and asked not in FEATURISERS.names():
        names = [AUTO, *FEATURISERS.names()]
        raise UserError(
            f'[features] there is no kind "{asked}"{suggestion(asked, names)}; there are: {", ".join(names)}.'
        )
    kind = _natural_kind(column) if asked == AUTO else asked
    chosen = FEATURISERS.resolve(kind)
    known = chosen.options_of(kind) if hasattr(chosen, "options_of") else chosen.options
    for name in options:
        if name != "kind" and name not in known:
            raise UserError(
                f'[features] kind "{kind}" takes no option "{name}"{suggestion(name, known)}; it takes: '
                f"{', '.join(known) or 'none'}."
            )
    own = {name: value for name, value in options.items() if name != "kind"}
    made: Featuriser = chosen.make(kind, modality, column, {**known, **own})
    return made


def save(fitted: Featuriser, path: Path) -> None:
    """Write a featuriser's state into one safetensors file."""
    arrays, about = fitted.state()
    write_arrays(path, arrays, about)


def load(path: Path) -> Featuriser:
    """Read what `save` wrote; the featuriser transforms bit for bit as the saved one.

    Raises:
        UserError: if the file is missing, damaged or of another kind.
    """
    arrays, about = read_arrays(path)
    try:
        restored: Featuriser = FEATURISERS.resolve(str(about["kind"])).from_state(arrays, about)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} holds no featuriser ({error} is missing). Restore it, or train again.") from error
    return restored


def _natural_kind(column: Column) -> str:
    if not isinstance(column, np.ndarray):
        return "pixels"
    return "given" if is_features(column) else "tfidf"
