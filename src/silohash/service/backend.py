"""The interface between the API, the page and a federation. Implementations search a finished run, or silos over a bus.

Over a bus, the words or regions of a query leave the hub only for a silo that has stated within the last `KNOWN_SECONDS`
that its policy accepts them and that it has the model of the query (`Acceptance`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from silohash.base.types import Modality, UserError
from silohash.search.hits import Hits
from silohash.search.node import CONTENT_REFUSED
from silohash.search.released import Item as Item
from silohash.search.released import NotFound as NotFound
from silohash.search.released import SiloStatus as SiloStatus
from silohash.search.requests import Code as Code
from silohash.search.requests import FederationStatus as FederationStatus
from silohash.search.requests import SearchOptions as SearchOptions
from silohash.search.requests import SearchRequest as SearchRequest
from silohash.search.requests import Unavailable as Unavailable
from silohash.search.requests import Vector as Vector

KNOWN_SECONDS = 30.0
"""Time for which a statement of a silo is relied on."""

ACCEPTANCE_UNKNOWN = (
    "It compared codes only, because the hub does not know whether its policy accepts the words and regions of queries."
)


class Backend(Protocol):
    """A federation that can be searched. Its methods can be called concurrently."""

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos.

        Silos that do not answer are listed in ``missing_silos`` with the reason.

        Raises:
            NotFound: If a silo in ``request.silos`` does not exist.
            UserError: If the request cannot be encoded.
        """
        ...

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item itself.

        Args:
            silo: Name of the silo that holds the item.
            name: Id of the item.
            options: The options of the search.
            by: Modality whose code is searched for; by default that of the picture, if the item has one.

        Raises:
            NotFound: If there is no such silo or item, or the item does not have the code.
            Unavailable: If the silo does not answer.
        """
        ...

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item.

        Args:
            silo: Name of the silo.
            name: Id of the item.
            asker: Name of the account or program that asks, for the limits and the audit log of the silo.

        Raises:
            NotFound: If there is no such silo or item.
            Unavailable: If the silo does not answer.
        """
        ...

    async def status(self) -> FederationStatus:
        """Return the state of the federation. A silo that does not answer is listed with the reason."""
        ...


def check_silos(wanted: Collection[str] | None, known: Sequence[str]) -> None:
    """Check that the silos of a filter exist.

    Args:
        wanted: Names of silos; None for all.
        known: The names of all silos.

    Raises:
        NotFound: If one does not exist.
        UserError: If none is wanted.
    """
    for name in wanted or ():
        if name not in known:
            raise NotFound(f'There is no silo "{name}". Choose from: {", ".join(known)}.')
    if wanted is not None and not wanted:
        raise UserError(f"No silo is selected. Choose from: {', '.join(known)}.")


def without_item(hits: Hits, silo: str, name: str, *, offset: int, k: int) -> Hits:
    """Return a page of hits without one item.

    Args:
        hits: At least the nearest ``offset + k + 1`` hits, from the first.
        silo: Name of the item's silo.
        name: Id of the item.
        offset: Number of remaining hits to skip.
        k: Number of hits to keep.
    """
    others = [place for place, hit in enumerate(zip(hits.silos, hits.ids, strict=True)) if hit != (silo, name)]
    kept = hits.taken(others[offset : offset + k])
    left_out = Counter(hits.left_out)
    left_out.update(int(hits.places[place]) for place in others[offset + k :])
    last = kept.places[-1] if kept.places else -1
    return replace(kept, left_out={place: count for place, count in sorted(left_out.items()) if place <= last})


@dataclass(frozen=True)
class _Statement:
    """What a silo stated.

    Attributes:
        moment: When.
        known: Whether it answered.
        models: Digests of the models with which it scores items for others.
    """

    moment: float
    known: bool
    models: frozenset[str]


class Acceptance:
    """Remember which silos accept the words and regions of queries, as they state in their summaries."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any statement. ``clock`` returns a time in seconds."""
        self._clock = clock
        self._statements: dict[str, _Statement] = {}

    def note(self, status: SiloStatus) -> None:
        """Remember a silo's summary. A silo without one is asked again when it has answered a query, or after a while."""
        models = frozenset({status.model_digest, *status.models} if status.accepts_content else ())
        self._statements[status.name] = _Statement(self._clock(), bool(status.model_digest), models)

    def answered(self, silo: str) -> None:
        """Note that a silo answered a query, so that it is asked for a summary again if it did not give one before."""
        statement = self._statements.get(silo)
        if statement is not None and not statement.known:
            del self._statements[silo]

    def unknown(self, silos: Sequence[str]) -> list[str]:
        """Return the silos whose summaries are missing or too old."""
        return [silo for silo in silos if self._statement(silo) is None]

    def refusal(self, silo: str, model_digest: str) -> str:
        """Return why a silo is not sent the words or regions of a query; empty if it accepts them.

        Args:
            silo: Name of the silo.
            model_digest: Digest of the model of the query.
        """
        statement = self._statement(silo)
        if statement is None or not statement.known:
            return ACCEPTANCE_UNKNOWN
        return "" if model_digest in statement.models else CONTENT_REFUSED

    def _statement(self, silo: str) -> _Statement | None:
        """Return what a silo stated, unless it is too old."""
        found = self._statements.get(silo)
        return found if found is not None and self._clock() - found.moment <= KNOWN_SECONDS else None
