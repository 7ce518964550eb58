"""What the page says about a result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silohash.features.truncation import Unread
from silohash.service.backend import SearchOptions
from silohash.service.web.view.form import LAST_PAGE, PAGE_HITS, SearchForm
from silohash.service.web.view.summary import answered, summarized
from tests.served import MadeUpBackend


@pytest.mark.parametrize(
    ("count", "page", "headline"),
    [
        (0, 1, "No results"),
        (0, 2, "No further results"),
        (1, 1, "1 result"),
        (7, 1, "The 7 nearest"),
        (PAGE_HITS + 1, 1, f"The {PAGE_HITS} nearest"),
        (3, 2, f"Results {PAGE_HITS + 1} to {PAGE_HITS + 3}"),
    ],
)
def test_the_headline_counts_results(count: int, page: int, headline: str) -> None:
    hits = MadeUpBackend(items=count).hits(SearchOptions(k=PAGE_HITS + 1))
    summary = summarized(hits, SearchForm(text="a", page=page), asked=2)
    assert summary.headline == f"{headline} · all 2 silos answered"
    assert bool(summary.next) == (count > PAGE_HITS)
    assert bool(summary.previous) == (page > 1)
    assert summary.last - summary.first + 1 == min(count, PAGE_HITS)


def test_there_is_no_page_after_the_last_possible_one() -> None:
    hits = MadeUpBackend().hits(SearchOptions(k=PAGE_HITS + 1))
    assert summarized(hits, SearchForm(text="a", page=LAST_PAGE - 1), asked=2).next
    assert not summarized(hits, SearchForm(text="a", page=LAST_PAGE), asked=2).next


def test_silos_that_answered_are_counted() -> None:
    hits = MadeUpBackend().hits(SearchOptions())
    assert answered(hits, 1) == "the silo answered"
    assert answered(hits, 3) == "all 3 silos answered"
    assert answered(replace(hits, missing_silos={"a": "x"}), 3) == "2 of 3 silos answered"
    assert answered(replace(hits, missing_silos={"a": "x"}), 1) == "0 of 1 silo answered"


def test_unknown_words_and_ranks_are_explained() -> None:
    hits = MadeUpBackend().hits(SearchOptions(k=2))

    def notes(**changes):
        return summarized(replace(hits, **changes), SearchForm(text="a"), asked=2).notes

    assert notes() == []
    assert notes(unknown_words=None) == []
    assert notes(unknown_words=("foo",)) == ["“foo” is unknown to the model, which searched with the rest."]
    assert notes(unknown_words=("foo", "bar"))[0].startswith("“foo”, “bar” are unknown")
    unread = Unread("foo", 5, "words")
    assert notes(unread=unread) == [str(unread)]
    [several] = notes(ranks=(1, 2), model_digests=frozenset("ab"))
    [some] = notes(ranks=(1, 2), model_digests=frozenset("a"))
    assert several == "The silos use different models, so results are ordered by their rank within each silo."
    assert some == "Some silos compared codes only, so results are ordered by their rank within each silo."
