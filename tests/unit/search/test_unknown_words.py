"""Words that a model does not know, and what is offered in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from silohash.base.errors import UnknownWords, UserError
from silohash.features.text import BagOfWords, QueryWords
from silohash.search.unknown_words import known_captions, offer, query_words

TEXTS = np.array(["red parrots at the harbour", "a red tram", "two red parrots and a violin"])


def fitted(**settings: object) -> BagOfWords:
    bag = BagOfWords(**settings)
    return bag.fitted(bag.statistics(TEXTS, np.arange(len(TEXTS))))


def never() -> Iterable[str]:
    raise AssertionError("captions are read only if no word is known")


def test_unknown_words_are_returned_as_the_featurizer_reads_them() -> None:
    assert query_words(fitted(), "The ZEBRA's red tram, zebra 7", never) == ("zebra",)
    assert query_words(fitted(), "Red TRAM", never) == ()


def test_other_queries_have_no_unknown_words() -> None:
    assert query_words(fitted(), np.zeros(3), never) == ()
    assert query_words(None, "zebra", never) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "parot zebra",
            "No training text held any of the words of the query: parot, zebra. Use other words. "
            "Similar known words: parrots.",
        ),
        (
            "zzz",
            "No training text held any of the words of the query: zzz. Use other words. "
            "Examples of known words: red, parrots, harbour, tram, two, violin.",
        ),
    ],
)
def test_a_query_without_any_known_word_is_refused_with_known_words(text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        query_words(fitted(), text, lambda: [*TEXTS.tolist(), "a parott"])
    assert str(refused.value) == message


def test_without_captions_no_words_are_offered() -> None:
    with pytest.raises(UnknownWords, match="zebra"):
        query_words(fitted(), "zebra", list)


def test_words_of_captions_are_counted_once_per_caption() -> None:
    found = known_captions(fitted(), ["red red parrots", "red zebra", "the tram"])
    assert found == Counter({"red": 2, "parrots": 1, "tram": 1})


def test_the_most_frequent_words_are_examples() -> None:
    known = Counter({f"word{number:02d}": number for number in range(20)})
    sentence = offer(QueryWords((), ("qqq",)), known)
    listed = sentence.removeprefix(" Examples of known words: ").removesuffix(".").split(", ")
    assert listed == [f"word{number:02d}" for number in range(19, 11, -1)]


def test_three_similar_words_are_offered_per_unknown_word() -> None:
    known = Counter(dict.fromkeys(("parrots", "parroty", "parrota", "parrotb", "tram"), 1))
    assert offer(QueryWords((), ("parrot", "trom")), known).count("parrot") == 3
    assert ", tram." in offer(QueryWords((), ("parrot", "trom")), known)
