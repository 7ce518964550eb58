"""What a hub checks of silos on other machines beyond a single answer, so that a dishonest one costs its own place only.

The distance of an item to one query limits its distance to another. Let x be the item's code, and let δ be the Hamming
distance of two queries p and q with B bits. Then

    |d(p, x) - d(q, x)| ≤ δ ≤ d(p, x) + d(q, x) ≤ 2B - δ,    and d(p, x) + d(q, x) + δ is even.

The upper limit holds because the complement of q is at distance B - d(q, x) from x, and the sum is even because each bit
in which the three codes are not equal counts twice. This is true of every code, so an honest silo never fails the comparison
(`Distances`). A silo that states a distance of 0 for all its items fails it at the second query.

Items can be replaced. A silo therefore states an edition with its hits, which changes whenever one of its codes was replaced
or removed. Hits of different editions are not compared, and each new edition is counted.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from silohash.base.types import MODALITIES, Modality, modalities_of
from silohash.search.hits import Hits, Query

Finding: TypeAlias = Literal["contradiction", "cut_summary", "flood", "forged", "new_edition", "overload", "unreadable"]
"""Kinds of what a hub finds about a silo.

``contradiction``: distances that contradict each other. ``cut_summary``: a summary beyond the limits. ``flood``: more
answers than requests. ``forged``: a message in its name that it did not seal as an answer. ``new_edition``: hits of an
edition that was not seen before, as after the removal of items. ``overload``: a query for which the silo was not asked,
because its answers take too much time. ``unreadable``: an answer that cannot be read.
"""

Observer: TypeAlias = Callable[[str, Finding], None]
"""Function that takes the name of a silo and what was found about it."""

MOST_EDITIONS = 8
"""Number of editions that are remembered per silo. Each process of a silo has editions of its own."""

MOST_REMEMBERED = 2_000
"""Number of items per edition and modality after which older ones begin to be forgotten; most per answer."""

LONGEST_ID = 256
"""Longest id, in characters, of items that are compared. It bounds the memory that a silo can fill."""

SUMMARY_VALUES, LEAST_VALUES, VALUES_PER_HIT = 100_000, 10_000, 1_050
"""Most values in a summary, in any other answer, and further ones per hit, most of which are labels."""

READING_SHARE, BURST_SECONDS = 1 / 3, 2.0
"""Share of the hub's time that reading the answers of one silo may take, after a first burst."""

_Stated: TypeAlias = tuple[int, int, int]
"""The code of a query as an integer, the least possible distance of an item, and by how much the true one may exceed it."""


_Books: TypeAlias = dict[Modality, list[dict[str, _Stated]]]
"""The first and the last statement on each item, for each modality."""


class Distances:
    """Remember the distances that silos stated, and find those that contradict each other."""

    def __init__(self, observe: Observer = lambda silo, finding: None) -> None:
        """Begin without any statement. ``observe`` gets each new edition."""
        self._observe = observe
        self._editions = defaultdict[str, OrderedDict[tuple[str, str], _Books]](OrderedDict)

    def contradiction(self, silo: str, query: Query, hits: Hits) -> str:
        """Return how the hits of a silo contradict former ones; empty if they do not, and they are then remembered.

        Hits of a silo that releases only ranks state no distances of single items.
        """
        if "ranks" in (hits.alterations or ()):
            return ""
        books = self._books(silo, (query.model_digest, hits.edition))
        page = [(books[modality], name, stated) for modality, name, stated in _statements(query, hits)]
        for (first, last), name, stated in page:
            for known in (first.get(name, stated), last.get(name, stated)):
                if known != stated and not are_possible(known, stated, query.bits):
                    return f'The distances that it stated of "{name}" to two queries contradict each other.'
        for (first, last), name, stated in page:
            first.setdefault(name, stated)
            last[name] = stated
        for book in books.values():
            if len(book[1]) >= MOST_REMEMBERED:
                book[:] = [book[1], {}]
        return ""

    def _books(self, silo: str, edition: tuple[str, str]) -> _Books:
        """Return what is remembered of an edition."""
        editions = self._editions[silo]
        if edition not in editions:
            self._observe(silo, "new_edition")
            editions[edition] = {modality: [{}, {}] for modality in MODALITIES}
            if len(editions) > MOST_EDITIONS:
                editions.popitem(last=False)
        editions.move_to_end(edition)
        return editions[edition]


def _statements(query: Query, hits: Hits) -> Iterator[tuple[Modality, str, _Stated]]:
    """Yield what hits state of the codes of items, each with its modality and the id of the item."""
    code, step = int.from_bytes(query.words.tobytes(), "little"), hits.step_bits
    wanted, most = modalities_of(query.target), min(query.most_hits, MOST_REMEMBERED)
    for name, distance, found in zip(hits.ids[:most], hits.distances, hits.found, strict=False):
        if distance is not None and len(name) <= LONGEST_ID:
            stated = code, distance // step * step, step - 1
            for modality in found or wanted:
                yield modality, name, stated


def are_possible(first: _Stated, second: _Stated, bits: int) -> bool:
    """Return whether one code of some bits can have the stated distances to both queries.

    Example:
        >>> are_possible((0b00, 1, 0), (0b11, 1, 0), 2), are_possible((0b00, 0, 0), (0b11, 0, 0), 2)
        (True, False)
    """
    (p, low_p, rounded_p), (q, low_q, rounded_q) = first, second
    apart, low = (p ^ q).bit_count(), low_p + low_q
    if low_p - low_q - rounded_q > apart or low_q - low_p - rounded_p > apart or low > 2 * bits - apart:
        return False
    if low + rounded_p + rounded_q < apart:
        return False
    return rounded_p > 0 or rounded_q > 0 or (low + apart) % 2 == 0


class Allowance:
    """Limit the share of the hub's time that the answers of each silo take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the full burst for each silo. ``clock`` returns a time in seconds."""
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def left(self, silo: str) -> float:
        """Return for how many seconds further answers of a silo may be read. Below 0, none may."""
        seconds, moment = self._left.get(silo, (BURST_SECONDS, 0.0))
        return min(BURST_SECONDS, seconds + READING_SHARE * (self._clock() - moment))

    def spend(self, silo: str, seconds: float) -> None:
        """Note the time that an answer of a silo took."""
        self._left[silo] = self.left(silo) - seconds, self._clock()


def has_too_many_values(content: bytes, hits: int | None) -> bool:
    """Return whether an answer in JSON has more values than it needs for some hits; None for a summary.

    Each value takes up to microseconds to read, and the characters of a string hardly any. So only what separates values is
    counted, outside of strings. More quotes than the permitted values can have show the same, before they are split.
    """
    most = SUMMARY_VALUES if hits is None else LEAST_VALUES + VALUES_PER_HIT * hits
    if len(content) <= most or _separators(content) <= most:
        return False
    if content.count(b'"') - content.count(b'\\"') > 4 * most:
        return True
    outside = content.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    return _separators(b"".join(outside)) > most


def _separators(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")
