"""Texts as sequences of word numbers, for local methods that match words with regions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from silohash.base.arrays import whole
from silohash.base.errors import SettingNeeded, UnknownWords, WrongType
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Column
from silohash.data.catalogue import check_option
from silohash.features.base import Value, blocks
from silohash.features.nodes.parses import NO_HEAD, Parse, read_parses
from silohash.features.text import BagOfWords, check_texts, no_known_word, query_text, texts_of
from silohash.features.words import digest_of

BLOCK_ROWS = 4_096
START, END, UNKNOWN = 0, 1, 2
SPECIAL = 3
"""Number of the first word; the numbers before it are the start and the end of a text, and a word of no training text."""

PADDING = -1

USES = ("start", "fixed", "beside")
"""What the vectors of a file are: first values of learned ones, fixed, or fixed beside learned ones of the same width."""

UNPARSED = -2
"""Head of all places of a text without a parse."""


@dataclass(frozen=True, eq=False)
class WordSequences:
    """Texts as the numbers of their words in order, ``(length,)`` int32, padded with -1, or with heads ``(2, length)``.

    A text begins with 0 and ends with 1, and a word that is not known is 2. Known words are numbered from 3, in the order of
    their digests, so that silos agree without sharing the words, or in the order of a given vocabulary. Longer texts are
    cut.

    With a file of dependency parses, a second row holds the place of each word's head, or -1 for none. It is -2 everywhere
    for a text that the file does not have.

    Attributes:
        bag: Splits texts into words, and decides which words are known.
        length: Number of places, with those of start and end.
        vectors: File with pretrained vectors of words, which the training reads once; None for random ones. It is not part
            of what is stored.
        vectors_as: What these vectors are, one of `USES`.
        parses: File of dependency parses, which is read when texts of an archive are transformed; None for no heads.
    """

    bag: BagOfWords
    length: int = 32
    vectors: Path | None = None
    parses: Path | None = None
    vectors_as: str = "start"

    kind: ClassVar[str] = "words"
    unit: ClassVar[str] = "words"
    modality: ClassVar[Modality] = "text"
    options: ClassVar[Mapping[str, Any]] = {
        "length": 32, "vocabulary": None, "min_texts": 1, "vectors": None, "vectors_as": "start", "parses": None,
    }  # fmt: skip

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> Self:
        """Return an unfitted featurizer.

        Raises:
            UserError: If the column does not hold texts, or if an option is invalid.
        """
        check_texts(kind, modality, column)
        whole("[features] length in words", options["length"], SPECIAL)
        every = dict.fromkeys(BagOfWords.switches, True)
        given = {name: options[name] for name in ("vocabulary", "min_texts")}
        bag = BagOfWords.make("count", modality, column, {**BagOfWords.options, **every, "buckets": 1 << 14, **given})
        use, files = options["vectors_as"], [_path(name, options[name]) for name in ("vectors", "parses")]
        check_option("[features] vectors_as", use, USES)
        if use != "start" and files[0] is None:
            raise SettingNeeded(
                f'[features] vectors_as = "{use}" needs the file of word vectors. Set vectors to its path.'
            )
        return cls(bag, options["length"], files[0], files[1], use)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one text, ``(length,)``, or ``(2, length)`` with heads."""
        return (self.length,) if self.parses is None else (2, self.length)

    @property
    def most(self) -> int:
        """The number of words after which a text is cut."""
        return self.length - 2

    def unread(self, texts: Sequence[str]) -> list[str]:
        """Return the words of each text that are cut, separated by spaces; empty for a text that is read to its end."""
        return [" ".join(self.bag.rule.words(text)[self.most :]) for text in texts]

    @cached_property
    def size(self) -> int:
        """The number of different numbers, with those of start, end and unknown words."""
        return SPECIAL + len(self._numbers)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return sums over the texts of the rows; see `BagOfWords.statistics`."""
        return self.bag.statistics(column, rows)

    def fitted(self, summed: Arrays) -> Self:
        """Return a featurizer that knows the words of all silos."""
        return replace(self, bag=self.bag.fitted(summed))

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.int32]:
        """Return the numbers of the words of the rows, ``(n, length)`` int32, or ``(n, 2, length)`` with heads."""
        texts = texts_of(column)
        found = self._padding(len(rows))
        for place, block in blocks(rows, BLOCK_ROWS):
            for row, text in zip(found[place], texts[block].tolist(), strict=True):
                self._fill(row, text, self._parses)
        return found

    def encode_one(self, value: Value) -> npt.NDArray[np.int32]:
        """Return one text as ``(1, length)`` int32, or ``(1, 2, length)`` without a parse if texts have heads.

        Raises:
            UserError: If the query is not a text, or does not contain any known word.
        """
        words = self.bag.query_words(value)
        if not words.known:
            raise UnknownWords(no_known_word(query_text(value), words))
        found = self._padding(1)
        self._fill(found[0], query_text(value), {})
        return found

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        arrays, about = self.bag.state()
        more = {} if self.parses is None else {"parses": str(self.parses)}
        more |= {} if self.vectors_as == "start" else {"vectors_as": self.vectors_as}
        return arrays, {"kind": self.kind, "modality": self.modality, "length": self.length, "bag": about, **more}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Self:
        """Return the featurizer with a given state."""
        bag = BagOfWords.from_state(arrays, about["bag"])
        parses = Path(about["parses"]) if about.get("parses") is not None else None
        return cls(bag, about["length"], parses=parses, vectors_as=about.get("vectors_as", "start"))

    @cached_property
    def _parses(self) -> Mapping[str, Parse]:
        """The parses of the archive's texts by their letters; none if texts have no heads."""
        return {} if self.parses is None else read_parses(self.parses, self.bag.rule)

    def _padding(self, count: int) -> npt.NDArray[np.int32]:
        found = np.full((count, *self.shape), PADDING, np.int32)
        if self.parses is not None:
            found[:, 1] = UNPARSED
        return found

    def _fill(self, row: npt.NDArray[np.int32], text: str, parses: Mapping[str, Parse]) -> None:
        """Write a text from its start to its end, at most ``length`` words, and the heads of its words if it has a parse."""
        words = self.bag.rule.words(text)
        kept = words[: self.most]
        numbers = row if self.parses is None else row[0]
        numbers[: len(kept) + 2] = [START, *(self.known_number(word) or UNKNOWN for word in kept), END]
        if parse := parses.get("".join(words)):
            heads = parse.heads_of(words)
            row[1] = NO_HEAD
            row[1, 1 : len(kept) + 1] = [head + 1 if 0 <= head < len(kept) else NO_HEAD for head in heads[: len(kept)]]

    def known_number(self, word: str) -> int | None:
        """Return the number of a word, or None if it is not known."""
        return self._numbers[digest_of(word)] if self.bag.knows(word) else None

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        """The number of each word of the training texts or of the given vocabulary, by its digest."""
        if self.bag.vocabulary is None:
            digests = (self.bag.summed or {}).get("word_digests", np.zeros(0, np.uint64)).tolist()
        else:
            digests = list(map(digest_of, self.bag.vocabulary))
        return {digest: number for number, digest in enumerate(digests, SPECIAL)}


def _path(name: str, value: object) -> Path | None:
    if value is not None and not isinstance(value, str):
        raise WrongType(f"[features] {name} is {value!r}; it must be the path of a text file.")
    return None if value is None else Path(value)
