"""Pretrained vectors of words, in the text format of GloVe, as a part of the model that a training starts from.

A first line with the number and the width of the vectors, as word2vec writes it, is skipped.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from silohash.base.errors import BadLine, DataChanged, NoEffect, UnknownWords, WrongShape
from silohash.base.files import digest_file
from silohash.base.forms import reading
from silohash.base.types import Rows
from silohash.features.base import Featurizer
from silohash.features.nodes.word_ids import SPECIAL, WordSequences
from silohash.models.nodes import word_tables

VECTORS = "features.text.vectors"
GIVE_ANOTHER = "Set features.text.vectors to a UTF-8 text file with one word and its numbers per line."

OTHERS = {
    "start": "start from random numbers",
    "fixed": "have random vectors that are not trained",
    "beside": "have zeros beside their learned vectors",
}
"""The words that the file does not have, by the use of the file."""


def install_word_vectors(model: nn.Module, featurizer: Featurizer | None, path: Path, known: str | None) -> str:
    """Write the vectors of a file into a model, and return a sentence that says how many words have one.

    Raises:
        UserError: If the file is missing, does not fit the model, or has another digest than the ``known`` one.
    """
    if not isinstance(featurizer, WordSequences):
        raise NoEffect(f'{VECTORS} has no effect on texts of the kind "{featurizer and featurizer.kind}". Remove it.')
    tables = word_tables(model)
    numbers, vectors, repeated = read_word_vectors(path, featurizer.known_number, tables[0].embedding_dim)
    if known is not None and digest_file(path) != known:
        raise DataChanged(f"{path} has changed since the run was created. Restore it, or train a new run.")
    for table in tables:
        with torch.no_grad():
            table.filled[torch.from_numpy(numbers)] = torch.from_numpy(vectors).to(table.filled)
    words = featurizer.size - SPECIAL
    again = f" {repeated:,} of its lines repeat a word and are left out." if repeated else ""
    return (
        f"{path.name} has vectors of {len(numbers):,} of the {words:,} known words ({len(numbers) / words:.0%}). The "
        f"others {OTHERS[featurizer.vectors_as]}.{again}"
    )


def read_word_vectors(
    path: Path, number_of: Callable[[str], int | None], width: int
) -> tuple[Rows, npt.NDArray[np.float32], int]:
    """Return the numbers of the words that a file has vectors of, ``(n,)``, and the vectors, ``(n, width)``.

    The file is read line by line, and the vectors of other words are not kept. A word that occurs again is left out, and the
    last value is the number of such lines.

    Args:
        path: A file such as ``glove.6B.300d.txt``.
        number_of: Function that returns the number of a word, or None if the vector of the word is not needed.
        width: Width that the vectors should have.

    Raises:
        UserError: If the file is missing, vectors have another width, a line cannot be read, or no word is needed.
    """
    found: dict[int, npt.NDArray[np.float32]] = {}
    repeated = 0
    with reading(path, remedy=GIVE_ANOTHER, missing=GIVE_ANOTHER), path.open(encoding="utf-8-sig") as lines:
        for place, line in enumerate(lines, 1):
            word, *numbers = line.rstrip().rsplit(" ", width)
            if place == 1:
                _check_width(path, line.split(), width)
            if not word or (place == 1 and _is_header(line.split())):
                continue
            if len(numbers) != width:
                raise BadLine(f"{path}, line {place} has {len(numbers)} numbers instead of {width}. Restore the file.")
            number = number_of(word)
            repeated += number in found
            if number is not None and number not in found:
                found[number] = _vector(numbers, f"{path}, line {place}")
    if not found:
        raise UnknownWords(
            f"{path} does not have the vector of any word of the training texts. Give vectors of their language."
        )
    return np.array(list(found), np.int64), np.stack(list(found.values())), repeated


def _is_header(first: Sequence[str]) -> bool:
    """Return whether the parts of the first line are the number and the width of the vectors, as word2vec writes them."""
    return len(first) == 2 and all(part.isascii() and part.isdecimal() for part in first)


def _check_width(path: Path, first: Sequence[str], width: int) -> None:
    """Check the width of the vectors by the first line."""
    held = int(first[1]) if _is_header(first) else len(first) - 1
    if held != width:
        raise WrongShape(
            f"{path}, line 1 has vectors of {held} numbers, and word vectors have {width}. Set local.word_width = {held}."
        )


def _vector(numbers: list[str], where: str) -> npt.NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            vector = np.array(numbers, np.float32)
    except ValueError as error:
        raise BadLine(f"{where} does not hold numbers after the word ({error}). Correct the line.") from error
    if not np.isfinite(vector).all():
        raise BadLine(f"{where} holds a number that is not finite. Correct the line.")
    return vector
