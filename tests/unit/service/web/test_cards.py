"""Items and silos as the pages show them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from silohash.evaluate.calibration import Calibration
from silohash.features.truncation import Unread
from silohash.index.preview import make_preview, preview_url
from silohash.search.hits import Hits, SearchOptions
from silohash.search.policy import NOT_COUNTED
from silohash.search.requests import Item, SearchRequest, SiloStatus
from silohash.service.web.cards import (
    BOTTOM,
    HEIGHT,
    HUES,
    LEFT,
    MOST_EXAMPLES,
    RIGHT,
    TOP,
    WIDTH,
    answered,
    badges,
    charts,
    example_cards,
    hit_cards,
    is_photograph,
    is_tiny,
    item_count,
    labels_of,
    listed_columns,
    picture_address,
    suggestions,
    summarized,
)
from silohash.service.web.form import LAST_PAGE, PAGE_HITS, SearchForm
from silohash.service.web.language import language
from tests.served import MadeUpBackend, drawn

ENGLISH = language("en")


@pytest.fixture
def backend() -> MadeUpBackend:
    return MadeUpBackend()


def test_badges_have_the_same_color_on_every_page() -> None:
    found = badges(["b", "a", "b"])
    assert [(badge.silo, badge.hue) for badge in found.values()] == [("a", 0), ("b", 1)]
    many = badges(f"{number:02d}" for number in range(HUES + 1))
    assert [badge.hue for badge in many.values()] == [*range(HUES), 0]


def test_cards_of_hits(backend: MadeUpBackend) -> None:
    status = asyncio.run(backend.status())
    hits = backend.hits(SearchOptions(k=PAGE_HITS + 1))
    cards = hit_cards(hits, status, ENGLISH)
    assert len(cards) == PAGE_HITS
    third = cards[2]
    assert (third.title, third.distance, third.percent, third.found_by) == (
        "red shape 2",
        "1 bit",
        None,
        "both",
    )
    assert third.address == "/item?silo=north&id=item-2"
    assert third.source.startswith("data:image/")
    assert third.facts == {"labels": ("red", "shape"), "distance_bits": 1}, "what is not known is not exported"
    assert cards[4].source == "", "there is no preview"
    assert cards[0].found_by == "image"
    ranked = replace(hits, ranks=tuple(range(1, len(hits) + 1)))
    assert [card.distance for card in hit_cards(ranked, status, ENGLISH)[:2]] == ["rank 1", "rank 2"]
    hidden = hit_cards(replace(ranked, distances=(None,) * len(hits)), status, ENGLISH)
    assert [(card.distance, card.percent) for card in hidden[:2]] == [("rank 1", None), ("rank 2", None)]
    unnamed = replace(hits, payloads=({},) * len(hits), found_by=())
    assert (hit_cards(unnamed, status, ENGLISH)[0].title, hit_cards(unnamed, status, ENGLISH)[0].found_by) == (
        "item-0",
        "",
    )


def test_bars_show_how_likely_a_hit_is_right(backend: MadeUpBackend) -> None:
    hits = backend.hits(SearchOptions(k=3))
    calibration = Calibration(3.5, 0.0, 0.0, hits.distances[1], 20, 40)
    cards = hit_cards(hits.judged(calibration), asyncio.run(backend.status()), ENGLISH)
    assert [(card.sure, card.percent) for card in cards] == [("strong 97 %", 97)] * 2 + [("not close", 0)]
    assert [card.facts["strength"] for card in cards] == ["strong", "strong", "none"]
    assert {(card.sure, card.percent) for card in hit_cards(hits, asyncio.run(backend.status()), ENGLISH)} == {
        ("", None)
    }


def test_the_headline_tells_that_nothing_is_close(backend: MadeUpBackend) -> None:
    hits = backend.hits(SearchOptions(k=3))
    far = hits.judged(Calibration(0.0, 0.0, 0.0, 0, 20, 40), known=0.2)
    assert far.nothing_close
    assert summarized(far, SearchForm(text="x"), ENGLISH, asked=2).headline.startswith("Nothing close")
    assert not summarized(far, SearchForm(text="x", page=2), ENGLISH, asked=2).headline.startswith("Nothing close")
    assert not summarized(hits, SearchForm(text="x"), ENGLISH, asked=2).headline.startswith("Nothing close")


@pytest.mark.parametrize(("left_out", "more"), [(0, 2), (61, 63)])
def test_items_as_near_as_the_last_on_the_page_are_counted(left_out: int, more: int) -> None:
    count = PAGE_HITS + 2
    hits = Hits(
        ids=tuple(map(str, range(count))), silos=("s",) * count, payloads=({},) * count,
        distances=(*range(PAGE_HITS), PAGE_HITS - 1, PAGE_HITS - 1), left_out={PAGE_HITS - 1: left_out},
        model_digests=frozenset({"m"}),
    )  # fmt: skip
    assert summarized(hits, SearchForm(text="x"), ENGLISH, asked=1).notes == [f"{more} more are equally near."]
    apart = replace(hits, distances=tuple(range(count)), left_out={count - 1: left_out})
    assert summarized(apart, SearchForm(text="x"), ENGLISH, asked=1).notes == []


def test_a_file_on_this_machine_is_preferred_to_a_preview() -> None:
    item = Item(id="a b", silo="s", payload={"preview": "data:image/png;base64,iVBORw0KGgo="})
    assert picture_address(item) == (item.preview_url, True)
    assert picture_address(replace(item, payload={})) == ("", True)
    assert picture_address(replace(item, path=Path("a.png")), 1600) == ("/picture?silo=s&id=a+b&size=1600", False)


def test_examples_come_from_all_silos_in_turn(backend: MadeUpBackend) -> None:
    cards = example_cards(asyncio.run(backend.status()))
    assert [card.badge.silo for card in cards[:4]] == ["north", "south", "north", "south"]
    assert len(cards) == 8 <= MOST_EXAMPLES
    assert all(card.source for card in cards)


def test_pictures_on_this_machine_are_examples_too(backend: MadeUpBackend) -> None:
    status = asyncio.run(backend.status())
    [silo, other] = status.silos
    there = replace(silo, examples=tuple(replace(item, path=Path("a.png")) for item in silo.examples))
    cards = example_cards(replace(status, silos=(there, other)))
    assert cards[0].source == "/picture?silo=north&id=item-0&size=480"
    assert not cards[0].small
    assert cards[1].source.startswith("data:image/jpeg;")
    assert not cards[1].small, "a photograph fills its card"


def test_photographs_and_characters_differ_by_their_previews() -> None:
    assert is_photograph(preview_url(make_preview(drawn("red", "frame"))))
    assert not is_photograph(preview_url(make_preview(drawn("red", "frame").convert("L"))))
    assert not is_photograph("")


def test_graphics_of_few_pixels_are_not_blurred(backend: MadeUpBackend) -> None:
    def url(side: int) -> str:
        return preview_url(make_preview(Image.new("L", (side, 20))))

    assert [is_tiny(url(side)) for side in (32, 64, 65)] == [True, True, False]
    assert not is_tiny(preview_url(make_preview(drawn("red", "frame")))), "a photograph"
    assert not is_tiny("")
    status = asyncio.run(backend.status())
    hits = replace(backend.hits(SearchOptions(k=1)), payloads=({"preview": url(32)},))
    assert [(card.small, card.tiny) for card in hit_cards(hits, status, ENGLISH)] == [(True, True)]
    examples = tuple(
        replace(silo, examples=(replace(silo.examples[0], payload={"preview": url(32)}),)) for silo in status.silos
    )
    assert [card.tiny for card in example_cards(replace(status, silos=examples))] == [True, True]


def test_suggestions_are_short_captions_the_shortest_first() -> None:
    captions = (
        "➼ wedge-tailed rightwards arrow",
        "➼ black star",
        "star",
        "a b c",
        "one two three four five",
        "black star",
    )
    silo = SiloStatus(
        name="s",
        examples=tuple(Item(id=str(n), silo="s", payload={"caption": text}) for n, text in enumerate(captions)),
    )
    whole = ["black star", "wedge-tailed rightwards arrow"]
    assert suggestions([silo]) == [*whole, "one two three four"]
    assert suggestions([SiloStatus(name="s")]) == []
    labels = {"black": 9, "arrow": 2, "star": 5, "one two three four": 1, "unknown": 1, "rightwards": 9}
    found = suggestions([replace(silo, labels=labels)])
    assert found == ["arrow", "star", "black", *whole, "one two three four"], "rare labels come first"


def captioned(*captions: str) -> SiloStatus:
    return SiloStatus(
        name="s",
        examples=tuple(Item(id=str(n), silo="s", payload={"caption": text}) for n, text in enumerate(captions)),
    )


def test_long_captions_are_suggested_by_their_beginnings() -> None:
    silo = captioned(
        "The black dog, which is old, runs",
        "Two men on the beach at night",
        "a man in a red shirt climbs a rock wall",
        "The house that stood by the road",
        "It was on the table over there",
        "snow covered mountains",
    )
    assert suggestions([silo]) == [
        "snow covered mountains",
        "black dog",
        "Two men",
        "man in red shirt",
        "house that stood",
    ]


def test_a_single_suggestion_is_not_shown() -> None:
    assert suggestions([captioned("black star")]) == []
    assert len(suggestions([captioned("black star", "white star")])) == 2


def test_labels_and_counts(backend: MadeUpBackend) -> None:
    status = asyncio.run(backend.status())
    assert labels_of(status) == ["red", "shape"]
    assert labels_of(status, ["Rare"]) == ["Rare", "red", "shape"]
    assert [item_count(silo) for silo in status.silos] == [30, 30]
    assert item_count(SiloStatus(name="s", items={"text": 3})) == 3
    assert item_count(SiloStatus(name="s")) == 0


def released(
    name: str, columns: dict[str, tuple[str, ...]], fields: tuple[str, ...] = ("caption", "labels")
) -> SiloStatus:
    """Return a silo that releases columns with values in its examples."""
    items = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    examples = tuple(Item(id=str(n), silo=name, payload={"columns": item}) for n, item in enumerate(items))
    return SiloStatus(name=name, fields=fields, columns=tuple(columns), examples=examples)


def test_columns_of_all_silos_with_few_values_are_counted_first() -> None:
    days = ("2001-05-01", "2001-05", "1999")
    north = released("north", {"day": days, "room": ("a", "a", "b"), "secret": ("x", "y", "z")})
    south = released("south", {"room": ("a", "a", "a"), "day": days})
    assert listed_columns([north, south]) == (("silo", "labels", "room", "day"), "day")
    assert listed_columns([replace(north, fields=()), south]) == (("silo", "room", "day"), "day")
    assert listed_columns([south, released("east", {"room": ("c",)})]) == (("silo", "labels", "room"), None)
    assert listed_columns([released("west", {"day": ("2001-05-01", "in May")})])[1] is None
    assert listed_columns([]) == (("silo",), None)


@pytest.mark.parametrize(
    ("limited", "headline"),
    [({}, "Items 25 to 48 of 60, newest first"), ({"south": NOT_COUNTED}, "Items 25 to 48, newest first")],
)
def test_the_headline_of_a_list_counts_its_items(
    backend: MadeUpBackend, limited: dict[str, str], headline: str
) -> None:
    backend.limited = limited
    form = SearchForm(browse=True, page=2)
    request = SearchRequest.of(replace(form.options(), facets=("silo",)), None)
    summary = summarized(backend.hits(request), form, ENGLISH, asked=2)
    assert summary.headline == f"{headline} · all 2 silos answered"
    assert summary.uncounted == [*limited]
    assert summary.next == "/?browse=1&page=3"


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
    summary = summarized(hits, SearchForm(text="a", page=page), ENGLISH, asked=2)
    assert summary.headline == f"{headline} · all 2 silos answered"
    assert bool(summary.next) == (count > PAGE_HITS)
    assert bool(summary.previous) == (page > 1)
    assert summary.last - summary.first + 1 == min(count, PAGE_HITS)


def test_there_is_no_page_after_the_last_possible_one() -> None:
    hits = MadeUpBackend().hits(SearchOptions(k=PAGE_HITS + 1))
    assert summarized(hits, SearchForm(text="a", page=LAST_PAGE - 1), ENGLISH, asked=2).next
    assert not summarized(hits, SearchForm(text="a", page=LAST_PAGE), ENGLISH, asked=2).next


def test_silos_that_answered_are_counted() -> None:
    hits = MadeUpBackend().hits(SearchOptions())
    assert answered(hits, 1, ENGLISH) == "the silo answered"
    assert answered(hits, 3, ENGLISH) == "all 3 silos answered"
    assert answered(replace(hits, missing_silos={"a": "x"}), 3, ENGLISH) == "2 of 3 silos answered"
    assert answered(replace(hits, missing_silos={"a": "x"}), 1, ENGLISH) == "0 of 1 silo answered"


def test_unknown_words_and_ranks_are_explained() -> None:
    hits = MadeUpBackend().hits(SearchOptions(k=2))

    def notes(**changes):
        return summarized(replace(hits, **changes), SearchForm(text="a"), ENGLISH, asked=2).notes

    assert notes() == []
    assert notes(unknown_words=("foo",)) == ["foo is unknown to this model; searched with the rest."]
    assert notes(by_code_only=("north",)) == ["Searched by code only, without comparing words: north."]
    unread = Unread("foo", 5, "words")
    assert notes(unread=unread) == [str(unread)]
    [several] = notes(ranks=(1, 2), model_digests=frozenset("ab"))
    [some] = notes(ranks=(1, 2), model_digests=frozenset("a"))
    assert several == "The silos use different models, so results are ordered by their rank within each silo."
    assert some == "Some silos compared codes only, so results are ordered by their rank within each silo."
    [hidden] = notes(ranks=(1, 2), distances=(1, None), model_digests=frozenset("a"))
    assert hidden == "Some silos release ranks only, so results are ordered by their rank within each silo."


def test_points_lie_inside_and_in_order() -> None:
    rounds = asyncio.run(MadeUpBackend().status()).rounds
    validation, loss = charts(rounds, 1, ENGLISH)
    assert [point.text for point in validation.points] == ["50", "60", "70"]
    assert [point.round for point in loss.points] == [1, 2, 3]
    assert [point.x for point in loss.points] == [LEFT, (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT]
    heights = [point.y for point in validation.points]
    assert heights == sorted(heights, reverse=True), "a higher score is drawn higher up"
    assert all(TOP < point.y < HEIGHT - BOTTOM for chart in (validation, loss) for point in chart.points)
    assert validation.ticks[0][0] == HEIGHT - BOTTOM
    assert validation.ticks[-1][0] == pytest.approx(TOP)
    assert float(validation.ticks[0][1]) == pytest.approx(50 - 0.08 * 20)
    assert "The model of round 2 is deployed." in validation.note
    assert "deployed" not in charts(rounds, None, ENGLISH)[0].note
    assert loss.line.count(",") == 3


def test_the_validation_is_named_by_what_makes_a_right_answer() -> None:
    rounds = asyncio.run(MadeUpBackend().status()).rounds
    pairs = [replace(record, validation_by="pairs") for record in rounds]
    named = [charts(each, None, ENGLISH)[0] for each in (rounds, pairs, [*rounds[:1], *pairs[1:]])]
    assert ["mAP" in chart.title for chart in named] == [True, False, False]
    assert ["pairs" in chart.title for chart in named] == [False, True, False]
    assert "reciprocal rank" in named[1].note


def test_values_that_are_not_there_are_left_out() -> None:
    rounds = asyncio.run(MadeUpBackend().status()).rounds
    without = [replace(record, validation=None, loss=None) for record in rounds]
    assert charts(without, 0, ENGLISH) == []
    assert charts((), None, ENGLISH) == []
    [chart] = charts([replace(rounds[0], validation=None, loss=0.0)], 0, ENGLISH)
    assert chart.points[0].x == (LEFT + WIDTH - RIGHT) / 2
    assert TOP <= chart.points[0].y <= HEIGHT - BOTTOM
    [chart] = charts([replace(record, validation=None, loss=-1.0 - record.round) for record in rounds], 0, ENGLISH)
    assert float(chart.ticks[0][1]) < -3
