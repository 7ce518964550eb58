"""Processes of a federation's members: what they start, that they are started again, and that they end with a block."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from silohash.base.errors import NotAKit
from silohash.training.sites import members
from silohash.training.sites.kits import Training
from silohash.training.sites.members import SLOW_LINKS, command_of, member_beside, place_storage, run_member

pytest.importorskip("nvflare")

from silohash.training.engines.flare.kits import write_kits


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("members") / "kits"
    write_kits(folder, ["north"], Training())
    return folder


def test_command_of_each_kit(kits: Path) -> None:
    server, silo = command_of(kits / "server"), command_of(kits / "north")
    assert server[:4] == [sys.executable, "-u", "-m", "nvflare.private.fed.app.server.server_train"]
    assert silo[3] == "nvflare.private.fed.app.client.client_train"
    assert "uid=north" in silo
    assert "secure_train=true" in server
    with pytest.raises(NotAKit):
        command_of(kits / "leader")


def test_what_is_on_its_way_is_not_sent_again_too_soon() -> None:
    window, wait = (float(SLOW_LINKS[f"NVFLARE_STREAMING_{name}"]) for name in ("WINDOW_SIZE", "RETRY_WAIT"))
    assert window / wait <= 150_000


def test_server_stores_jobs_in_its_own_folder(kits: Path) -> None:
    place_storage(kits / "server")
    text = (kits / "server/local/resources.json").read_text(encoding="utf-8")
    snapshots = json.loads(text)["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]
    assert snapshots == str((kits / "server").resolve() / "storage" / "snapshots")
    jobs = next(one for one in json.loads(text)["components"] if one["id"] == "job_manager")
    assert jobs["args"]["uri_root"] == str((kits / "server").resolve() / "storage" / "jobs")


def test_process_that_dies_is_started_again(
    kits: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, said = tmp_path / "log", []
    code = (
        f"import os, sys; open({str(log)!r}, 'a').write('x'); print('out'); "
        "print(*(os.environ[f'NVFLARE_STREAMING_RETRY_{name}'] for name in ('WAIT', 'TIMEOUT')), file=sys.stderr); "
        "sys.exit(7)"
    )
    monkeypatch.setenv("NVFLARE_STREAMING_RETRY_WAIT", "7")
    monkeypatch.setattr(members, "command_of", lambda kit: [sys.executable, "-c", code])
    monkeypatch.setattr(members, "RESTART_SECONDS", 0.0)
    stopped = threading.Event()

    def notify(text: str) -> None:
        said.append(text)
        if len(said) == 4:
            stopped.set()

    run_member(kits / "north", notify, stopped)
    assert log.read_text() == "xxx"
    logs = f"{kits / 'north' / 'log.txt'} and {kits / 'north' / 'errors.txt'}"
    assert said == [
        f"north runs. Its log is in {logs}.",
        *[f"The process ended with exit status 7. It is started again. The reason is in {logs}."] * 3,
    ]
    assert capfd.readouterr() == ("", "")
    assert (kits / "north" / "errors.txt").read_text() == "7 900\n" * 3


def test_process_beside_a_block_ends_with_it(kits: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(members, "command_of", lambda kit: [sys.executable, "-c", code])
    said: list[str] = []
    with member_beside(kits / "north", "north", said.append):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        process = int((tmp_path / "pid").read_text())
        os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert len(said) == 1


@pytest.mark.parametrize(("kit", "silo"), [("north", "south"), ("server", "north"), ("none", "north")])
def test_kit_of_another_member_is_not_started(kits: Path, kit: str, silo: str) -> None:
    with (
        pytest.raises(NotAKit, match=str(silo)),
        member_beside(kits / kit, silo, print),
    ):
        pass
