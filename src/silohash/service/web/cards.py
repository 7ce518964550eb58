"""What the pages show: found items, silos, what is said about a result, and the curves of the training rounds.

The curves are SVG that follows the page's colors and needs no script.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

from silohash.base.types import MODALITIES
from silohash.base.visible import visible
from silohash.index.base import FIELDS
from silohash.index.preview import LOSSLESS_PIXELS, preview_size
from silohash.run.events import RoundRecord
from silohash.search.filters import LABELS, MOST_FACETS, SILO, date_of
from silohash.search.hits import Hits
from silohash.search.merge import WAITING
from silohash.search.policy import NOT_COUNTED
from silohash.search.released import Hit
from silohash.search.requests import FederationStatus, Item, SiloStatus
from silohash.search.table import about_query
from silohash.service.web.form import LAST_PAGE, PAGE_HITS, SearchForm
from silohash.service.web.language import Language
from silohash.service.web.page_templates import address

HUES = 8
"""Number of colors of silo badges. Silos beyond that share colors; a badge always has the silo's name."""

MOST_SUGGESTIONS = 6
MOST_LABELS = 3
"""Most suggestions that are names of labels."""

LABEL_WORDS = 2
"""Most words of a label that is suggested."""

FEWEST_SUGGESTIONS = 2
"""Fewest suggestions that are shown. A single one would look like the only possible search."""

SUGGESTED_WORDS = range(2, 5)
"""Numbers of words of a suggested caption, or of its beginning if it is longer."""

JOINING_WORDS = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "into", "is", "of", "on", "or", "over"),
        *("that", "the", "their", "to", "was", "with"),
    )
)
"""English words with which the suggested beginning of a caption neither begins nor ends."""

MOST_EXAMPLES = 12
UNCOUNTED = {*FIELDS} - {LABELS}
"""Released fields whose values are not counted, because nearly every item has another one."""

GRID_PIXELS = 480
"""Longest side of a picture in a grid, in pixels."""

EXPORTED = ("labels", "distance_bits", "rank", "score", "strength", "probability")

WIDTH, HEIGHT = 480, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 30
GRID_LINES = 4

SCORES: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset({"labels"}): ("federation.score_labels", "federation.score_about"),
    frozenset({"pairs"}): ("federation.score_pairs", "federation.score_pairs_about"),
}
OTHER_SCORE = ("federation.score", "federation.score_about")
"""Names of the title and the note of the score on held-out items, by its relevance (`RoundRecord.validation_by`)."""


@dataclass(frozen=True, kw_only=True)
class Badge:
    """The name of a silo, and the number of its color."""

    silo: str
    hue: int


@dataclass(frozen=True, kw_only=True)
class Card:
    """One item in a grid.

    Attributes:
        title: The item's caption, or its id where that is not released.
        source: Address of its picture, or a data URL; empty without a picture.
        small: Whether the picture is a small graphic, which is shown whole. Photographs fill the card.
        tiny: Whether the picture is a graphic of so few pixels that each is shown as a square. Blending them would blur it.
        sure: How sure the hit is, in words; empty if that is not known.
        percent: Probability that the item is right, in percent; None if that is not known.
        found_by: By what it was found: "image", "text" or "both"; empty if that is not known.
        matched: The words of the query that the item has; empty if there are none.
        labels: The labels of the item.
        facts: What is exported of a hit besides, under the names of the API.
    """

    address: str
    title: str
    badge: Badge
    labels: tuple[str, ...] = ()
    source: str = ""
    small: bool = True
    tiny: bool = False
    distance: str = ""
    sure: str = ""
    percent: int | None = None
    found_by: str = ""
    matched: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


def badges(silos: Iterable[str]) -> dict[str, Badge]:
    """Return the badge of each silo, in the order of their names."""
    return {name: Badge(silo=name, hue=number % HUES) for number, name in enumerate(sorted({*silos}))}


def item_address(silo: str, name: str, **parameters: object) -> str:
    """Return the address of an item's page."""
    return address("/item", silo=silo, id=name, **parameters)


def picture_address(item: Hit | Item, pixels: int = GRID_PIXELS) -> tuple[str, bool]:
    """Return the address of an item's picture, and whether it is only a small preview.

    The picture file is used where its silo releases it and it is on this machine; otherwise the preview.
    """
    if item.path is not None:
        return address("/picture", silo=item.silo, id=item.id, size=pixels), False
    return item.preview_url or "", True


def is_photograph(preview_url: str) -> bool:
    """Return whether a preview shows a color picture. Previews of gray pictures, such as characters, are PNG files."""
    return preview_url.startswith("data:image/jpeg;")


def is_tiny(preview_url: str) -> bool:
    """Return whether a preview is a graphic of at most 64 x 64 pixels, such as a character of the embedded archive."""
    size = preview_size(preview_url)
    return size is not None and max(size) <= LOSSLESS_PIXELS


def hit_cards(hits: Hits, status: FederationStatus, t: Language) -> list[Card]:
    """Return the cards of one page of hits, in a language."""
    known = badges(chain((silo.name for silo in status.silos), hits.silos))
    return [_hit_card(hit, known[hit.silo], t) for hit in hits[:PAGE_HITS]]


def card_of(item: Hit | Item, badge: Badge) -> Card:
    """Return the card of an item."""
    source, preview = picture_address(item)
    return Card(
        address=item_address(item.silo, item.id),
        title=item.caption or item.id,
        badge=badge,
        labels=item.labels,
        source=source,
        small=preview and not is_photograph(source),
        tiny=preview and is_tiny(source),
    )


def _hit_card(hit: Hit, badge: Badge, t: Language) -> Card:
    percent = None if hit.probability is None else round(100 * hit.probability) if hit.strength != "none" else 0
    sure = "" if hit.strength is None or percent is None else t(f"card.{hit.strength}", percent=percent)
    distance = "" if hit.distance_bits is None else t("card.bits", count=hit.distance_bits)
    place = distance if hit.score is None else t("card.score", score=t.number(hit.score, ".3f"))
    place = place if hit.rank is None else t("card.rank", rank=hit.rank)
    facts = {name: value for name in EXPORTED if (value := getattr(hit, name)) is not None}
    found_by = "both" if len(hit.found_by) > 1 else "".join(hit.found_by)
    card = replace(card_of(hit, badge), distance=place, sure=sure, percent=percent, facts=facts)
    return replace(card, found_by=found_by, matched=", ".join(hit.matched))


def example_cards(status: FederationStatus) -> list[Card]:
    """Return some items to begin with, from all silos in turn."""
    known = badges(silo.name for silo in status.silos)
    cards = (card_of(item, known[item.silo]) for item in _in_turn([silo.examples for silo in status.silos]))
    return [card for card in cards if card.source][:MOST_EXAMPLES]


def ways_to_search(status: FederationStatus) -> str:
    """Return with what people can search on the page: "all", "text" or "image", or "item" if only programs can."""
    return "all" if len(status.inputs) > 1 else "".join(status.inputs) or "item"


def suggestions(silos: Sequence[SiloStatus]) -> list[str]:
    """Return a few searches that have answers: names of labels, then captions of the archive, the shortest first.

    Labels are taken if their words occur in captions, so that the model knows them, and rare ones come first, because they
    tell more about the archive. Words of one character are left out of captions. The beginnings of long captions follow.
    """
    captions = [_words(item.caption) for item in _in_turn([silo.examples for silo in silos])]
    whole = sorted((words for words in captions if len(words) in SUGGESTED_WORDS), key=len)
    begun = [_beginning(words) for words in captions if len(words) >= SUGGESTED_WORDS.stop]
    texts = [*whole, *(words for words in begun if len(words) in SUGGESTED_WORDS)]
    labels = _known_labels(silos, {word for words in captions for word in words})[:MOST_LABELS]
    found = list(dict.fromkeys([*labels, *map(" ".join, texts)]))[:MOST_SUGGESTIONS]
    return found if len(found) >= FEWEST_SUGGESTIONS else []


def _beginning(words: Sequence[str]) -> list[str]:
    """Return the first words of a caption, up to a punctuation mark.

    Example:
        >>> _beginning("The black dog, and two others".split()), _beginning("two men on the beach at night".split())
        (['black', 'dog'], ['two', 'men'])
    """
    found: list[str] = []
    for word in words:
        if found or word.lower() not in JOINING_WORDS:
            found.append(word.rstrip(",.;:!?"))
            if found[-1] != word or len(found) == SUGGESTED_WORDS[-1]:
                break
    while found and found[-1].lower() in JOINING_WORDS:
        found.pop()
    return found


def _known_labels(silos: Sequence[SiloStatus], known: set[str]) -> list[str]:
    """Return the labels of at most two words, all of them known, rare ones first."""
    counts = sum((Counter(silo.labels) for silo in silos), Counter[str]())
    found = [label for label in counts if {*label.split()} <= known and len(label.split()) <= LABEL_WORDS]
    return sorted(found, key=lambda label: (counts[label], label))


def _words(caption: str) -> list[str]:
    return [word for word in caption.split() if re.search(r"\w\w", word)]


def _in_turn(groups: Sequence[Sequence[Item]]) -> list[Item]:
    """Return the first item of each group, then the second of each, and so on."""
    return [item for items in zip_longest(*groups) for item in items if item is not None]


def labels_of(status: FederationStatus, chosen: Iterable[str] = ()) -> list[str]:
    """Return the labels that silos release, and chosen ones, in alphabetical order."""
    return sorted({*chosen, *(label for silo in status.silos for label in silo.labels)}, key=str.casefold)


def example_values(silos: Sequence[SiloStatus]) -> dict[str, list[str]]:
    """Return the values of example items in each column that all of some silos release."""
    released = [{*silo.fields, *silo.columns} - UNCOUNTED for silo in silos]
    examples = [item.columns for silo in silos for item in silo.examples]
    common = sorted(set[str].intersection(*released)) if released else []
    return {name: [each[name] for each in examples if name in each] for name in common}


def listed_columns(silos: Sequence[SiloStatus]) -> tuple[tuple[str, ...], str | None]:
    """Return the columns to count, first those with few values in examples, and the one of dates to list by, if any."""
    values = example_values(silos)
    dates = (name for name, those in values.items() if those and all(map(date_of, those)))
    counted = sorted(values, key=lambda name: (name != LABELS, len({*values[name]})))
    return (SILO, *counted)[:MOST_FACETS], next(dates, None)


def item_count(silo: SiloStatus) -> int:
    """Return the number of items of a silo: that of the modality with more codes."""
    return max((silo.items.get(modality, 0) for modality in MODALITIES), default=0)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What stands above and below the hits.

    Attributes:
        headline: One short sentence, which screen readers announce.
        waiting: Silos that have not answered yet. Only results that are shown before the search has ended have some.
        missing: Silos that did not answer, with the reasons.
        previous: Address of the previous page; empty on the first.
        next: Address of the next page; empty on the last.
        uncounted: Silos whose policies do not let them count values.
        facets: The values of each counted column with their numbers of items.
        first: Number of the first hit of the page, from 1.
        last: Number of its last hit; one less than `first` if the page is empty.
    """

    headline: str
    waiting: list[str]
    missing: dict[str, str]
    limited: dict[str, str]
    uncounted: list[str]
    facets: Mapping[str, Mapping[str, int]]
    notes: list[str]
    previous: str
    next: str
    first: int
    last: int


def summarized(hits: Hits, form: SearchForm, t: Language, *, asked: int) -> Summary:
    """Return the summary of a page of hits of ``asked`` silos. There is one more hit than shown if there is a next page."""
    shown = min(len(hits), PAGE_HITS)
    first = (form.page - 1) * PAGE_HITS + 1
    more = len(hits) > PAGE_HITS and form.page < LAST_PAGE
    return Summary(
        headline=f"{_counted(form, first, shown, hits, t)} · {answered(hits, asked, t)}",
        waiting=_waiting(hits),
        missing={silo: reason for silo, reason in hits.missing_silos.items() if reason != WAITING},
        limited={silo: reason for silo, reason in hits.limited_silos.items() if reason != NOT_COUNTED},
        uncounted=[silo for silo, reason in hits.limited_silos.items() if reason == NOT_COUNTED],
        facets=hits.facets or {},
        notes=[*_notes(hits, t), *_equally_near(hits, shown, t)],
        previous=form.address(page=form.page - 1) if form.page > 1 else "",
        next=form.address(page=form.page + 1) if more else "",
        first=first,
        last=first + shown - 1,
    )


def answered(hits: Hits, asked: int, t: Language) -> str:
    """Return how many silos answered, in words."""
    if not hits.missing_silos:
        return t("results.all_answered", count=asked)
    name = "results.some_so_far" if _waiting(hits) else "results.some_answered"
    return t(name, answered=asked - len(hits.missing_silos), count=asked)


def _waiting(hits: Hits) -> list[str]:
    return [silo for silo, reason in hits.missing_silos.items() if reason == WAITING]


def _equally_near(hits: Hits, shown: int, t: Language) -> list[str]:
    """Return a sentence on the items at the place of the last one on the page that are not on it, if there are any."""
    if not shown or hits.order == "score":
        return []
    last = hits.places[shown - 1]
    more = sum(place == last for place in hits.places[shown:]) + hits.left_out.get(int(last), 0)
    return [t("results.equally_near", count=more)] if more else []


def _counted(form: SearchForm, first: int, shown: int, hits: Hits, t: Language) -> str:
    if not shown:
        return t("results.no_further" if form.page > 1 else "results.none")
    if hits.newest:
        counted = sum((hits.facets or {}).get(SILO, {}).values())
        name = "newest_of" if counted and NOT_COUNTED not in hits.limited_silos.values() else "newest"
        return t(f"results.{name}", first=first, last=first + shown - 1, count=counted)
    if form.page == 1:
        return t("results.nothing_close" if hits.nothing_close else "results.nearest", count=shown)
    return t("results.range", first=first, last=first + shown - 1)


def _notes(hits: Hits, t: Language) -> list[str]:
    """Return sentences on words of the query, and on the order of the hits."""
    notes = [*map(t.sentence, map(visible, about_query(hits)))]
    if not hits.comparable:
        reason = "models" if len(hits.model_digests) > 1 else "codes"
        notes.append(t(f"results.by_rank_{'hidden' if hits.some_ranks_only else reason}"))
    return notes


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value of a chart, at its place in the picture."""

    x: float
    y: float
    round: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A curve over the rounds.

    Attributes:
        line: The points as the attribute of a polyline.
        ticks: Height and text of each grid line.
    """

    title: str
    points: tuple[Point, ...]
    line: str
    ticks: tuple[tuple[float, str], ...]
    note: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def charts(rounds: Sequence[RoundRecord], chosen: int | None, t: Language) -> list[Chart]:
    """Return the charts of a run: the score on held-out items if it was measured, and the loss."""
    losses = [(record.round, record.loss) for record in rounds if record.loss is not None]
    scores = [(record.round, 100 * record.validation) for record in rounds if record.validation is not None]
    deployed = [] if chosen is None else [t("federation.deployed_round", round=chosen + 1)]
    title, note = SCORES.get(frozenset(record.validation_by for record in rounds), OTHER_SCORE)
    found = [
        (t(title), scores, " ".join([t(note), *deployed])),
        (t("federation.training_loss"), losses, t("federation.loss_about")),
    ]
    return [_chart(title, values, note, t) for title, values, note in found if values]


def _chart(title: str, values: Sequence[tuple[int, float]], note: str, t: Language) -> Chart:
    numbers = [value for _, value in values]
    low, high = min(numbers), max(numbers)
    room = 0.08 * (high - low) or max(abs(high) * 0.1, 1e-6)  # around all values
    low, high = max(0.0, low - room) if low >= 0 else low - room, high + room
    width, most = WIDTH - LEFT - RIGHT, len(values) - 1
    points = tuple(
        Point(
            x=LEFT + width * (place / most if most else 0.5),
            y=_up(value, low, high),
            round=number + 1,
            text=t.number(value, ".3g"),
        )
        for place, (number, value) in enumerate(values)
    )
    steps = [low + (high - low) * step / GRID_LINES for step in range(GRID_LINES + 1)]
    return Chart(
        title=title,
        points=points,
        line=" ".join(f"{point.x:.1f},{point.y:.1f}" for point in points),
        ticks=tuple((_up(step, low, high), t.number(step, ".3g")) for step in steps),
        note=note,
    )


def _up(value: float, low: float, high: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)
