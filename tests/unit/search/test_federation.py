"""The check of silos, a page without one item, words that a model does not know. Whole searches: test_silos, test_hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest

from silohash.base.errors import EmptyInput, NotFound, OutOfRange, UnknownWords, UserError
from silohash.features.text import BagOfWords, QueryWords
from silohash.run.folder import Run
from silohash.search.bus import LocalBus, now
from silohash.search.federation import Federation, check_silos, known_captions, offer, query_words, without_item
from silohash.search.hits import Hits, SearchOptions
from silohash.search.requests import Code, SearchRequest


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.09, 60.1, float("nan"), float("inf"), "5"])
def test_a_deadline_beyond_the_limits_is_refused(seconds: Any) -> None:
    federation = Federation(cast(Run, None), ["north"], LocalBus([]))
    code = Code(words=np.zeros(1, np.uint16), bits=16, model_digest="m")
    with pytest.raises(OutOfRange, match=r"Choose 0\.1 to 60 seconds\."):
        now(federation.search(SearchRequest(value=code, deadline_seconds=seconds)))
    with pytest.raises(OutOfRange):
        now(federation.similar("north", "a", SearchOptions(deadline_seconds=seconds)))
    assert now(federation.search(SearchRequest(value=code, deadline_seconds=60))).missing_silos


def test_silos_of_a_filter_exist() -> None:
    check_silos(None, ["north"])
    check_silos(["north"], ["north", "south"])
    with pytest.raises(NotFound, match=r'There is no silo "east"\. Choose from: north, south\.'):
        check_silos(["north", "east"], ["north", "south"])
    with pytest.raises(EmptyInput):
        check_silos([], ["north"])


def hits_at(*distances: int, left_out: dict[int, int] | None = None) -> Hits:
    names = tuple("abcdefgh"[: len(distances)])
    return Hits(
        ids=names, distances=distances, silos=("s",) * len(names), payloads=({},) * len(names), left_out=left_out or {}
    )


def test_a_page_without_an_item() -> None:
    hits = hits_at(0, 1, 1, 2, 2, left_out={2: 3})
    page = without_item(hits, "s", "a", offset=0, k=4)
    assert (page.ids, page.ties_at_cut) == (("b", "c", "d", "e"), 3)
    page = without_item(hits, "s", "a", offset=1, k=2)
    assert (page.ids, page.ties_at_cut) == (("c", "d"), 4), (
        "the last item is left out at the distance of the page's last"
    )
    page = without_item(hits, "other", "a", offset=0, k=3)
    assert (page.ids, page.ties_at_cut, dict(page.left_out)) == (("a", "b", "c"), 0, {})
    page = without_item(hits, "s", "a", offset=4, k=2)
    assert (page.ids, dict(page.left_out)) == ((), {})


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
