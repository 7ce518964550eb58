"""Texts that are longer than the text model reads: those of an archive are counted, and the end of a query is named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from silohash.base.types import Modality
from silohash.data.archive import Archive, is_features
from silohash.features.base import Featurizer, Value, blocks
from silohash.features.word_pieces import TokenFeatures

BLOCK_ROWS = 4_096
MOST_SHOWN = 120
"""Number of characters of an unread end that a message shows."""


@dataclass(frozen=True)
class Unread:
    """The end of a query that the text model does not read.

    Attributes:
        limit: Number of words or word pieces after which the model stops.
        unit: ``words`` or ``word pieces``.
    """

    text: str
    limit: int
    unit: str

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= MOST_SHOWN else f"{self.text[:MOST_SHOWN]}…"
        read = f"the {self.limit} {self.unit} that the text model reads"
        return f"The query is longer than {read}. Its end was not read: “{shown}”"


@runtime_checkable
class _Reader(Protocol):
    """What reads a limited part of a text. Word pieces include the special ones at both ends."""

    @property
    def most(self) -> int: ...

    @property
    def unit(self) -> str: ...

    def unread(self, texts: Sequence[str]) -> list[str]:
        """Return the end of each text that is not read, or an empty string."""


def truncation_remark(archive: Archive, featurizers: Mapping[Modality, Featurizer]) -> str:
    """Return a sentence on the texts whose end the model does not read, or an empty string if it reads all of them."""
    texts = archive.text
    if not isinstance(texts, np.ndarray) or is_features(texts):
        return ""
    reader = _reader_of(featurizers.get("text"))
    if reader is None:
        return ""
    rows = np.flatnonzero(archive.has_text)
    count = sum(sum(map(bool, reader.unread(texts[block].tolist()))) for _, block in blocks(rows, BLOCK_ROWS))
    if not count:
        return ""
    which = "1 text is" if count == 1 else f"{count:,} texts are"
    return (
        f"{which} longer than the {reader.most} {reader.unit} that the text model reads ({archive.card.name}). "
        "Only their beginning is encoded."
    )


def unread_end(featurizer: Featurizer | None, value: Value) -> Unread | None:
    """Return the end of a query that the model does not read, or None if it reads all of the query.

    Raises:
        UserError: As `Featurizer.encode_one`, if the query cannot be encoded either.
    """
    reader = _reader_of(featurizer) if isinstance(value, str) else None
    if reader is None:
        return None
    [end] = reader.unread([str(value)])
    return Unread(end, reader.most, reader.unit) if end else None


def _reader_of(featurizer: Featurizer | None) -> _Reader | None:
    from silohash.features.network import NetworkFeatures

    reader = featurizer.pieces if isinstance(featurizer, NetworkFeatures | TokenFeatures) else featurizer
    return reader if isinstance(reader, _Reader) else None
