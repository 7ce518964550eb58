"""Known words to offer in place of a query that the model does not understand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from silohash.base.errors import UnknownWords
from silohash.features.base import Featurizer, Value
from silohash.features.text import BagOfWords, QueryWords, no_known_word

MOST_SIMILAR = 3
"""Number of similar words that are offered per unknown word."""

MOST_EXAMPLES = 8
SIMILARITY = 0.7
"""Lowest similarity of a word that is offered, from 0 to 1 (see `difflib.SequenceMatcher.ratio`)."""


def query_words(featurizer: Featurizer | None, value: Value, captions: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Return the words of a query that no training text held, which do not carry weight in the query's code.

    Args:
        featurizer: The featurizer that encodes the query.
        value: The query.
        captions: Returns captions to take words from. It is called only if no word of the query is known.

    Returns:
        The unknown words. There are none for pictures and vectors, and for featurizers that split words into pieces.

    Raises:
        UserError: If the query is a text without any known word.
    """
    if not isinstance(featurizer, BagOfWords) or not isinstance(value, str):
        return ()
    words = featurizer.query_words(value)
    if words.known:
        return words.unknown
    raise UnknownWords(f"{no_known_word(value, words)}{offer(words, known_captions(featurizer, captions()))}")


def known_captions(featurizer: BagOfWords, captions: Iterable[str]) -> Counter[str]:
    """Return the known words of captions, with the number of captions that hold each."""
    counts = Counter(word for caption in captions for word in set(featurizer.rule.words(caption)))
    return Counter({word: count for word, count in counts.items() if featurizer.knows(word)})


def offer(words: QueryWords, known: Counter[str]) -> str:
    """Return a sentence that names known words: similar ones if there are any, otherwise the most frequent ones."""
    similar = _similar(words.unknown, sorted(known))
    if similar:
        return f" Similar known words: {', '.join(similar)}."
    frequent = sorted(known, key=lambda word: (-known[word], word))[:MOST_EXAMPLES]
    return f" Examples of known words: {', '.join(frequent)}." if frequent else ""


def _similar(unknown: Sequence[str], known: Sequence[str]) -> list[str]:
    found = (get_close_matches(word, known, MOST_SIMILAR, SIMILARITY) for word in unknown)
    return list(dict.fromkeys(word for words in found for word in words))
