"""Which items of a silo get a code of which modality, and sentences on those that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from silohash.base.types import Modality, Rows
from silohash.data.archive import Archive
from silohash.features.base import Featurizer
from silohash.features.text import BagOfWords

NEEDED: Mapping[Modality, str] = {"image": "a picture", "text": "a text"}


def encodable_rows(archive: Archive, featurizers: Mapping[Modality, Featurizer], rows: Rows) -> dict[Modality, Rows]:
    """Return the rows that get a code, per modality of the model.

    A text without any word that the model knows does not get a code, because its code would say nothing about it.
    """
    return {modality: _encodable(archive, featurizer, rows) for modality, featurizer in featurizers.items()}


def _encodable(archive: Archive, featurizer: Featurizer, rows: Rows) -> Rows:
    present = rows[archive.has(featurizer.modality)[rows]]
    column = archive.values(featurizer.modality)
    if not isinstance(featurizer, BagOfWords) or column is None:
        return present
    return present[featurizer.has_known_word(column, present)]


def indexed_rows(encodable: Mapping[Modality, Rows]) -> Rows:
    """Return the rows with a code of at least one modality, in ascending order."""
    return np.unique(np.concatenate(list(encodable.values())))


def left_out(archive: Archive, rows: Rows, encodable: Mapping[Modality, Rows]) -> Iterator[str]:
    """Yield a sentence on the texts without a known word, and one on the items that have nothing to encode."""
    unknown = np.setdiff1d(rows[archive.has_text[rows]], encodable["text"]) if "text" in encodable else rows[:0]
    if len(unknown):
        by_picture = int(np.isin(unknown, indexed_rows(encodable)).sum())
        texts = f"{len(unknown):,} text{'s do' if len(unknown) > 1 else ' does'}"
        yield (
            f"{texts} not contain a word that the model knows. Of these items, {by_picture:,} "
            f"{'is' if by_picture == 1 else 'are'} indexed by picture only and {len(unknown) - by_picture:,} not at all."
        )
    lacking = len(rows) - int(np.any([archive.has(modality)[rows] for modality in encodable], axis=0).sum())
    if lacking:
        yield f"{lacking:,} items are not indexed, because {cannot_encode(tuple(encodable))}"


def cannot_encode(modalities: tuple[Modality, ...]) -> str:
    """Return why items that have none of the model's modalities are not indexed."""
    needed = " or ".join(NEEDED[modality] for modality in modalities)
    return f"the model encodes items with {needed} and they do not have one"
