"""The backend over a finished run: all silos are in this process, and are searched in threads beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from silohash.base.errors import UserError
from silohash.base.types import Modality
from silohash.search.bus import now
from silohash.search.hits import Hits, SearchOptions
from silohash.search.released import Item
from silohash.search.requests import FederationStatus, SearchRequest
from silohash.search.silos import RunSearch, open_nodes

if TYPE_CHECKING:
    from silohash.run.folder import Run
    from silohash.search.node import SiloNode


class LocalBackend:
    """Search the silos of a finished run in threads of this process. See `silohash.service.backend.Backend`.

    Attributes:
        silos: The search that the threads run.
    """

    def __init__(self, run: Run, nodes: Sequence[SiloNode]) -> None:
        """Search the given silos with the model of a run."""
        self.silos = RunSearch(run, nodes)

    @classmethod
    def open(cls, folder: Path) -> LocalBackend:
        """Open the indexes of a run.

        Raises:
            UserError: If the folder does not hold a run, or the run is not indexed.
        """
        from silohash.run.folder import Run

        run = Run.open(folder)
        backend = cls(run, open_nodes(run.index_folder, prepared=True))
        backend.warm_up()
        return backend

    def warm_up(self) -> None:
        """Search once with a text and once with a picture, so that the models are loaded before the first request."""
        from PIL import Image

        captions = (caption for node in self.silos.nodes.values() for caption in node.captions(1))
        options = SearchOptions(k=1, previews=False)
        # A model may encode only texts or only pictures; a search then says so.
        with suppress(UserError):
            now(self.silos.search(SearchRequest.of(options, picture=Image.new("L", (32, 32), "white"))))
        with suppress(UserError):
            now(self.silos.search(SearchRequest.of(options, text=next(captions, "a"))))

    def close(self) -> None:
        """Close the indexes."""
        for node in self.silos.nodes.values():
            node.close()

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos. See `Federation.search`."""
        return await asyncio.to_thread(now, self.silos.search(request))

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item. See `Federation.similar`."""
        return await asyncio.to_thread(now, self.silos.similar(silo, name, options, by))

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item. See `Federation.item`."""
        return await asyncio.to_thread(now, self.silos.item(silo, name, asker=asker))

    async def status(self) -> FederationStatus:
        """Return the state of the federation. See `Federation.status`."""
        return await asyncio.to_thread(now, self.silos.status())
