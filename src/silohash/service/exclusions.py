"""The silos that an administrator of a hub has excluded: a text file beside the file of the hub, with one name per line.

A running hub reads it again when it has changed, so that excluding a silo does not need a restart, and outlives one.
"""

from logging import WARNING

from silohash.base.errors import NotFound, UserError
from silohash.base.files import write_text
from silohash.search.policy import Approvals
from silohash.service.config import HubConfig
from silohash.service.logs import log_event


class Exclusions:
    """The excluded silos of a hub. A `UserError` says at first that their list cannot be read."""

    def __init__(self, config: HubConfig) -> None:
        self._config, self._listed = config, Approvals(config.excluded)
        self._names = self._listed.ids()

    def names(self) -> frozenset[str]:
        """Return the excluded silos. While the list cannot be read, they are those that were read last."""
        try:
            self._names = self._listed.ids()
        except UserError as error:
            log_event("the list of excluded silos cannot be read", level=WARNING, reason=str(error))
        return self._names

    def change(self, silo: str, *, excluded: bool) -> list[str]:
        """Exclude a silo or take it back, and return all excluded silos.

        Raises:
            NotFound: If the silo is not part of the federation.
            UserError: If the list cannot be read or written.
        """
        if silo not in self._config.silos:
            raise NotFound(f'There is no silo "{silo}". Choose from: {", ".join(sorted(self._config.silos))}.')
        names = sorted(self._listed.ids() | {silo} if excluded else self._listed.ids() - {silo})
        write_text(self._config.excluded, "".join(f"{name}\n" for name in names))
        return names
