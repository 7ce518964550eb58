"""Jobs: what they hold, that new ones continue a run, and how their rounds are followed."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from silohash.base.errors import JobFailed, JobLost, NotAKit, ServerUnreachable, TooFewSilos, UnknownName, UserError
from silohash.base.files import write_json
from silohash.run.config.load import load_resolved
from silohash.run.events import RoundRecord, SiloRecord
from silohash.training.engines.port import Limits
from silohash.training.sites.kits import SILOS_FILE
from tests.runs import Records, tiny

pytest.importorskip("nvflare")

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import NoReply

from silohash.training.engines.flare import jobs
from silohash.training.engines.flare.controller import EARLIER, FAILED, NOTE, ROUND, RoundsController
from silohash.training.engines.flare.engine import NOT_IN_JOB, SILENT
from silohash.training.engines.flare.jobs import (
    ATTEMPTS,
    Followed,
    connected_silos,
    follow,
    heartbeats,
    refusals_of,
    session,
    set_admission,
    train_in_federation,
    wait_for_silos,
    write_job,
)


def record(number: int, **rejected: str | None) -> RoundRecord:
    silos = [SiloRecord(name, 0, None, 0.0, reason) for name, reason in rejected.items()]
    return RoundRecord(number, 1.0, 0.5, {}, None, True, silos, 10, 10, warnings=[])


def line(number: int, **rejected: str | None) -> str:
    return f"2026-01-01 - RoundsController - INFO - {ROUND}{json.dumps(asdict(record(number, **rejected)))}\n"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)


def test_a_job_holds_settings_only_and_all_arguments_of_the_controller(tmp_path: Path) -> None:
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    write_job(tmp_path / "job", "first", resolved, ["north", "south"], Limits(30.0, 2, 1))
    files = sorted(
        path.relative_to(tmp_path / "job").as_posix() for path in (tmp_path / "job").rglob("*") if path.is_file()
    )
    assert files == ["app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json"]
    server = json.loads((tmp_path / "job/app/config/config_fed_server.json").read_text())
    (workflow,) = server["workflows"]
    made = RoundsController(**workflow["args"])
    assert (made.run, made.silos, made.limits) == ("first", ["north", "south"], Limits(30.0, 2, 1))
    assert made.config == resolved.config.to_toml()
    assert server["server"]["task_request_interval"] == 0.2
    client = json.loads((tmp_path / "job/app/config/config_fed_client.json").read_text())
    assert client["max_runner_sync_timeout"] == 600.0
    assert json.loads((tmp_path / "job/meta.json").read_text())["min_clients"] == 2


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Jobs that are lost after the rounds that each of them lists; the last one is completed."""
    opened = SimpleNamespace(get_connected_client_list=lambda: [SimpleNamespace(name="north", last_connect_time=100.0)])
    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    plan: list[list[int]] = []

    def once(kit: Path, beside: Path, folder: Path, followed: Followed) -> None:
        assert (beside / "job" / "meta.json").exists()
        for number in plan.pop(0):
            late = {"south": "did not answer within 5 seconds."} if number == 3 else {}
            followed.read(line(number, **late))
        if plan:
            raise ConnectionError("gone")

    monkeypatch.setattr(jobs, "_train_once", once)
    return plan


def test_new_jobs_continue_a_run(tmp_path: Path, lost: list[list[int]]) -> None:
    lost += [[0, 1], [], [2], [], [], [2, 3]]
    seen, said = Records(), []
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    train_in_federation(tmp_path, resolved, tmp_path / "a", [], limits=Limits(), observers=[seen], notify=said.append)
    assert [one.round for one in seen.records] == [0, 1, 2, 3]
    assert seen.finished
    assert said[0] == "The job has ended after 2 rounds (gone). A new one continues the run."
    assert len(said) == 6
    assert said[-1] == "The run is partial: south had no part in 1 of 4 rounds (did not answer within 5 seconds)."


def test_run_without_progress_is_given_up(tmp_path: Path, lost: list[list[int]]) -> None:
    lost += [[] for _ in range(ATTEMPTS + 1)]
    seen = Records()
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    with pytest.raises(JobFailed, match=r"3.*gone"):
        train_in_federation(tmp_path, resolved, tmp_path / "a", ["north"], limits=Limits(), observers=[seen])
    assert seen.finished


def test_other_errors_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise UserError("wrong")

    monkeypatch.setattr(jobs, "_train_once", fail)
    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(None))
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    with pytest.raises(UserError, match=r"^wrong$"):
        train_in_federation(tmp_path, resolved, tmp_path / "a", ["north"], limits=Limits())


def test_silos_that_do_not_come_back_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_connected_now", lambda kit: ["north"])
    wait_for_silos(tmp_path, ["north"], 1)
    monkeypatch.setattr(jobs, "CONNECT_SECONDS", 0.0)
    with pytest.raises(TooFewSilos, match=r"south.*0"):
        wait_for_silos(tmp_path, ["north", "south"], 2)


def test_silos_that_are_not_needed_are_not_waited_for_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(100))
    clock = SimpleNamespace(monotonic=lambda: float(next(times)), sleep=lambda seconds: None)
    monkeypatch.setattr(jobs, "_connected_now", lambda kit: ["north"])
    monkeypatch.setattr(jobs, "CONNECT_SECONDS", 30.0)
    monkeypatch.setattr(jobs, "time", clock)  # nothing else in this process may ask it for the time
    wait_for_silos(tmp_path, ["north", "south"], 1)
    assert next(times) == 8


def test_run_without_some_silos_is_partial() -> None:
    records = [record(0, north=None, south="late"), record(1, north=None, south="gone."), record(2, north="NaN")]
    assert list(Followed([], records=records, refusals={"north": "it refuses the job"}).absences()) == [
        "The run is partial: north had no part in 1 of 3 rounds (it refuses the job).",
        "The run is partial: south had no part in 2 of 3 rounds (gone).",
    ]
    assert list(Followed([], records=[record(0, north=None)]).absences()) == []


def test_job_that_is_given_up_has_ended_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, calls = ["RUNNING", "RUNNING", "FINISHED:ABORTED"], []
    opened = SimpleNamespace(
        submit_job=lambda folder: "id",
        abort_job=calls.append,
        get_job_meta=lambda job: {"status": states.pop(0)},
    )

    def lose(*arguments: object) -> None:
        raise JobLost("south can take part again.")

    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    monkeypatch.setattr(jobs, "follow", lose)
    with pytest.raises(JobLost):
        jobs._train_once(tmp_path, tmp_path, tmp_path, Followed([]))
    assert calls == ["id"]
    assert states == []


def test_folder_that_is_not_a_kit(tmp_path: Path) -> None:
    with pytest.raises(NotAKit, match=r"nothing.*museums/leader"), session(tmp_path / "nothing"):
        pass


def test_server_that_is_too_busy_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def busy(*arguments: object, **options: object) -> None:
        print("Connecting to FLARE ...")
        logging.getLogger("nvflare.cell").warning("no reply")
        raise FLCommunicationError("failed to challenge server: timeout")

    monkeypatch.setattr(jobs, "new_secure_session", busy)
    (tmp_path / "startup").mkdir()
    with (
        pytest.raises(NotAKit),
        session(tmp_path),
    ):
        pass
    (tmp_path / "startup" / "fed_admin.json").write_text("{}")
    with pytest.raises(ServerUnreachable, match="timeout"), session(tmp_path):
        pass
    assert capfd.readouterr() == ("", "")
    log = (tmp_path / "log.txt").read_text()
    assert log.startswith("Connecting to FLARE ...\n")
    assert "WARNING nvflare.cell no reply" in log
    logging.getLogger("nvflare").warning("afterwards")
    assert (tmp_path / "log.txt").read_text() == log


def test_training_without_silos_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    opened = SimpleNamespace(get_connected_client_list=list)
    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    with pytest.raises(TooFewSilos):
        train_in_federation(tmp_path, resolved, tmp_path / "first", [], limits=Limits())


def test_silos_are_locked_out_and_let_in_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    opened = SimpleNamespace(
        disable_client=lambda name: calls.append(("disable", name)),
        enable_client=lambda name: calls.append(("enable", name)),
    )
    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    write_json(tmp_path / SILOS_FILE, ["north", "south"])
    for admitted in (False, True):
        set_admission(tmp_path, "south", admitted=admitted)
        with pytest.raises(UnknownName, match=r'"suoth" \(did you mean "south"\?\). The silos are: north, south'):
            set_admission(tmp_path, "suoth", admitted=admitted)
    assert calls == [("disable", "south"), ("enable", "south")]


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
    assert list(followed.absences()) == [f"The run is partial: south had no part in 2 of 3 rounds ({NOT_IN_JOB})."]


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
    with pytest.raises(JobLost, match="EXECUTION_EXCEPTION"):
        follow(Session(("FINISHED:EXECUTION_EXCEPTION", log)), "id", Followed([]))


def test_job_that_is_running_for_ever_since_the_server_died_is_lost() -> None:
    stale = Session(("RUNNING", line(0)))
    stale.restarted_at = 3
    seen = Records()
    with pytest.raises(JobLost, match="was started again"):
        follow(stale, "id", Followed([seen]))
    assert seen.records == [record(0)]


@pytest.mark.parametrize("reason", [NOT_IN_JOB, f"{SILENT} 2 times"])
def test_job_ends_when_a_silo_that_is_away_is_connected_again(reason: str) -> None:
    away = ("RUNNING", line(1, north=None, south=reason))
    followed = Followed([])
    with pytest.raises(JobLost, match=r"^south can take part again\.$"):
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
    monkeypatch.setattr(jobs, "BUSY_SECONDS", -1.0)
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
    assert list(followed.absences()) == [
        "The run is partial: south had no part in 2 of 2 rounds (it refuses the job: Not authorized: submit_job)."
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
