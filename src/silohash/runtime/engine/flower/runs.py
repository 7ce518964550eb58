"""Train a run in a federation that Flower connects. The rounds run in this process, in the kit that starts runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from silohash.config.load import ResolvedConfig
from silohash.runtime.engine.flower.engine import FlowerEngine
from silohash.runtime.engine.flower.kits import Connection
from silohash.runtime.engine.flower.letters import connected_silos, job
from silohash.runtime.engine.port import Limits
from silohash.runtime.events import Observer, read_rounds
from silohash.runtime.run import Run
from silohash.runtime.sites.attempts import LostJobError, missed, train_in_jobs, wait_for
from silohash.runtime.sites.settings import check_run_name
from silohash.runtime.sites.training import RUNS, copy_run, train_at_sites
from silohash.types import Notify, UserError


def train_in_federation(
    kit: Path,
    resolved: ResolvedConfig,
    folder: Path,
    silos: Sequence[str],
    *,
    limits: Limits,
    observers: Sequence[Observer] = (),
    notify: Notify = lambda text: None,
) -> None:
    """Train a run in a federation, and copy it into a new folder.

    If the server is lost, a new job continues after the last round, as soon as the silos are connected again. The arguments
    are those of `silohash.runtime.engine.flare.jobs.train_in_federation`.

    Raises:
        UserError: if no silo is connected, the server cannot be reached, or the run fails.
    """
    check_run_name(folder.name)
    connection, own = Connection.of(kit), kit / RUNS / folder.name
    rounds = Run(own, resolved).rounds_path
    chosen = list(silos) or connected_silos(connection)
    if not chosen:
        raise UserError("No silo is connected to the server. Start the silos: silohash silo KIT")

    def train() -> None:
        """Train the run in a new job."""
        with job(connection) as letters:
            engine = FlowerEngine(letters, folder.name)
            train_at_sites(resolved, own, engine, chosen, limits=limits, observers=observers, notify=notify)

    def wait() -> None:
        """Wait until enough silos are connected."""
        needed = limits.quorum if read_rounds(rounds) else limits.start or len(chosen)
        wait_for(lambda: _connected_now(connection), chosen, needed)

    train_in_jobs(train, lost=(LostJobError,), rounds=lambda: len(read_rounds(rounds)), wait=wait, notify=notify)
    for line in missed(read_rounds(rounds), {}):
        notify(line)
    copy_run(own, folder)


def _connected_now(connection: Connection) -> list[str]:
    """Return the names of the connected silos; none if the server cannot be reached."""
    with suppress(UserError):
        return connected_silos(connection)
    return []
