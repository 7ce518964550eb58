"""Pretrained vectors of words, in the text format of GloVe, as a part of the model that a training starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from silohash.base.errors import BadLine, UnknownWords, WrongShape
from silohash.base.forms import reading
from silohash.base.types import Rows
from silohash.features.base import Featurizer
from silohash.features.nodes.word_ids import WordSequences
from silohash.models.nodes import word_tables

GIVE_ANOTHER = "Set features.text.vectors to a UTF-8 text file with one word and its numbers per line."


def start_from_word_vectors(model: nn.Module, featurizer: Featurizer | None) -> None:
    """Replace the random vectors of words by those of the file that the config names. Without one, nothing happens.

    Words that the file does not have keep their random vectors. All vectors are trained.

    Raises:
        UserError: If the file is missing or does not fit the model.
    """
    if not isinstance(featurizer, WordSequences) or featurizer.vectors is None:
        return
    tables = word_tables(model)
    numbers, vectors = read_word_vectors(featurizer.vectors, featurizer.known_number, tables[0].embedding_dim)
    for table in tables:
        with torch.no_grad():
            table.weight[torch.from_numpy(numbers)] = torch.from_numpy(vectors).to(table.weight)


def read_word_vectors(
    path: Path, number_of: Callable[[str], int | None], width: int
) -> tuple[Rows, npt.NDArray[np.float32]]:
    """Return the numbers of the words that a file has vectors of, ``(n,)``, and the vectors, ``(n, width)``.

    The file is read line by line, and the vectors of other words are not kept. A word that occurs again is left out.

    Args:
        path: A file such as ``glove.6B.300d.txt``.
        number_of: Function that returns the number of a word, or None if the vector of the word is not needed.
        width: Width that the vectors should have.

    Raises:
        UserError: If the file is missing, vectors have another width, a line cannot be read, or no word is needed.
    """
    found: dict[int, npt.NDArray[np.float32]] = {}
    with reading(path, remedy=GIVE_ANOTHER, missing=GIVE_ANOTHER), path.open(encoding="utf-8") as lines:
        for place, line in enumerate(lines, 1):
            word, *numbers = line.rstrip().rsplit(" ", width)
            if len(numbers) != width or (place == 1 and " " in word):
                held = len(line.split()) - 1
                raise WrongShape(
                    f"{path}, line {place} has {held} numbers, and word vectors have {width}. Set local.word_width = {held}."
                )
            number = number_of(word)
            if number is not None and number not in found:
                found[number] = _vector(numbers, f"{path}, line {place}")
    if not found:
        raise UnknownWords(
            f"{path} does not have the vector of any word of the training texts. Give vectors of their language."
        )
    return np.array(list(found), np.int64), np.stack(list(found.values()))


def _vector(numbers: list[str], where: str) -> npt.NDArray[np.float32]:
    """Return the numbers of a line, ``(width,)``."""
    try:
        vector = np.array(numbers, np.float32)
    except ValueError as error:
        raise BadLine(f"{where} does not hold numbers after the word ({error}). Correct the line.") from error
    if not np.isfinite(vector).all():
        raise BadLine(f"{where} holds a number that is not finite. Correct the line.")
    return vector
