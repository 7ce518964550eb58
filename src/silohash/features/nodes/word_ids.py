"""Texts as sequences of word numbers, for local methods that match words with regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Column
from silohash.features.base import Value, blocks
from silohash.features.text import BagOfWords, check_texts, no_known_word, query_text, texts_of
from silohash.features.words import digest_of
from silohash.types import Arrays, Modality, Rows, UserError

BLOCK_ROWS = 4_096
START, END, UNKNOWN = 0, 1, 2
SPECIAL = 3
"""Number of the first word; the numbers before it are the start and the end of a text, and a word of no training text."""

PADDING = -1


@dataclass(frozen=True, eq=False)
class WordSequences:
    """Texts as the numbers of their words in order, ``(length,)`` int32, padded with -1.

    A text begins with 0 and ends with 1, and a word that is not known is 2. Known words are numbered from 3, in the order of
    their digests, so that silos agree without sharing the words, or in the order of a given vocabulary. Longer texts are
    cut.

    Attributes:
        bag: Splits texts into words, and decides which words are known.
        length: Number of places, with those of start and end.
        vectors: File with the pretrained vectors of words that a training starts from; None for random ones. It is not part
            of what is stored.
    """

    bag: BagOfWords
    length: int = 32
    vectors: Path | None = None

    kind: ClassVar[str] = "words"
    modality: ClassVar[Modality] = "text"
    options: ClassVar[Mapping[str, Any]] = {"length": 32, "vocabulary": None, "min_texts": 1, "vectors": None}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> WordSequences:
        """Return an unfitted featurizer."""
        check_texts(kind, modality, column)
        if type(options["length"]) is not int or options["length"] < SPECIAL:
            raise UserError(
                f"[features] length is {options['length']!r}; it must be an integer of at least 3, in words."
            )
        every = dict.fromkeys(("numbers", "single_letters", "common_words"), True)
        given = {name: options[name] for name in ("vocabulary", "min_texts")}
        bag = BagOfWords.make("count", modality, column, {**BagOfWords.options, **every, "buckets": 1 << 14, **given})
        vectors = options["vectors"]
        if vectors is not None and not isinstance(vectors, str):
            raise UserError(f"[features] vectors is {vectors!r}; it must be the path of a text file.")
        return cls(bag, options["length"], None if vectors is None else Path(vectors))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one text, ``(length,)``."""
        return (self.length,)

    @cached_property
    def size(self) -> int:
        """The number of different numbers, with those of start, end and unknown words."""
        return SPECIAL + len(self._numbers if self.bag.vocabulary is None else self.bag.vocabulary)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return sums over the texts of the rows; see `BagOfWords.statistics`."""
        return self.bag.statistics(column, rows)

    def fitted(self, summed: Arrays) -> WordSequences:
        """Return a featurizer that knows the words of all silos."""
        return replace(self, bag=self.bag.fitted(summed))

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.int32]:
        """Return the numbers of the words of the rows, ``(n, length)`` int32.

        Raises:
            UserError: If the column does not hold texts.
        """
        texts = texts_of(column)
        found = np.full((len(rows), self.length), PADDING, np.int32)
        for place, block in blocks(rows, BLOCK_ROWS):
            for row, text in zip(found[place], texts[block].tolist(), strict=True):
                numbers = self._sequence(text)
                row[: len(numbers)] = numbers
        return found

    def encode_one(self, value: Value) -> npt.NDArray[np.int32]:
        """Return one text as ``(1, length)`` int32.

        Raises:
            UserError: If the query is not a text, or does not contain any known word.
        """
        words = self.bag.query_words(value)
        if not words.known:
            raise UserError(no_known_word(query_text(value), words))
        return self.transform(np.array([query_text(value)]), np.zeros(1, np.int64))

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        arrays, about = self.bag.state()
        return arrays, {"kind": self.kind, "modality": self.modality, "length": self.length, "bag": about}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> WordSequences:
        """Return the featurizer with a given state."""
        return cls(BagOfWords.from_state(arrays, about["bag"]), about["length"])

    def _sequence(self, text: str) -> list[int]:
        """Return the numbers of a text from its start to its end, at most ``length``."""
        words = self.bag.rule.words(text)[: self.length - 2]
        return [START, *(self._number(word) for word in words), END]

    def known_number(self, word: str) -> int | None:
        """Return the number of a word, or None if it is not known."""
        number = self._number(word)
        return None if number == UNKNOWN else number

    def _number(self, word: str) -> int:
        """Return the number of a word."""
        if not self.bag.knows(word):
            return UNKNOWN
        if self.bag.vocabulary is None:
            return self._numbers[digest_of(word)]
        return self._places[word]

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        """The number of each word of the training texts, by its digest."""
        digests = (self.bag.summed or {}).get("word_digests", np.zeros(0, np.uint64))
        return {digest: number for number, digest in enumerate(digests.tolist(), SPECIAL)}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        """The number of each word of the given vocabulary."""
        return {word: number for number, word in enumerate(self.bag.vocabulary or (), SPECIAL)}
