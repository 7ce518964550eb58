"""The interface between the API, the page and a federation. Implementations search a finished run, or silos over a bus."""

from __future__ import annotations

from typing import Protocol

from silohash.base.types import Modality
from silohash.search.hits import Hits
from silohash.search.hits import SearchOptions as SearchOptions
from silohash.search.released import Code as Code
from silohash.search.released import Item as Item
from silohash.search.released import SiloStatus as SiloStatus
from silohash.search.requests import FederationStatus as FederationStatus
from silohash.search.requests import SearchRequest as SearchRequest
from silohash.search.requests import Vector as Vector


class Backend(Protocol):
    """A federation that can be searched, see `silohash.search.federation.Federation`. Its methods can run concurrently."""

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos."""
        ...

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item itself."""
        ...

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item."""
        ...

    async def status(self) -> FederationStatus:
        """Return the state of the federation. A silo that does not answer is listed with the reason."""
        ...
