"""Processes of a federation's members: what they start, that they are started again, and that they end with a block."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from silohash.base.certificates import Finding
from silohash.base.errors import NotAKit, ReadableByOthers
from silohash.training.sites import members
from silohash.training.sites.kits import Training
from silohash.training.sites.members import SLOW_LINKS, command_of, member_beside, place_storage, run_member

pytest.importorskip("nvflare")

from silohash.training.engines.flare.kits import write_kits

FOREIGN = Finding("authority", "foreign", False)


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


def test_a_kit_whose_key_others_can_read_is_refused(kits: Path, tmp_path: Path) -> None:
    kit = Path(shutil.copytree(kits / "north", tmp_path / "north"))
    (kit / "startup" / "client.key").chmod(0o640)
    with pytest.raises(ReadableByOthers, match=r"chmod 600 .*client\.key"):
        run_member(kit, print)


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
        *[f"The process ended (exit status 7) and starts again. The reason is in {logs}."] * 3,
    ]
    assert capfd.readouterr() == ("", "")
    assert (kits / "north" / "errors.txt").read_text() == "7 900\n" * 3


def test_certificates_that_end_soon_are_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.training.sites.kits.server", lambda kit: [])
    write_kits(tmp_path / "kits", ["north"], Training(valid_days=20))
    stopped, said = threading.Event(), list[str]()
    stopped.set()
    run_member(tmp_path / "kits" / "north", said.append, stopped)
    assert [text.partition(":")[0] for text in said[:2]] == ["client.crt", "rootCA.pem"]
    assert "Make new kits: silohash federation kits" in said[0]


def test_a_server_of_another_authority_is_told_as_soon_as_it_is_there(
    kits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([Finding("server", "not there", False), Finding("server", "not there", False), FOREIGN])
    monkeypatch.setattr("silohash.training.sites.kits.server", lambda kit: [next(found)])
    monkeypatch.setattr(members, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(members, "command_of", lambda kit: [sys.executable, "-c", "import time; time.sleep(600)"])
    stopped, said = threading.Event(), list[str]()

    def notify(text: str) -> None:
        said.append(text)
        if text == "authority: foreign":
            stopped.set()

    run_member(kits / "north", notify, stopped)
    assert "authority: foreign" in said
    assert len(said) == 2


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


RUN = """
import sys
from pathlib import Path
from silohash.training.sites import members

members.command_of = lambda kit: [sys.executable, "-c", sys.argv[2]]
members.run_member(Path(sys.argv[1]), print)
"""


def is_alive(process: int) -> bool:
    """Tell whether a process runs. One that waits to be reaped does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.whole_run
def test_killed_member_leaves_no_process(kits: Path, tmp_path: Path) -> None:
    """The process of the kit ignores SIGTERM and has a child of its own."""
    inner = f"import os, time; open({str(tmp_path / 'inner')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = (
        "import os, signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(tmp_path / 'outer')!r}, 'w').write(str(os.getpid())); "
        f"subprocess.run([sys.executable, '-c', {inner!r}])"
    )
    member = subprocess.Popen([sys.executable, "-c", RUN, kits / "north", code], stdout=subprocess.DEVNULL)
    found: list[int] = []
    for name in ("outer", "inner"):
        while not (tmp_path / name).exists() or not (tmp_path / name).read_text():
            assert member.poll() is None
            time.sleep(0.05)
        found.append(int((tmp_path / name).read_text()))
    assert all(map(is_alive, found))
    member.kill()
    member.wait()
    until = time.monotonic() + 60
    while any(map(is_alive, found)):
        assert time.monotonic() < until
        time.sleep(0.05)
