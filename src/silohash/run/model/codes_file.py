"""The codes of any archive as a file, for use in other programs."""

import csv
import io
from pathlib import Path

import numpy as np

from silohash.base.errors import ChoiceNeeded, ModalityNeeded, WrongKindOfFile
from silohash.base.files import check_replaceable, write_bytes, write_text
from silohash.base.types import Modality
from silohash.data.archive import Archive
from silohash.features.base import blocks
from silohash.index.codes import Codes, to_bytes
from silohash.run.model.encoder import Encoder

BLOCK_ROWS = 4_096
MARKS = {".npz": b"model_digest.npy", ".csv": b"id,code\n"}
"""Endings of the names of files with codes, and a text that each such file has."""


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


def write_codes(codes: Codes, path: Path) -> None:
    """Write codes as ``.npz`` (ids, words, bits, modality, model_digest) or as ``.csv`` (id and code). See `check_output`.

    In a ``.csv`` a code is two hexadecimal digits per byte; bit j of the code is bit ``j % 8`` of byte ``j // 8``.
    """
    check_output(path)
    if path.suffix == ".csv":
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["id", "code"])
        hexadecimal = (row.tobytes().hex() for row in to_bytes(codes.words, codes.bits))
        writer.writerows(zip(codes.ids.tolist(), hexadecimal, strict=True))
        write_text(path, stream.getvalue())
        return
    packed = io.BytesIO()
    np.savez(
        packed, ids=codes.ids, words=codes.words, bits=np.int64(codes.bits), modality=np.str_(codes.modality),
        model_digest=np.str_(codes.model_digest),
    )  # fmt: skip
    write_bytes(path, packed.getvalue())


def check_output(path: Path) -> None:
    """Check, before anything is encoded, that codes can be written to a file.

    Raises:
        UserError: If the name of the file has another ending, or the file exists and does not hold codes.
    """
    if path.suffix not in MARKS:
        raise WrongKindOfFile(
            f'--out "{path}": codes are written as {" or ".join(MARKS)}. Give the file one of these endings.'
        )
    check_replaceable(path, MARKS[path.suffix])
