"""Texts as bags of words, with hashed buckets (which need no shared vocabulary) or a given vocabulary."""

from __future__ import annotations

import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Column, is_features
from silohash.features.base import Value, blocks, known
from silohash.files import read_text
from silohash.types import Arrays, Modality, Rows, UserError

BLOCK_ROWS = 4_096
MOST_BUCKETS = 1 << 20
WEIGHTINGS = ("count", "binary", "tfidf")

_COMMON_LINE = (
    "a an and are as at be been being but by for from has have he her him his in into is it its of on or she some than "
    "that the their them there these they this those to up was were which while who with"
)
COMMON_WORDS = frozenset(_COMMON_LINE.split())
"""Words that say almost nothing about a picture. They are ignored unless `WordRule.common_words` is set."""


@dataclass(frozen=True)
class WordRule:
    """The rule that splits a text into words.

    Texts are lowercased, and ``'s`` and apostrophes are removed. A word is a run of letters of any script, with at least
    two letters if the script has upper and lower case.

    Attributes:
        numbers: Whether runs of digits are words too.
        single_letters: Whether single letters and digits are words.
        common_words: Whether to keep the most common English words.
    """

    numbers: bool = False
    single_letters: bool = False
    common_words: bool = False

    def words(self, text: str) -> list[str]:
        """Return the words of a text in order.

        Example:
            >>> WordRule().words("The dog's bowl isn't full: 2 dogs, a Café!")
            ['dog', 'bowl', 'isnt', 'full', 'dogs', 'café']
            >>> WordRule(numbers=True, single_letters=True).words("Letter A with 2 hooks")
            ['letter', 'a', '2', 'hooks']
        """
        plain = _APOSTROPHES.sub("", unicodedata.normalize("NFKC", text).lower())
        found = (_ASCII_WORDS if plain.isascii() else _unicode_words()).findall(plain)
        return [word for word in found if self._keeps(word)]

    def _keeps(self, word: str) -> bool:
        if not self.numbers and word[0].isdecimal():
            return False
        if len(word) == 1 and (word.isdecimal() or word.upper() != word):
            return self.single_letters
        return self.common_words or word not in COMMON_WORDS


_APOSTROPHES = re.compile(r"['’]s\b|['’]")
_ASCII_WORDS = re.compile(r"[a-z]+|[0-9]+")


@cache
def _unicode_words() -> re.Pattern[str]:
    """Return a pattern of runs of letters with their combining marks (vowel signs, accents), and of runs of digits."""
    marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"]
    return re.compile(rf"(?:[^\W\d_][{re.escape(''.join(marks))}]*)+|\d+")


@lru_cache(maxsize=1 << 17)
def bucket_of(word: str, buckets: int) -> int:
    """Return the bucket of a word, which is the same on all machines and in all processes.

    Buckets do not keep words secret: anyone with a dictionary can invert them.
    """
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") % buckets


@dataclass(frozen=True, eq=False)
class BagOfWords:
    """Texts as word counts, ``(V,)`` float32.

    ``tfidf`` multiplies each count (or ``1 + log(count)`` with ``log_tf``) by ``log((1 + n) / (1 + df)) + 1`` and
    scales the row to length one. n and df are sums over the texts of all silos. An item without a text is a row of zeros.

    Attributes:
        buckets: Number of columns V, unless a vocabulary is given.
        weighting: ``count``, ``binary`` or ``tfidf``.
        vocabulary: The words in column order, or None for hashed buckets.
        log_tf: Whether to dampen repeated words (``tfidf`` only).
        rule: The rule that splits a text into words.
        summed: The added sums of the silos: ``texts (1,)`` and ``document_frequency (V,)``, int64 and thus exact.
    """

    buckets: int = 2048
    weighting: str = "tfidf"
    vocabulary: tuple[str, ...] | None = None
    log_tf: bool = False
    rule: WordRule = WordRule()
    summed: Arrays | None = None
    _column_of: Mapping[str, int] | None = field(default=None, init=False, repr=False)

    modality: ClassVar[Modality] = "text"
    options: ClassVar[Mapping[str, Any]] = {
        "buckets": 2048,
        "vocabulary": None,
        "log_tf": False,
        "numbers": False,
        "single_letters": False,
        "common_words": False,
    }

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            UserError: If one is out of range.
        """
        if self.weighting not in WEIGHTINGS:
            raise UserError(
                f"[features] the weighting {self.weighting!r} is unknown. Choose one of: {', '.join(WEIGHTINGS)}."
            )
        if type(self.buckets) is not int or not 2 <= self.buckets <= MOST_BUCKETS:
            raise UserError(
                f"[features] buckets is {self.buckets!r}; it must be an integer from 2 to {MOST_BUCKETS:,}."
            )
        if self.vocabulary is not None:
            if not self.vocabulary or len(set(self.vocabulary)) != len(self.vocabulary):
                raise UserError("[features] vocabulary is empty or contains a word twice. List each word once.")
            object.__setattr__(self, "_column_of", {word: place for place, word in enumerate(self.vocabulary)})

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> BagOfWords:
        """Return an unfitted featurizer, where ``kind`` is the weighting."""
        if modality != "text" or not isinstance(column, np.ndarray) or is_features(column):
            raise UserError(
                f'[features] kind "{kind}" needs texts, and this archive\'s {modality} column does not hold any. '
                'Set kind = "auto".'
            )
        switches = ("log_tf", "numbers", "single_letters", "common_words")
        for name in switches:
            if not isinstance(options[name], bool):
                raise UserError(f"[features] {name} is {options[name]!r}; it must be true or false.")
        rule = WordRule(*(options[name] for name in switches[1:]))
        return cls(options["buckets"], kind, _read_vocabulary(options["vocabulary"]), options["log_tf"], rule)

    @property
    def kind(self) -> str:
        """The weighting, which is the featurizer's name in the table of `silohash.features`."""
        return self.weighting

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one text, ``(V,)``."""
        return (self.buckets if self.vocabulary is None else len(self.vocabulary),)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return the number of non-empty texts, ``texts (1,)``, and ``document_frequency (V,)``, both int64."""
        texts = texts_of(column)
        frequency = np.zeros(self.shape, np.int64)
        count = 0
        for _, block in blocks(rows, BLOCK_ROWS):
            chosen = texts[block].tolist()
            count += sum(bool(text.strip()) for text in chosen)
            frequency += np.bincount(self._counts(chosen)[1], minlength=self.shape[0])
        return {"texts": np.array([count], np.int64), "document_frequency": frequency}

    def fitted(self, summed: Arrays) -> BagOfWords:
        """Return a featurizer with the number of texts per word over all silos."""
        return replace(self, summed=summed)

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the bags of words of the rows, ``(n, V)`` float32.

        Raises:
            UserError: If the column does not hold texts.
        """
        texts = texts_of(column)
        dense = np.zeros((len(rows), *self.shape), np.float32)
        importance = self._importance() if self.weighting == "tfidf" else None
        for place, block in blocks(rows, BLOCK_ROWS):
            row, word, count = self._counts(texts[block].tolist())
            if importance is None:
                dense[place][row, word] = 1.0 if self.weighting == "binary" else count
                continue
            weight = (1.0 + np.log(count) if self.log_tf else count) * importance[word]
            length = np.sqrt(np.bincount(row, weight**2, minlength=len(block)))
            dense[place][row, word] = weight / length[row]
        return dense

    def encode_one(self, value: Value) -> npt.NDArray[np.float32]:
        """Return one text as ``(1, V)`` float32.

        Raises:
            UserError: If the query is not a text, or does not contain any word of the vocabulary.
        """
        text = query_text(value)
        encoded = self.transform(np.array([text]), np.zeros(1, np.int64))
        if not encoded.any():
            raise UserError(f'The query "{text[:80]}" does not contain any known word. Use other words.')
        return encoded

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        about = {
            "kind": self.kind,
            "modality": self.modality,
            "buckets": self.buckets,
            "vocabulary": None if self.vocabulary is None else list(self.vocabulary),
            "log_tf": self.log_tf,
            "numbers": self.rule.numbers,
            "single_letters": self.rule.single_letters,
            "common_words": self.rule.common_words,
        }
        return dict(self.summed or {}), about

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> BagOfWords:
        """Return the featurizer with a given state."""
        rule = WordRule(about["numbers"], about["single_letters"], about["common_words"])
        words = None if about["vocabulary"] is None else tuple(about["vocabulary"])
        return cls(about["buckets"], about["kind"], words, about["log_tf"], rule, dict(arrays) or None)

    def _importance(self) -> npt.NDArray[np.float64]:
        summed = known(self.summed, self.kind)
        weight: npt.NDArray[np.float64] = np.log((1.0 + summed["texts"]) / (1.0 + summed["document_frequency"])) + 1.0
        return weight

    def _counts(self, texts: Iterable[str]) -> tuple[Rows, Rows, Rows]:
        """Return the word counts of texts as (row, column, count), sorted by row and column."""
        size = self.shape[0]
        keys: list[int] = []
        for row, text in enumerate(texts):
            keys += [row * size + column for column in self._columns(text)]
        distinct, count = np.unique(np.array(keys, np.int64), return_counts=True)
        return distinct // size, distinct % size, count.astype(np.int64)

    def _columns(self, text: str) -> list[int]:
        words = self.rule.words(text)
        if self._column_of is None:
            return [bucket_of(word, self.buckets) for word in words]
        return [self._column_of[word] for word in words if word in self._column_of]


def texts_of(column: Column) -> npt.NDArray[np.generic]:
    """Return a column that holds texts, ``(N,)`` strings.

    Raises:
        UserError: If the column does not hold texts.
    """
    if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind != "U":
        raise UserError("The run was trained on texts, and this archive does not hold any. Use an archive with texts.")
    return column


def query_text(value: Value) -> str:
    """Return a query that is a text.

    Raises:
        UserError: If the query is not a text.
    """
    if not isinstance(value, str):
        what = "a vector" if isinstance(value, np.ndarray) else "a picture"
        raise UserError(f"The run was trained on texts, and the query is {what}. Pass a text.")
    return value


def _read_vocabulary(vocabulary: object) -> tuple[str, ...] | None:
    """Return the words of a list, or of a text file with one word per line."""
    if vocabulary is None:
        return None
    if isinstance(vocabulary, str | Path):
        remedy = "[features] vocabulary is the path of a UTF-8 text file with one word per line."
        lines = read_text(Path(vocabulary), remedy=remedy, missing=remedy).splitlines()
        return tuple(line.strip() for line in lines if line.strip())
    if isinstance(vocabulary, list | tuple) and all(isinstance(word, str) for word in vocabulary):
        return tuple(vocabulary)
    raise UserError("[features] vocabulary must be a list of words or the path of a text file with one word per line.")
