"""Jobs: what they hold, and how their rounds are followed."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from silohash.config.load import load_resolved
from silohash.runtime.engine.port import Limits
from silohash.runtime.events import RoundRecord
from silohash.types import UserError
from tests.runs import Records, tiny

pytest.importorskip("nvflare")

from nvflare.apis.fl_exception import FLCommunicationError

from silohash.runtime.engine.flare import jobs
from silohash.runtime.engine.flare.controller import FAILED, NOTE, ROUND, RoundsController
from silohash.runtime.engine.flare.jobs import (
    ATTEMPTS,
    Followed,
    LostJobError,
    connected_silos,
    follow,
    session,
    train_in_federation,
    wait_for,
    write_job,
)


def record(number: int) -> RoundRecord:
    return RoundRecord(number, 1.0, 0.5, {}, None, True, [], 10, 10, warnings=[])


def line(number: int) -> str:
    return f"2026-01-01 - RoundsController - INFO - {ROUND}{json.dumps(asdict(record(number)))}\n"


class Session:
    """Plays back the states and logs of a job."""

    def __init__(self, *steps: tuple[str, str]) -> None:
        self.steps = list(steps)
        self.looks = 0
        self.restarted_at: int | None = None

    def get_job_meta(self, job: str) -> dict[str, str]:
        return {"status": self.steps[0][0]}

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
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)


def test_a_job_holds_settings_only_and_all_arguments_of_the_controller(tmp_path: Path) -> None:
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    write_job(tmp_path / "job", "first", resolved, ["north", "south"], Limits(30.0, 2))
    files = sorted(
        path.relative_to(tmp_path / "job").as_posix() for path in (tmp_path / "job").rglob("*") if path.is_file()
    )
    assert files == ["app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json"]
    server = json.loads((tmp_path / "job/app/config/config_fed_server.json").read_text())
    (workflow,) = server["workflows"]
    made = RoundsController(**workflow["args"])
    assert (made.run, made.silos, made.limits) == ("first", ["north", "south"], Limits(30.0, 2))
    assert made.config == resolved.config.to_toml()
    assert server["server"]["task_request_interval"] == 0.2
    client = json.loads((tmp_path / "job/app/config/config_fed_client.json").read_text())
    assert client["max_runner_sync_timeout"] == 600.0
    assert json.loads((tmp_path / "job/meta.json").read_text())["min_clients"] == 2


def test_rounds_are_passed_on_once() -> None:
    seen = Records()
    logs = ["", line(4), line(4) + line(5), line(4) + line(5) + line(6)]
    steps = [*(("RUNNING", log) for log in logs[:3]), ("FINISHED:COMPLETED", logs[3])]
    follow(Session(*steps), "id", Followed([seen]))
    assert seen.records == [record(4), record(5), record(6)]


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


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Jobs that are lost after the rounds that each of them lists; the last one is completed."""
    opened = SimpleNamespace(get_connected_client_list=lambda: [SimpleNamespace(name="north")])
    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    plan: list[list[int]] = []

    def once(kit: Path, beside: Path, folder: Path, followed: Followed) -> None:
        assert (beside / "job" / "meta.json").exists()
        followed.read("".join(map(line, plan.pop(0))))
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
    assert said[0] == "The job is lost after 2 rounds (gone). A new one continues the run."
    assert len(said) == 5


def test_run_without_progress_is_given_up(tmp_path: Path, lost: list[list[int]]) -> None:
    lost += [[] for _ in range(ATTEMPTS + 1)]
    seen = Records()
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    with pytest.raises(UserError, match=r"3 jobs in a row ended without a round \(gone\)"):
        train_in_federation(tmp_path, resolved, tmp_path / "a", ["north"], limits=Limits(), observers=[seen])
    assert seen.finished


def test_silos_that_do_not_come_back_are_named(tmp_path: Path, lost: list[list[int]]) -> None:
    wait_for(tmp_path, ["north"])
    with pytest.raises(UserError, match=r"^south did not connect to the server within 0 seconds"):
        wait_for(tmp_path, ["north", "south"], 0.0)


def test_folder_that_is_not_a_kit(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing is not the kit .*museums/leader"), session(tmp_path / "nothing"):
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
    with pytest.raises(UserError, match=r"cannot be reached \(.*timeout.*silohash server"), session(tmp_path):
        pass
    assert capfd.readouterr() == ("", "")
    log = (tmp_path / "log.txt").read_text()
    assert log.startswith("Connecting to FLARE ...\n")
    assert "WARNING nvflare.cell no reply" in log
    logging.getLogger("nvflare").warning("afterwards")
    assert (tmp_path / "log.txt").read_text() == log


def test_silos_in_alphabetical_order() -> None:
    clients = [SimpleNamespace(name=name) for name in ("b", "a")]
    assert connected_silos(SimpleNamespace(get_connected_client_list=lambda: clients)) == ["a", "b"]


def test_training_without_silos_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    opened = SimpleNamespace(get_connected_client_list=list)
    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    with pytest.raises(UserError, match="No silo is connected"):
        train_in_federation(tmp_path, resolved, tmp_path / "first", [], limits=Limits())
