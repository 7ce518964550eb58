"""Jobs that are lost: new ones continue a run, as long as rounds are finished and silos come back."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from silohash.base.errors import JobLost, UserError
from silohash.run.events import RoundRecord, SiloRecord
from silohash.training.sites import attempts
from silohash.training.sites.attempts import ATTEMPTS, missed, train_in_jobs, wait_for


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "POLL_SECONDS", 0.0)


def trained(plan: Iterator[int | None]) -> tuple[int, int, list[str]]:
    """Trains a run whose jobs finish so many rounds each, and are lost unless None follows. Returns rounds and waits."""
    done, waits, said = 0, 0, []

    def job() -> None:
        nonlocal done
        rounds = next(plan)
        if rounds is None:
            return
        done += rounds
        raise JobLost("gone")

    def wait() -> None:
        nonlocal waits
        waits += 1

    train_in_jobs(job, lost=(JobLost,), rounds=lambda: done, wait=wait, notify=said.append)
    return done, waits, said


def test_new_jobs_continue_a_run_until_one_is_completed() -> None:
    done, waits, said = trained(iter([2, 0, 1, 0, 0, 1, None]))
    assert (done, waits) == (4, 6)
    assert said[0] == "The job has ended after 2 rounds (gone). A new one continues the run."
    assert len(said) == 6


def test_run_without_progress_is_given_up() -> None:
    with pytest.raises(UserError, match=rf"^{ATTEMPTS} jobs in a row ended without a round \(gone\)"):
        trained(iter([1, *[0] * ATTEMPTS, None]))


def test_other_errors_end_a_run() -> None:
    def job() -> None:
        raise UserError("wrong")

    with pytest.raises(UserError, match=r"^wrong$"):
        train_in_jobs(job, lost=(JobLost,), rounds=lambda: 0, wait=lambda: None, notify=lambda text: None)


def test_silos_that_do_not_come_back_are_named() -> None:
    wait_for(lambda: ["north"], ["north"], 1)
    with pytest.raises(UserError, match=r"^south did not connect to the server within 0 seconds"):
        wait_for(lambda: ["north"], ["north", "south"], 2, 0.0)


def test_silos_that_are_not_needed_are_not_waited_for_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    clock = SimpleNamespace(monotonic=lambda: float(next(times)), sleep=lambda seconds: None)
    monkeypatch.setattr(attempts, "time", clock)  # nothing else in this process may ask it for the time
    wait_for(lambda: ["north"], ["north", "south"], 1, 30.0)
    assert next(times) == 8


def record(number: int, **rejected: str | None) -> RoundRecord:
    silos = [SiloRecord(name, 3, 0.5, 0.1, reason) for name, reason in rejected.items()]
    return RoundRecord(number, 1.0, 0.5, {}, None, True, silos, 10, 10, warnings=[])


def test_run_without_some_silos_is_partial() -> None:
    records = [record(0, north=None, south="late"), record(1, north=None, south="gone."), record(2, north="NaN")]
    assert list(missed(records, {"north": "it refuses the job"})) == [
        "The run is partial: north was absent from 1 of 3 rounds (it refuses the job).",
        "The run is partial: south was absent from 2 of 3 rounds (gone).",
    ]
    assert list(missed([record(0, north=None)], {})) == []
