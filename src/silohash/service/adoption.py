"""The change of a hub to the model of a new run: as soon as the silos have it, all queries are encoded with it.

Each query is answered by one backend, and so with the model of one run. The two are never mixed in an answer. The change is
recorded in the folder of the new run, so that it outlives the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from logging import ERROR, WARNING
from typing import TYPE_CHECKING

from silohash.base.errors import NotSupported, UserError
from silohash.base.files import write_json
from silohash.base.types import Modality
from silohash.run.folder import Run
from silohash.search.hits import Hits
from silohash.service.backend import FederationStatus, Item, SearchOptions, SearchRequest
from silohash.service.hub import HubBackend
from silohash.service.logs import log_event

if TYPE_CHECKING:
    from silohash.service.config import HubConfig

ADOPTED = "adopted.json"
"""Name of the file in the folder of a new run which states that the hub uses it."""

LOOK_SECONDS = 5.0
"""Pause between two looks whether the silos have the new model."""


class AdoptingBackend:
    """Search with the model of one run, and later with that of the next. See `silohash.service.backend.Backend`.

    Attributes:
        current: The backend that answers.
        following: The backend of the next run; None if there is none, or it answers already.
    """

    def __init__(self, config: HubConfig, make: Callable[[Run], HubBackend]) -> None:
        """Open the run that a config names, or the next one if it was adopted before.

        Args:
            config: The file of the hub.
            make: Makes the backend of a run.

        Raises:
            UserError: If a folder does not hold a run.
        """
        self._config, self._make = config, make
        self.following = _next_backend(config, make)
        adopted = config.next_run if self.following is None else None
        self.current = make(Run.open(adopted or config.run))

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos. See `Backend.search`."""
        return await self.current.search(request)

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item. See `Backend.similar`."""
        return await self.current.similar(silo, name, options, by)

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item. See `Backend.item`."""
        return await self.current.item(silo, name, asker=asker)

    async def status(self) -> FederationStatus:
        """Return the state of the federation. See `Backend.status`."""
        return await self.current.status()

    def warm_up(self) -> None:
        """Load the model, see `HubBackend.warm_up`."""
        self.current.warm_up()

    def close(self) -> None:
        """Close both backends."""
        self.current.close()
        if self.following is not None:
            self.following.close()

    async def adopt(self, now: datetime | None = None) -> bool:
        """Search with the next run from now on, if enough silos have its model or its time has come.

        Returns:
            Whether the next run is used.

        Raises:
            UserError: If its model cannot be read, or the change cannot be recorded.
        """
        following, config = self.following, self._config
        if following is None or config.next_run is None:
            return following is None
        having = await following.silos_with_model()
        lacking = sorted(silo for silo, has in having.items() if not has)
        due = config.next_at is not None and (now or datetime.now(UTC)) >= config.next_at
        if len(having) - len(lacking) < config.next_share * len(having) and not due:
            return False
        await asyncio.to_thread(following.warm_up)
        await following.status()
        await asyncio.to_thread(write_json, config.next_run / ADOPTED, {"time": datetime.now(UTC).isoformat()})
        former, self.current, self.following = self.current, following, None
        log_event("the new model is used", run=str(config.next_run), silos_without_it=lacking)
        await asyncio.sleep(config.deadline_seconds)  # the former backend may still encode queries
        former.close()
        return True

    async def keep_looking(self) -> None:
        """Look again and again, until the task is canceled."""
        while True:
            try:
                await self.adopt()
            except UserError as error:
                log_event("the new model cannot be used", level=WARNING, reason=str(error))
            except Exception as error:  # the next look may succeed
                log_event("looking for the new model failed", level=ERROR, reason=f"{type(error).__name__}: {error}")
            await asyncio.sleep(LOOK_SECONDS)

    def reload(self, read: Callable[[], HubConfig]) -> None:
        """Read the file of the hub again, and look for the next run that it names. Other changes need a restart."""
        try:
            config, awaited = read(), self._config.next_run
            if self.following is None:
                self.following = _next_backend(config, self._make)
            elif config.next_run != awaited:
                raise NotSupported(
                    f"next_run was changed while the hub waits for the model of {awaited}. Start the hub again to use "
                    "another run."
                )
            self._config = config
            log_event("the config was read again", next_run=str(config.next_run or ""))
        except UserError as error:
            log_event("the config cannot be read again", level=WARNING, reason=str(error))


def _next_backend(config: HubConfig, make: Callable[[Run], HubBackend]) -> HubBackend | None:
    """Return the backend of the next run; None if there is none, or the hub has adopted it."""
    if config.next_run is None:
        return None
    run = Run.open(config.next_run)
    return None if (config.next_run / ADOPTED).exists() else make(run)
