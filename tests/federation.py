"""A training federation that FLARE connects, whose members run as processes of this machine, with mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from silohash.runtime.engine.flare.jobs import connected_silos, session
from silohash.runtime.sites.kits import SERVER
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

    def connected(self, names: Sequence[str] | None = None) -> bool:
        """Tells whether exactly these silos are connected; by default all."""
        try:
            with session(self.leader, 5.0) as opened:
                return connected_silos(opened) == sorted(self.names if names is None else names)
        except Exception:
            return False


@contextmanager
def running(root: Path, archives: Mapping[str, Path]) -> Iterator[Federation]:
    """Starts a server and one silo per archive, waits until all are connected, and stops them afterwards."""
    made = Federation.made(root, archives, flower=False)
    try:
        for name in (SERVER, *made.names):
            made.start(name)
        until(made.connected)
        yield made
    finally:
        made.stop()
