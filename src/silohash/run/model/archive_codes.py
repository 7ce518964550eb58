"""The codes of any archive, for use in other programs."""

import numpy as np

from silohash.base.errors import ChoiceNeeded, ModalityNeeded
from silohash.base.types import Modality
from silohash.data.archive import Archive
from silohash.features.base import blocks
from silohash.index.codes import Codes
from silohash.run.model.encoder import Encoder

BLOCK_ROWS = 4_096


def only_modality(archive: Archive, encoder: Encoder) -> Modality:
    """Return the one modality that both the archive and the model have.

    Raises:
        UserError: If there are two, or none.
    """
    both: list[Modality] = [modality for modality in encoder.featurizers if archive.has(modality).any()]
    if len(both) == 1:
        return both[0]
    if both:
        raise ChoiceNeeded(
            "The archive has images and texts; a file holds the codes of one. Set --modality image or text."
        )
    raise ModalityNeeded(
        f'Archive "{archive.card.name}" has nothing that the model encodes: {" and ".join(encoder.featurizers)}.'
    )


def encode_archive(encoder: Encoder, archive: Archive, modality: Modality) -> Codes:
    """Return the codes of all items that have the modality, a block at a time.

    Raises:
        UserError: If the model or every item lacks it, or an item cannot be read.
    """
    rows = np.flatnonzero(archive.has(modality))
    if not len(rows):
        raise ModalityNeeded(f'Archive "{archive.card.name}" has no item with {modality}.')
    parts = [encoder.codes(archive, block, modality) for _, block in blocks(rows, BLOCK_ROWS)]
    return Codes(
        words=np.concatenate([part.words for part in parts]),
        bits=encoder.bits,
        ids=archive.ids[rows],
        modality=modality,
        model_digest=encoder.digest,
    )
