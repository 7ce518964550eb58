"""Jobs: what they hold, and that new ones continue a run."""

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
from silohash.runtime.events import RoundRecord, SiloRecord
from silohash.runtime.sites import attempts
from silohash.runtime.sites.attempts import ATTEMPTS, LostJobError
from silohash.types import UserError
from tests.runs import Records, tiny

pytest.importorskip("nvflare")

from nvflare.apis.fl_exception import FLCommunicationError

from silohash.runtime.engine.flare import jobs
from silohash.runtime.engine.flare.controller import ROUND, RoundsController
from silohash.runtime.engine.flare.following import Followed
from silohash.runtime.engine.flare.jobs import session, set_admission, train_in_federation, write_job


def record(number: int) -> RoundRecord:
    silos = [SiloRecord("south", 0, None, 0.0, "did not answer within 5 seconds.")] if number == 3 else []
    return RoundRecord(number, 1.0, 0.5, {}, None, True, silos, 10, 10, warnings=[])


def line(number: int) -> str:
    return f"2026-01-01 - RoundsController - INFO - {ROUND}{json.dumps(asdict(record(number)))}\n"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(attempts, "POLL_SECONDS", 0.0)


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
    assert said[0] == "The job has ended after 2 rounds (gone). A new one continues the run."
    assert len(said) == 6
    assert said[-1] == "The run is partial: south was absent from 1 of 4 rounds (did not answer within 5 seconds)."


def test_run_without_progress_is_given_up(tmp_path: Path, lost: list[list[int]]) -> None:
    lost += [[] for _ in range(ATTEMPTS + 1)]
    seen = Records()
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    with pytest.raises(UserError, match=r"3 jobs in a row ended without a round \(gone\)"):
        train_in_federation(tmp_path, resolved, tmp_path / "a", ["north"], limits=Limits(), observers=[seen])
    assert seen.finished


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
        raise LostJobError("south can take part again.")

    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    monkeypatch.setattr(jobs, "follow", lose)
    with pytest.raises(LostJobError):
        jobs._train_once(tmp_path, tmp_path, tmp_path, Followed([]))
    assert calls == ["id"]
    assert states == []


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
    with (
        pytest.raises(UserError, match="is not the kit that starts runs of members that NVIDIA FLARE connects"),
        session(tmp_path),
    ):
        pass
    (tmp_path / "startup" / "fed_admin.json").write_text("{}")
    with pytest.raises(UserError, match=r"cannot be reached \(.*timeout.*silohash server"), session(tmp_path):
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
    with pytest.raises(UserError, match="No silo is connected"):
        train_in_federation(tmp_path, resolved, tmp_path / "first", [], limits=Limits())


def test_silos_are_locked_out_and_let_in_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    opened = SimpleNamespace(
        disable_client=lambda name: calls.append(("disable", name)),
        enable_client=lambda name: calls.append(("enable", name)),
    )
    monkeypatch.setattr(jobs, "session", lambda kit: nullcontext(opened))
    for admitted in (False, True):
        set_admission(tmp_path, "south", admitted=admitted)
    assert calls == [("disable", "south"), ("enable", "south")]
