"""Count the texts of an archive that are longer than a published model reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silohash.data.archive import Archive, is_features
from silohash.features.base import Featuriser, blocks
from silohash.features.network import NetworkFeatures
from silohash.features.tokens import TokenFeatures
from silohash.features.word_pieces import WordPieces
from silohash.types import Modality

BLOCK_ROWS = 4_096


def truncation_remark(archive: Archive, featurisers: Mapping[Modality, Featuriser]) -> str:
    """Return a sentence on the texts whose end the model does not read, or an empty string if it reads all of them."""
    pieces = _pieces_of(featurisers.get("text"))
    texts = archive.text
    if pieces is None or not isinstance(texts, np.ndarray) or is_features(texts):
        return ""
    rows = np.flatnonzero(archive.has_text)
    count = sum(pieces.truncated(texts[block].tolist()) for _, block in blocks(rows, BLOCK_ROWS))
    if not count:
        return ""
    which = "1 text is" if count == 1 else f"{count:,} texts are"
    return (
        f"{which} longer than the {pieces.most} word pieces that the text model reads ({archive.card.name}). "
        "Only their beginning is encoded."
    )


def _pieces_of(featuriser: Featuriser | None) -> WordPieces | None:
    """Return the tokenizer of a featurizer, or None if it does not use word pieces."""
    if isinstance(featuriser, TokenFeatures):
        return featuriser.pieces
    if isinstance(featuriser, NetworkFeatures) and featuriser.modality == "text":
        pieces = getattr(featuriser.source.network(), "pieces", None)
        return pieces if isinstance(pieces, WordPieces) else None
    return None
