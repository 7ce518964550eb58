"""The interface between the API, the page and a federation. Implementations search a finished run, or silos over a bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from silohash.search.hits import Hits
from silohash.search.released import Item as Item
from silohash.search.released import NotFound as NotFound
from silohash.search.released import SiloStatus as SiloStatus
from silohash.search.requests import Code as Code
from silohash.search.requests import FederationStatus as FederationStatus
from silohash.search.requests import SearchOptions as SearchOptions
from silohash.search.requests import SearchRequest as SearchRequest
from silohash.search.requests import Unavailable as Unavailable
from silohash.types import Modality, UserError


class Backend(Protocol):
    """A federation that can be searched. Its methods can be called concurrently."""

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos.

        Silos that do not answer are listed in ``missing_silos`` with the reason.

        Raises:
            NotFound: if a silo in ``request.silos`` does not exist.
            UserError: if the request cannot be encoded.
        """
        ...

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item itself.

        Args:
            silo: name of the silo that holds the item.
            name: id of the item.
            options: the options of the search.
            by: modality whose code is searched for; by default that of the picture, if the item has one.

        Raises:
            NotFound: if there is no such silo or item, or the item does not have the code.
            Unavailable: if the silo does not answer.
        """
        ...

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item.

        Args:
            silo: name of the silo.
            name: id of the item.
            asker: name of the account or program that asks, for the limits and the audit log of the silo.

        Raises:
            NotFound: if there is no such silo or item.
            Unavailable: if the silo does not answer.
        """
        ...

    async def status(self) -> FederationStatus:
        """Return the state of the federation. A silo that does not answer is listed with the reason."""
        ...


def check_silos(wanted: Collection[str] | None, known: Sequence[str]) -> None:
    """Check that the silos of a filter exist.

    Args:
        wanted: names of silos; None for all.
        known: the names of all silos.

    Raises:
        NotFound: if one does not exist.
        UserError: if none is wanted.
    """
    for name in wanted or ():
        if name not in known:
            raise NotFound(f'There is no silo "{name}". Choose from: {", ".join(known)}.')
    if wanted is not None and not wanted:
        raise UserError(f"No silo is selected. Choose from: {', '.join(known)}.")


def without_item(hits: Hits, silo: str, name: str, *, offset: int, k: int) -> Hits:
    """Return a page of hits without one item.

    Args:
        hits: at least the nearest ``offset + k + 1`` hits, from the first.
        silo: name of the item's silo.
        name: id of the item.
        offset: number of remaining hits to skip.
        k: number of hits to keep.
    """
    others = [place for place, hit in enumerate(zip(hits.silos, hits.ids, strict=True)) if hit != (silo, name)]
    kept = hits.taken(others[offset : offset + k])
    left_out = Counter(hits.left_out)
    left_out.update(int(hits.places[place]) for place in others[offset + k :])
    last = kept.places[-1] if kept.places else -1
    return replace(kept, left_out={place: count for place, count in sorted(left_out.items()) if place <= last})
