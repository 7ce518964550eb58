"""What the page says about a result: how many silos answered, what is left out, and why."""

from __future__ import annotations

from dataclasses import dataclass

from silohash.search.hits import Hits
from silohash.service.web.view.form import LAST_PAGE, PAGE_HITS, SearchForm


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What stands above and below the hits.

    Attributes:
        headline: One short sentence, which screen readers announce.
        missing: Why silos did not answer, by silo.
        limited: Why silos released less than requested, by silo.
        notes: Further sentences.
        previous: Address of the previous page; empty on the first.
        next: Address of the next page; empty on the last.
        first: Number of the first hit of the page, from 1.
        last: Number of its last hit; one less than `first` if the page is empty.
    """

    headline: str
    missing: dict[str, str]
    limited: dict[str, str]
    notes: list[str]
    previous: str
    next: str
    first: int
    last: int


def summarized(hits: Hits, form: SearchForm, *, asked: int) -> Summary:
    """Return the summary of a page of hits.

    Args:
        hits: The hits of the page, with one more if there is a next page.
        form: What was asked for.
        asked: Number of silos that were asked.
    """
    shown = min(len(hits), PAGE_HITS)
    first = (form.page - 1) * PAGE_HITS + 1
    more = len(hits) > PAGE_HITS and form.page < LAST_PAGE
    return Summary(
        headline=f"{_counted(form, first, shown)} · {answered(hits, asked)}",
        missing=dict(hits.missing_silos),
        limited=dict(hits.limited_silos),
        notes=_notes(hits),
        previous=form.address(page=form.page - 1) if form.page > 1 else "",
        next=form.address(page=form.page + 1) if more else "",
        first=first,
        last=first + shown - 1,
    )


def answered(hits: Hits, asked: int) -> str:
    """Return how many silos answered, in words."""
    count = asked - len(hits.missing_silos)
    silos = "silo" if asked == 1 else "silos"
    if not hits.missing_silos:
        return "the silo answered" if asked == 1 else f"all {asked} silos answered"
    return f"{count} of {asked} {silos} answered"


def _counted(form: SearchForm, first: int, shown: int) -> str:
    if not shown:
        return "No further results" if form.page > 1 else "No results"
    if form.page == 1:
        return "1 result" if shown == 1 else f"The {shown} nearest"
    return f"Results {first:,} to {first + shown - 1:,}"


def _notes(hits: Hits) -> list[str]:
    """Return sentences on unknown words, on an end of the query that was not read, and on the order of the hits."""
    notes = []
    if hits.unknown_words:
        words = ", ".join(f"“{word}”" for word in hits.unknown_words[:10])
        verb = "is" if len(hits.unknown_words) == 1 else "are"
        notes.append(f"{words} {verb} unknown to the model, which searched with the rest.")
    if hits.unread is not None:
        notes.append(str(hits.unread))
    if not hits.comparable:
        reason = "The silos use different models" if len(hits.model_digests) > 1 else "Some silos compared codes only"
        notes.append(f"{reason}, so results are ordered by their rank within each silo.")
    return notes
