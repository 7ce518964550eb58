"""The process of a silo: its SuperNode, and the tasks that it passes to the trainer."""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from silohash.runtime.sites.kits import Training

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

import httpx
from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from silohash.runtime.engine.flower import site as module
from silohash.runtime.engine.flower.kits import AUTHORITY, SILO_KEY, Connection, write_flower_kits
from silohash.runtime.engine.flower.letters import as_record, of_record
from silohash.runtime.engine.flower.site import Site, supernode, supernode_command, work


@pytest.fixture
def connection(tmp_path: Path) -> Connection:
    write_flower_kits(tmp_path / "kits", ["north"], Training(port=18004))
    return Connection.of(tmp_path / "kits" / "north")


def test_supernode_starts_no_program_and_proves_itself(connection: Connection, tmp_path: Path) -> None:
    command = supernode_command(connection, 5000, tmp_path / "secret")
    options = dict(zip(command[4::2], command[5::2], strict=True))
    assert options == {
        "--superlink": "127.0.0.1:18004",
        "--root-certificates": str(connection.startup / AUTHORITY),
        "--auth-supernode-private-key": str(connection.startup / SILO_KEY),
        "--isolation": "process",
        "--host": "127.0.0.1",
        "--port": "5000",
        "--superexec-auth-secret-file": str(tmp_path / "secret"),
    }
    assert "--insecure" not in command


def test_supernode_ends_with_the_block(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(module, "supernode_command", lambda connection, port, file: [*waiting, str(file)])
    with supernode(connection) as (process, address, secret):
        assert process.poll() is None
        file = Path(process.args[-1])
        assert file.read_bytes() == secret
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert address.startswith("127.0.0.1:")
    assert process.poll() is not None
    assert not file.exists()


class Runtime:
    """The runtime of a SuperNode that has one task, and what it is sent for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 2, 3
        self.tokens, self.replies, self.beats = ["token", ""], [], 0
        message = Message(as_record(b"task"), 7, "train", ttl=seconds)
        monkeypatch.setattr(module.RuntimeHttpClient, "from_server_address", lambda *given, **options: self)
        monkeypatch.setattr(module, "pull_task_input", lambda client: (message, "context", None, None))
        monkeypatch.setattr(module, "push_message", lambda client, reply, context: self.replies.append(reply))
        monkeypatch.setattr(module, "push_task_output", lambda client, *given: self.replies.append(given))

    def AcquireTask(self, request: object) -> object:  # noqa: N802
        return SimpleNamespace(token=self.tokens.pop(0))

    def SendTaskHeartbeat(self, request: object) -> None:  # noqa: N802
        self.beats += 1

    def close(self) -> None: ...

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *error: object) -> None: ...


class Trainer:
    """Answers a task, unless it is withdrawn."""

    def answer(self, request: bytes, withdrawn: Callable[[], bool]) -> bytes | None:
        return None if withdrawn() else request + b" done"


@pytest.mark.parametrize(("seconds", "answer"), [(600.0, b"task done"), (1e-9, b"")])
def test_task_is_answered_unless_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, seconds: float, answer: bytes
) -> None:
    runtime = Runtime(monkeypatch, seconds)
    site = Site("127.0.0.1:5", b"secret", Trainer())
    assert [site.step(), site.step()] == [True, False]
    reply, finished = runtime.replies
    assert of_record(reply.content) == answer
    assert finished == ("context", "completed", "")
    assert runtime.beats >= 1


class Steps:
    """A site whose steps are those of a list: whether there was a task, or the error of asking for one."""

    def __init__(self, *steps: bool | Exception) -> None:
        self.steps, self.stopped = list(steps), 0
        self.trainer = SimpleNamespace(stop=self.stop)

    def stop(self) -> None:
        self.stopped += 1

    def step(self) -> bool:
        found = self.steps.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_tasks_are_carried_out_until_the_supernode_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    site = Steps(httpx.ConnectError("starting"), True, True, False)
    work(site, lambda: bool(site.steps))
    assert len(waits) == 2
    assert site.stopped == 0


def test_trainer_of_an_idle_silo_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)
    site = Steps(True, False)
    work(site, lambda: bool(site.steps))
    assert site.stopped == 1
