"""A training federation that FLARE connects, whose members run as processes of this machine, with mutual TLS."""

from __future__ import annotations

from collections.abc import Mapping

from silohash.runtime.engine.flare.jobs import connected_silos, session
from tests.members import Members, until

REGISTERED = "Successfully registered client"


class Federation(Members):
    """A federation that FLARE connects."""

    def restart(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Stops a silo, starts it again, and waits until it has connected. The server lists it all the time."""
        log = self.kits / name / "log.txt"
        before = log.read_text().count(REGISTERED)
        self.stop(name)
        self.start(name, environment)
        until(lambda: log.read_text().count(REGISTERED) > before)

    def listed(self) -> list[str]:
        try:
            with session(self.leader, 5.0) as opened:
                return connected_silos(opened)
        except Exception:
            return []
