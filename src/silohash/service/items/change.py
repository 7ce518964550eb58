"""The change of a silo process to the model of a new run, while it answers.

Every process of the silo opens the new index when it is finished, and closes the old one when nobody has searched it for
some time. The process that keeps the index builds the new one, and removes the old one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from logging import ERROR, WARNING
from typing import TYPE_CHECKING

from silohash.base.memory import return_unused
from silohash.base.types import UserError
from silohash.run.folder import Run
from silohash.search.policy import Policy
from silohash.search.released import silo_status
from silohash.service.items.successor import Successor
from silohash.service.logs import log_event
from silohash.service.models import SiloModels, open_silo_node

if TYPE_CHECKING:
    from silohash.service.config import SiloConfig
    from silohash.service.items.keeper import Keeper

LOOK_SECONDS = 1.0
SECONDS_PER_HOUR = 3600.0


class ModelChange:
    """Change a process of a silo to a new model.

    Attributes:
        successor: Builds the new index; None if there is no new run, or the change is over.
    """

    def __init__(
        self,
        config: SiloConfig,
        models: SiloModels,
        keeper: Keeper | None,
        keep: Callable[[SiloConfig], Keeper | None],
        executor: Executor,
    ) -> None:
        """Prepare the change, and begin it if the config names a new run that is not indexed yet.

        Args:
            config: The file of the silo.
            models: The nodes that answer.
            keeper: Keeps the index of the silo; None if nothing changed it so far.
            keep: Begins to keep the index.
            executor: Runs the answers, one at a time.

        Raises:
            UserError: If the new run does not have a model.
        """
        self._models, self._keeper, self._keep, self._executor = models, keeper, keep, executor
        self._policy = models.nodes[0].policy
        self._config = config
        self._looking = threading.Lock()
        self.successor: Successor | None = None
        self.begin(config)

    def begin(self, config: SiloConfig) -> None:
        """Begin to change to the new run that a config names, unless the change to it is under way.

        Raises:
            UserError: If the folder does not hold a trained run, or the change to another run is under way.
        """
        awaited = self._config.next_run
        if self.successor is not None and config.next_run != awaited:
            raise UserError(
                f"next_run was changed while the silo changes to the model of {awaited}. Start the silo again to use "
                "another run."
            )
        self._config = config
        if config.next_run is None or self.successor is not None:
            return
        successor = successor_of(config, self._policy)
        if successor.is_searched_alone:
            return
        if self._keeper is None:
            self._keeper = self._keep(config)
        self.successor = successor
        self._models.progress = successor.progress
        if self._keeper is not None:
            self._keeper.follow(successor)

    def look(self) -> None:
        """Open the new index if it is finished, and close the old one if nobody needs it.

        Raises:
            UserError: If the new index cannot be opened.
        """
        successor = self.successor
        if successor is None:
            return
        with self._looking:
            if len(self._models.nodes) == 1 and successor.finished:
                node = open_silo_node(successor.new, successor.silo, self._policy)
                silo_status(node)
                self._models.add(node)
                log_event("answering with the new model, too", silo=successor.silo, model=node.model_digest)
            unused = self._models.unused_seconds()
            if unused is not None and unused >= self._config.keep_old_hours * SECONDS_PER_HOUR:
                oldest = self._models.drop_oldest()
                time.sleep(LOOK_SECONDS)  # a query may still be answered from it
                self._executor.submit(oldest.close).result()
                if self._keeper is not None:
                    self._keeper.drop_old()
                return_unused()
                self.successor = None
                log_event("answering with the new model only", silo=successor.silo)

    async def keep_looking(self) -> None:
        """Look again and again, until the task is canceled."""
        while True:
            await self._logged(self.look)
            await asyncio.sleep(LOOK_SECONDS)

    async def reload(self, read: Callable[[], SiloConfig]) -> None:
        """Read the file of the silo again, and begin to change to the new run that it names.

        Other changes of the file need a restart.
        """

        def begin() -> None:
            """Use the file as it is now."""
            self.begin(read())
            log_event("the config was read again", next_run=str(self._config.next_run or ""))

        await self._logged(begin, "the config cannot be read again")

    async def _logged(
        self, work: Callable[[], None], refused: str = "the change to the new model does not go on"
    ) -> None:
        """Do some work in a thread, and log the error with which it ends, a `UserError` as the event ``refused``."""
        try:
            await asyncio.to_thread(work)
        except UserError as error:
            log_event(refused, level=WARNING, reason=str(error))
        except Exception as error:  # the process answers with the old model
            log_event("the change to the new model failed", level=ERROR, reason=f"{type(error).__name__}: {error}")


def successor_of(config: SiloConfig, policy: Policy) -> Successor:
    """Return what builds the index of the new run that a config names.

    Raises:
        UserError: If the config does not name one, or its folder does not hold a trained run.
    """
    if config.next_run is None:
        raise UserError("The file of the silo does not name a new run. Set next_run.")
    return Successor(
        Run.open(config.run),
        Run.open(config.next_run),
        config.silo,
        folder=config.items_folder,
        fields=policy.fields,
        archive=config.archive,
    )
