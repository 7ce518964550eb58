"""The rounds of a run are followed through its jobs, and it is noticed when a new job must continue it."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from silohash.runtime.events import RoundRecord, SiloRecord
from silohash.runtime.sites.attempts import ATTEMPTS, LostJobError, missed
from silohash.types import UserError
from tests.runs import Records

pytest.importorskip("nvflare")

from nvflare.fuel.flare_api.api_spec import NoReply

from silohash.runtime.engine.flare import following
from silohash.runtime.engine.flare.controller import EARLIER, FAILED, NOTE, ROUND
from silohash.runtime.engine.flare.engine import NOT_IN_JOB, SILENT
from silohash.runtime.engine.flare.following import (
    Followed,
    connected_silos,
    follow,
    heartbeats,
    refusals_of,
)


def record(number: int, **rejected: str | None) -> RoundRecord:
    silos = [SiloRecord(name, 0, None, 0.0, reason) for name, reason in rejected.items()]
    return RoundRecord(number, 1.0, 0.5, {}, None, True, silos, 10, 10, warnings=[])


def line(number: int, **rejected: str | None) -> str:
    return f"2026-01-01 - RoundsController - INFO - {ROUND}{json.dumps(asdict(record(number, **rejected)))}\n"


class Session:
    """Plays back the states and logs of a job."""

    def __init__(self, *steps: tuple[str, str], connected: tuple[str, ...] = (), details: tuple[str, ...] = ()) -> None:
        self.steps, self.connected, self.details = list(steps), connected, details
        self.looks, self.seconds = 0, 100.0
        self.restarted_at: int | None = None

    def get_job_meta(self, job: str) -> dict[str, Any]:
        return {"status": self.steps[0][0], "job_deploy_detail": list(self.details)}

    def get_connected_client_list(self) -> list[SimpleNamespace]:
        self.seconds += 10.0
        return [
            SimpleNamespace(name=name, last_connect_time=self.seconds if name in self.connected else 100.0)
            for name in ("north", "south")
        ]

    def get_system_info(self) -> object:
        self.looks += 1
        started = 1.0 if self.restarted_at is None or self.looks <= self.restarted_at else 2.0
        return SimpleNamespace(server_info=SimpleNamespace(start_time=started))

    def get_job_logs(self, job: str) -> dict[str, dict[str, str]]:
        log = self.steps[0][1]
        self.steps = self.steps[1:] or self.steps
        return {"logs": {"server": log}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.0)


def test_rounds_are_passed_on_once() -> None:
    seen = Records()
    logs = ["", line(4), line(4) + line(5)[:-9], line(4) + line(5) + line(6)]
    steps = [*(("RUNNING", log) for log in logs[:3]), ("FINISHED:COMPLETED", logs[3])]
    follow(Session(*steps), "id", Followed([seen]))
    assert seen.records == [record(4), record(5), record(6)]


def test_rounds_that_nobody_had_read_when_their_job_ended_are_passed_on_by_the_next_one() -> None:
    seen = Records()
    followed = Followed([seen], away={"south"})
    earlier = [line(number, north=None, south=NOT_IN_JOB).replace(ROUND, EARLIER) for number in (0, 1)]
    steps = [("RUNNING", "".join(earlier)), ("FINISHED:COMPLETED", "".join(earlier) + line(2, north=None, south=None))]
    followed.read(line(0, north=None, south=NOT_IN_JOB))
    follow(Session(*steps, connected=("north", "south")), "id", followed)
    assert [record.round for record in seen.records] == [0, 1, 2]
    assert list(missed(followed.records, {})) == [
        f"The run is partial: south was absent from 2 of 3 rounds ({NOT_IN_JOB})."
    ]


def test_lines_for_whoever_started_the_run_are_passed_on_once() -> None:
    said: list[str] = []
    log = f"x - {NOTE}north has not stored its model.\n"
    follow(Session(("RUNNING", log), ("FINISHED:COMPLETED", log + log)), "id", Followed([], said.append))
    assert said == ["north has not stored its model."]


@pytest.mark.parametrize(
    ("status", "log", "reason"),
    [
        ("FINISHED:EXECUTION_EXCEPTION", f"x {FAILED}1 of 3 silos answered.\n", "^1 of 3 silos answered"),
        ("FINISHED:ABNORMAL", line(0), "FLARE ended the job"),
    ],
)
def test_failures_are_told(status: str, log: str, reason: str) -> None:
    seen = Records()
    with pytest.raises(UserError, match=reason):
        follow(Session((status, log)), "id", Followed([seen]))
    assert len(seen.records) == log.count(ROUND)


def test_job_that_flare_ends_is_lost_and_not_failed() -> None:
    log = f"x {FAILED}FLARE has ended the job. Start\n"
    with pytest.raises(LostJobError, match="EXECUTION_EXCEPTION"):
        follow(Session(("FINISHED:EXECUTION_EXCEPTION", log)), "id", Followed([]))


def test_job_that_is_running_for_ever_since_the_server_died_is_lost() -> None:
    stale = Session(("RUNNING", line(0)))
    stale.restarted_at = 3
    seen = Records()
    with pytest.raises(LostJobError, match="was started again"):
        follow(stale, "id", Followed([seen]))
    assert seen.records == [record(0)]


@pytest.mark.parametrize("reason", [NOT_IN_JOB, f"{SILENT} 2 times"])
def test_job_ends_when_a_silo_that_is_away_is_connected_again(reason: str) -> None:
    away = ("RUNNING", line(1, north=None, south=reason))
    followed = Followed([])
    with pytest.raises(LostJobError, match=r"^south can take part again\.$"):
        follow(Session(away, away, connected=("north", "south")), "id", followed)
    follow(Session(*[away] * 9, ("FINISHED:COMPLETED", ""), connected=("north",)), "id", Followed([]))


class Busy(Session):
    """A session with a server that leaves a number of questions unanswered."""

    unanswered = 3

    def get_job_logs(self, job: str) -> dict[str, dict[str, str]]:
        self.unanswered -= 1
        if self.unanswered >= 0:
            raise NoReply("no reply")
        return super().get_job_logs(job)


def test_server_that_is_busy_for_a_while_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Records()
    follow(Busy(("FINISHED:COMPLETED", line(0))), "id", Followed([seen]))
    assert seen.records == [record(0)]
    monkeypatch.setattr(following, "BUSY_SECONDS", -1.0)
    with pytest.raises(NoReply):
        follow(Busy(("FINISHED:COMPLETED", line(0))), "id", Followed([]))


def test_silo_that_is_late_once_stays_in_the_job() -> None:
    late = line(1, north=None, south="did not answer within 5 seconds")
    followed = Followed([])
    follow(Session(("RUNNING", late), ("FINISHED:COMPLETED", ""), connected=("north", "south")), "id", followed)
    assert followed.away == set()
    assert [silo.rejected for silo in followed.records[0].silos] == [None, "did not answer within 5 seconds"]


def test_silo_that_refuses_the_job_does_not_end_it_and_its_reason_is_told() -> None:
    details = ("server: OK", "north: OK", "south: Not authorized: submit_job")
    steps = [("RUNNING", line(0, north=None, south=NOT_IN_JOB)), ("FINISHED:COMPLETED", line(1, south=NOT_IN_JOB))]
    followed = Followed([])
    follow(Session(*steps, connected=("north", "south"), details=details), "id", followed)
    assert list(missed(followed.records, followed.refusals)) == [
        "The run is partial: south was absent from 2 of 2 rounds (it refuses the job: Not authorized: submit_job)."
    ]
    assert refusals_of({}) == {}


def test_silo_that_never_takes_part_is_taken_in_a_few_times_only() -> None:
    followed = Followed([])
    for number in range(ATTEMPTS):
        followed.begin()
        followed.read(line(number, south=NOT_IN_JOB))
        assert followed.returned({"south": 100.0}) == []
        assert followed.returned({"south": 100.0}) == []
        assert followed.returned({"south": 110.0}) == ["south"]
    followed.begin()
    followed.read(line(ATTEMPTS, south=NOT_IN_JOB))
    assert [followed.returned({"south": seconds}) for seconds in (120.0, 130.0)] == [[], []]
    followed.read(line(ATTEMPTS + 1, south=None) + line(ATTEMPTS + 2, south=NOT_IN_JOB))
    assert [followed.returned({"south": seconds}) for seconds in (140.0, 150.0)] == [[], ["south"]]


def test_silo_that_connects_for_the_first_time_is_taken_in() -> None:
    followed = Followed([])
    followed.read(line(0, south=NOT_IN_JOB))
    assert followed.returned({"north": 100.0}) == []
    assert followed.returned({"north": 110.0, "south": 105.0}) == ["south"]


def test_silos_in_alphabetical_order_without_those_of_which_nothing_is_heard() -> None:
    clients = [
        SimpleNamespace(name=name, last_connect_time=seconds)
        for name, seconds in (("b", 1000.0), ("a", 960.0), ("c", 950.0), ("d", None))
    ]
    opened = SimpleNamespace(get_connected_client_list=lambda: clients)
    assert connected_silos(opened) == ["a", "b"]
    assert heartbeats(opened) == {"a": 960.0, "b": 1000.0}
    clients.clear()
    assert connected_silos(opened) == []
