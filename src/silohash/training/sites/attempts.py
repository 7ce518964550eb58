"""Continue a run whose engine loses its connections: one job after another, as long as rounds are finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from silohash.base.errors import JobFailed, TooFewSilos
from silohash.base.types import Notify
from silohash.run.events import RoundRecord

ATTEMPTS = 3
"""A run is given up if so many jobs in a row are lost before they finish a round."""

PATIENCE = 0.2
"""Share of the time to wait for silos after which a run continues without those that it does not need."""

POLL_SECONDS = 1.0


def train_in_jobs(
    job: Callable[[], None],
    *,
    lost: tuple[type[Exception], ...],
    rounds: Callable[[], int],
    wait: Callable[[], None],
    notify: Notify,
) -> None:
    """Train a run in a job, and in a new one whenever a job is lost.

    Args:
        job: Trains the run in a new job, after the rounds that are finished.
        lost: The errors with which a job is lost.
        rounds: Returns the number of finished rounds.
        wait: Waits until the silos are connected again.
        notify: Called with a line when a new job continues the run.

    Raises:
        UserError: If too many jobs in a row are lost without a round, or the run fails.
    """
    fruitless = 0
    while True:
        before = rounds()
        try:
            job()
            return
        except lost as error:
            fruitless = 0 if rounds() > before else fruitless + 1
            if fruitless == ATTEMPTS:
                raise JobFailed(
                    f"{ATTEMPTS} jobs in a row ended without a round ({error}). The logs in the kits have the reason."
                ) from error
            notify(f"The job has ended after {rounds()} rounds ({error}). A new one continues the run.")
        wait()


def wait_for(connected: Callable[[], Sequence[str]], silos: Sequence[str], needed: int, seconds: float = 300.0) -> None:
    """Wait until the silos are connected.

    If enough of them are, the others are waited for at most a fifth of the time.

    Args:
        connected: Returns the names of the connected silos; none if the server cannot be reached.
        silos: Names of the silos.
        needed: Number of silos without which the run cannot continue.
        seconds: How long to wait.

    Raises:
        UserError: If fewer silos than needed connect in time.
    """
    began = time.monotonic()
    while True:
        there = connected()
        missing = [name for name in silos if name not in there]
        waited, enough = time.monotonic() - began, len(silos) - len(missing) >= needed
        if not missing or (enough and waited > seconds * PATIENCE):
            return
        if waited > seconds:
            raise TooFewSilos(
                f"{', '.join(missing)} did not connect to the server within {seconds:g} seconds. Start them, then start "
                "the run again: it continues after its last round."
            )
        time.sleep(POLL_SECONDS)


def missed(records: Sequence[RoundRecord], reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence per silo that was absent from a round of a run.

    Args:
        records: The records of all rounds.
        reasons: Why a silo was absent, by its name, where it is better known than from the records.
    """
    absences: dict[str, tuple[int, str]] = {}
    for record in records:
        for silo in record.silos:
            if silo.rejected is not None:
                absences[silo.silo] = (absences.get(silo.silo, (0, ""))[0] + 1, silo.rejected)
    for name, (rounds, reason) in sorted(absences.items()):
        why = reasons.get(name, reason).removesuffix(".")
        yield f"The run is partial: {name} was absent from {rounds} of {len(records)} rounds ({why})."
