"""Texts as bags of words, with hashed buckets (which do not need a shared vocabulary) or a given vocabulary."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from silohash.base.analysis import UNICODE, WORDS, Analysis, analyze, default_analysis, parsed_analysis
from silohash.base.arrays import whole
from silohash.base.errors import ArchiveUnsuitable, QueryUnsuitable, RepeatedValue, UnknownWords, WrongForm, WrongType
from silohash.base.files import read_text
from silohash.base.types import Arrays, Modality, Rows
from silohash.base.visible import visible
from silohash.data.archive import Column, is_features
from silohash.features.base import Value, blocks, check_switches, known, lacking, stored_sums
from silohash.features.words import WordRule, bucket_of, digest_of

BLOCK_ROWS = 4_096
MOST_BUCKETS = 1 << 20
MOST_NAMED = 10
"""Number of words of a query that a message lists."""


@dataclass(frozen=True)
class QueryWords:
    """The words of a query, as they are written.

    Attributes:
        known: Words whose terms a training text held, one per term, in order of their first occurrence.
        unknown: Words whose terms no training text held, one per term.
    """

    known: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class BagOfWords:
    """Texts as word counts, ``(V,)`` float32.

    ``tfidf`` multiplies each count (or ``1 + log(count)`` with ``log_tf``) by ``log((1 + n) / (1 + df)) + 1`` and
    scales the row to length one. n and df are sums over the texts of all silos. An item without a text is a row of zeros.

    Words that no training text held have no trained weight, and neither have the words of columns that are left out because
    of `min_texts`. `encode_one` leaves such words out of a query.

    Attributes:
        buckets: Number of columns V, unless a vocabulary is given.
        vocabulary: The words in column order, or None for hashed buckets.
        log_tf: Whether to dampen repeated words (``tfidf`` only).
        min_texts: Number of texts over all silos below which a column is left out.
        summed: The added sums of the silos: ``texts (1,)`` and ``document_frequency (V,)``, int64 and thus exact. With
            hashed buckets also ``word_digests (n,)`` uint64, the sorted digests of all words of the texts, unless
            `exchange.privacy` keeps them in the silos.
    """

    buckets: int = 2048
    weighting: str = "tfidf"
    vocabulary: tuple[str, ...] | None = None
    log_tf: bool = False
    rule: WordRule = field(default_factory=lambda: WordRule(analysis=WORDS))
    min_texts: int = 1
    summed: Arrays | None = None
    _column_of: Mapping[str, int] | None = field(default=None, init=False, repr=False)

    modality: ClassVar[Modality] = "text"
    switches: ClassVar[tuple[str, ...]] = ("numbers", "single_letters", "common_words")
    """Options that are those of `WordRule`."""
    options: ClassVar[Mapping[str, Any]] = {
        "buckets": 2048, "vocabulary": None, "log_tf": False, **dict.fromkeys(switches, False), "min_texts": 1,
        "analysis": None, "languages": None,
    }  # fmt: skip

    def __post_init__(self) -> None:
        whole("[features] buckets", self.buckets, 2, MOST_BUCKETS)
        whole("[features] min_texts", self.min_texts, 1)
        if self.vocabulary is not None:
            if not self.vocabulary or len(set(self.vocabulary)) != len(self.vocabulary):
                raise RepeatedValue("[features] vocabulary is empty or contains a word twice. List each word once.")
            object.__setattr__(self, "_column_of", {word: place for place, word in enumerate(self.vocabulary)})

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> Self:
        """Return an unfitted featurizer, where ``kind`` is the weighting.

        Raises:
            UserError: If the column does not hold texts, or if an option is invalid.
        """
        check_texts(kind, modality, column)
        check_switches(options, "log_tf", *cls.switches)
        analysis = _chosen_analysis(options["analysis"], options["languages"], texts_of(column).tolist())
        words = _read_vocabulary(options["vocabulary"])
        if words is not None and analysis != WORDS:  # columns stand for terms
            words = tuple(dict.fromkeys(term for word in words for term in analyze(word, analysis)))
        return cls._of({**options, "kind": kind, "vocabulary": words, "analysis": asdict(analysis)})

    @classmethod
    def _of(cls, given: Mapping[str, Any]) -> Self:
        named = given.get("analysis") or asdict(WORDS)
        analysis = Analysis(named["name"], named["version"], tuple(named["languages"]))
        rule = WordRule(analysis=analysis, **{name: given[name] for name in cls.switches})
        words = None if given["vocabulary"] is None else tuple(given["vocabulary"])
        return cls(given["buckets"], given["kind"], words, given["log_tf"], rule, given.get("min_texts", 1))

    @property
    def kind(self) -> str:
        """The weighting, which is the featurizer's name in the table of `silohash.features`."""
        return self.weighting

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one text, ``(V,)``."""
        return (self.buckets if self.vocabulary is None else len(self.vocabulary),)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return sums over the texts of the rows.

        Returns:
            The number of non-empty texts, ``texts (1,)``, and ``document_frequency (V,)``, both int64; with hashed
            buckets also ``word_digests (n,)``, the sorted uint64 digests of the distinct words.
        """
        texts = texts_of(column)
        frequency = np.zeros(self.shape, np.int64)
        count = 0
        distinct: set[str] = set()
        for _, block in blocks(rows, BLOCK_ROWS):
            chosen = texts[block].tolist()
            words = [self.rule.words(text) for text in chosen]
            count += sum(bool(text.strip()) for text in chosen)
            frequency += np.bincount(self._counts(words)[1], minlength=self.shape[0])
            distinct.update(*words)
        sums: Arrays = {"texts": np.array([count], np.int64), "document_frequency": frequency}
        if self.vocabulary is None:
            sums["word_digests"] = np.array(sorted(map(digest_of, distinct)), np.uint64)
        return sums

    def fitted(self, summed: Arrays) -> Self:
        """Return a featurizer with the number of texts per word over all silos."""
        return replace(self, summed=summed)

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the bags of words of the rows, ``(n, V)`` float32."""
        texts = texts_of(column)
        dense = np.zeros((len(rows), *self.shape), np.float32)
        for place, block in blocks(rows, BLOCK_ROWS):
            self._fill(dense[place], [self.rule.words(text) for text in texts[block].tolist()])
        return dense

    def encode_one(self, value: Value) -> npt.NDArray[np.float32]:
        """Return the known words of one text as ``(1, V)`` float32.

        Raises:
            UserError: If the query is not a text, or does not contain any known word.
        """
        words = self.query_words(value)
        if not words.known:
            raise UnknownWords(no_known_word(query_text(value), words))
        kept = list(filter(self.knows, self.rule.words(query_text(value))))
        encoded = np.zeros((1, *self.shape), np.float32)
        self._fill(encoded, [kept])
        return encoded

    def query_words(self, value: Value) -> QueryWords:
        """Return the words of a query, divided into those that the training texts held and all others."""
        first = {term: word for word, term in reversed(self.rule.pairs(query_text(value)))}
        words = [(first[term], self.knows(term)) for term in dict.fromkeys(self.rule.words(query_text(value)))]
        return QueryWords(tuple(word for word, held in words if held), tuple(word for word, held in words if not held))

    def known_share(self, value: Value) -> float:
        """Return the share of a query's weight that is in known words, from 0 to 1; 0 if it has no words.

        A word that few training texts held weighs more than one that many did, and an unknown one weighs the most.
        """
        words = self.query_words(value)
        weights = np.ones(self.shape) if self.summed is None else self._importance
        rarest = 1.0 if self.summed is None else float(np.log1p(self.summed["texts"][0]) + 1.0)
        known = float(weights[self._columns(words.known)].sum())
        total = known + rarest * len(words.unknown)
        return known / total if total else 0.0

    def knows(self, word: str) -> bool:
        """Return whether a training text held a term, and whether enough texts did for its column to be kept.

        A featurizer with hashed buckets takes each term for known if it is not fitted, or fitted without digests of words.
        """
        if self._column_of is None:
            # Under differential privacy, silos do not share the digests of their words: then each word counts as known.
            held = "word_digests" not in (self.summed or {}) or digest_of(word) in self._digests
            return held and bool(self._kept[bucket_of(word, self.buckets)])
        column = self._column_of.get(word)
        if column is None or self.summed is None:
            return column is not None
        return bool(self.summed["document_frequency"][column] >= self.min_texts)

    def has_known_word(self, column: Column, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which rows have a text with at least one known word, ``(n,)`` bool."""
        texts = texts_of(column)[rows].tolist()
        return np.array([any(map(self.knows, self.rule.words(text))) for text in texts], np.bool_)

    @cached_property
    def _kept(self) -> npt.NDArray[np.bool_]:
        """Return which columns are kept, ``(V,)`` bool; all of them before the featurizer is fitted."""
        if self.summed is None or self.min_texts == 1:
            return np.ones(self.shape, np.bool_)
        return np.asarray(self.summed["document_frequency"] >= self.min_texts)

    @cached_property
    def _digests(self) -> frozenset[int]:
        return frozenset(known(self.summed, self.kind)["word_digests"].tolist())

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        about = {
            "kind": self.kind, "modality": self.modality, "buckets": self.buckets,
            "vocabulary": None if self.vocabulary is None else list(self.vocabulary), "log_tf": self.log_tf,
        }  # fmt: skip
        about |= asdict(self.rule) | ({"min_texts": self.min_texts} if self.min_texts > 1 else {})
        if self.rule.analysis == WORDS:  # as models were stored before they named their analysis
            del about["analysis"]
        return dict(self.summed or {}), about

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Self:
        """Return the featurizer with a given state."""
        unfitted = cls._of(about)
        shapes: dict[str, tuple[int, ...] | None] = {"texts": (1,), "document_frequency": unfitted.shape}
        shapes |= {"word_digests": None} if "word_digests" in arrays else {}
        return replace(unfitted, summed=stored_sums(arrays, shapes))

    @cached_property
    def _importance(self) -> npt.NDArray[np.float64]:
        summed = known(self.summed, self.kind)
        return np.asarray(np.log((1.0 + summed["texts"]) / (1.0 + summed["document_frequency"])) + 1.0)

    def _fill(self, dense: npt.NDArray[np.float32], texts: Sequence[Sequence[str]]) -> None:
        row, word, count = self._counts(texts)
        if self.min_texts > 1:
            kept = self._kept[word]
            row, word, count = row[kept], word[kept], count[kept]
        if self.weighting != "tfidf":
            dense[row, word] = 1.0 if self.weighting == "binary" else count
            return
        weight = (1.0 + np.log(count) if self.log_tf else count) * self._importance[word]
        length = np.sqrt(np.bincount(row, weight**2, minlength=len(texts)))
        dense[row, word] = weight / length[row]

    def _counts(self, texts: Iterable[Sequence[str]]) -> tuple[Rows, Rows, Rows]:
        """Return the word counts of texts, each given as its words, as (row, column, count), sorted by row and column."""
        size = self.shape[0]
        keys: list[int] = []
        for row, words in enumerate(texts):
            keys += [row * size + column for column in self._columns(words)]
        distinct, count = np.unique(np.array(keys, np.int64), return_counts=True)
        return distinct // size, distinct % size, count.astype(np.int64)

    def _columns(self, words: Sequence[str]) -> list[int]:
        if self._column_of is None:
            return [bucket_of(word, self.buckets) for word in words]
        return [self._column_of[word] for word in words if word in self._column_of]


def check_texts(kind: str, modality: Modality, column: Column) -> None:
    """Check that a column holds texts.

    Raises:
        UserError: If it does not.
    """
    if modality != "text" or not isinstance(column, np.ndarray) or is_features(column):
        raise lacking(kind, modality, "texts")


def texts_of(column: Column) -> npt.NDArray[np.generic]:
    """Return a column that holds texts, ``(N,)`` strings.

    Raises:
        UserError: If the column does not hold texts.
    """
    if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind != "U":
        raise ArchiveUnsuitable(
            "The run was trained on texts, and this archive does not hold any. Use an archive with texts."
        )
    return column


def query_text(value: Value) -> str:
    """Return a query that is a text.

    Raises:
        UserError: If the query is not a text, or holds bytes that could not be decoded or half of a pair of surrogates.
    """
    if not isinstance(value, str):
        what = "a vector" if isinstance(value, np.ndarray) else "a picture"
        raise QueryUnsuitable(f"The run was trained on texts, and the query is {what}. Pass a text.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise WrongForm(f"The text {visible(value[:80])} is not valid Unicode. Give it in UTF-8.") from error
    return value


def no_known_word(text: str, words: QueryWords) -> str:
    """Return what is wrong with a query without any known word, and what to do."""
    if not words.unknown:
        return (
            f'The text "{text[:80]}" does not contain a word that the model reads. It ignores the most common words, '
            "numbers and single letters unless [features] text keeps them."
        )
    listed = ", ".join(words.unknown[:MOST_NAMED])
    return f"No training text held any of the words of the query: {listed}. Use other words."


def _chosen_analysis(name: object, languages: object, texts: list[str]) -> Analysis:
    """Return the analysis that the options name, or that of an archive if they do not."""
    if name is None and languages is None:
        return default_analysis(texts)
    name, codes = str(UNICODE) if name is None else name, [] if languages is None else languages
    if not isinstance(name, str) or not isinstance(codes, list | tuple) or not all(isinstance(c, str) for c in codes):
        raise WrongType(
            f'[features] analysis is {name!r} and languages is {languages!r}; they must be a name such as "unicode-1" and '
            'a list of codes such as ["en", "fr"].'
        )
    return parsed_analysis(name, tuple(codes))


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
    raise WrongType("[features] vocabulary must be a list of words or the path of a text file with one word per line.")
