"""Words of a query that no training text held, and the words that are offered in their place."""

from collections import Counter
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import chain

from silohash.base.errors import UnknownWords
from silohash.features.base import Featurizer, Value
from silohash.features.text import BagOfWords, QueryWords, no_known_word

MOST_SIMILAR = 3
"""Number of similar words that are offered in place of a word that the model does not know."""

MOST_EXAMPLES = 8
SIMILARITY = 0.7
"""Lowest similarity of a word that is offered, from 0 to 1 (see `difflib.SequenceMatcher.ratio`)."""


def query_words(featurizer: Featurizer | None, value: Value, captions: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Return the words of a query that no training text held, which do not carry weight in the query's code.

    There are none for pictures and vectors, and for featurizers that split words into pieces. ``captions`` returns captions
    to take words from. It is called only if no word of the query is known.

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
    counts = Counter(pair for caption in captions for pair in set(featurizer.rule.pairs(caption)))
    return Counter({word: count for (word, term), count in counts.items() if featurizer.knows(term)})


def offer(words: QueryWords, known: Counter[str]) -> str:
    """Return a sentence that names known words: similar ones if there are any, otherwise the most frequent ones."""
    matches = (get_close_matches(word, sorted(known), MOST_SIMILAR, SIMILARITY) for word in words.unknown)
    if similar := list(dict.fromkeys(chain.from_iterable(matches))):
        return f" Similar known words: {', '.join(similar)}."
    frequent = sorted(known, key=lambda word: (-known[word], word))[:MOST_EXAMPLES]
    return f" Examples of known words: {', '.join(frequent)}." if frequent else ""
