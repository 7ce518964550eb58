"""The process of a silo: ``python -m silohash.runtime.engine.flower.site KIT``.

It starts Flower's SuperNode, which is connected to the server, and takes each task from it. It never installs the program
that comes with a run. The installed trainer carries out the task.
"""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from silohash.runtime.engine.flower.kits import AUTHORITY, SILO_KEY, Connection
from silohash.runtime.engine.flower.letters import ACQUIRE, as_record, heartbeats, of_record
from silohash.runtime.sites.kits import LOCAL, SITE_FILE
from silohash.runtime.sites.trainer_process import TrainerProcess

POLL_SECONDS = 0.2
STOP_SECONDS = 10.0
IDLE_SECONDS = 600.0
"""Time without a task after which the trainer is stopped, because it holds the data and the model in memory."""

LOOPBACK = "127.0.0.1"

SUPERNODE = "silohash.runtime.engine.flower.supernode"
"""The program of the SuperNode."""


class Site:
    """Carry out the tasks that a SuperNode receives.

    Args:
        address: address of the SuperNode's runtime on this machine.
        secret: secret of the runtime, which keeps other processes of this machine from taking tasks.
        trainer: carries out the tasks.
    """

    def __init__(self, address: str, secret: bytes, trainer: TrainerProcess) -> None:
        self.address, self.trainer = address, trainer
        self.tasks = self._client(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[ACQUIRE]))

    def _client(self, interceptor: Any) -> Any:  # noqa: ANN401  Flower has no types
        return RuntimeHttpClient.from_server_address(
            self.address, insecure=True, root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), interceptor],
        )  # fmt: skip

    def step(self) -> bool:
        """Carry out the next task, and return whether there was one.

        The trainer is stopped when nobody would accept its answer any more.
        """
        found = self.tasks.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if not found.token:
            return False
        with self._client(RuntimeTokenHttpInterceptor(found.token)) as client, heartbeats(client):
            message, context, _, _ = pull_task_input(client)
            until = time.monotonic() + message.metadata.ttl
            answer = self.trainer.answer(of_record(message.content), lambda: time.monotonic() > until)
            push_message(client, Message(as_record(answer or b""), reply_to=message), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        return True

    def close(self) -> None:
        """Stop the trainer."""
        self.trainer.stop()
        self.tasks.close()


def supernode_command(connection: Connection, port: int, secret: Path) -> list[str]:
    """Return the command line of the SuperNode of a kit.

    Args:
        connection: that of the silo.
        port: port of its runtime on this machine.
        secret: file of the secret of the runtime.
    """
    startup = connection.startup
    return [
        sys.executable, "-u", "-m", SUPERNODE, "--superlink", connection.address,
        "--root-certificates", str(startup / AUTHORITY), "--auth-supernode-private-key", str(startup / SILO_KEY),
        "--isolation", "process", "--host", LOOPBACK, "--port", str(port), "--superexec-auth-secret-file", str(secret),
    ]  # fmt: skip


@contextmanager
def supernode(connection: Connection) -> Iterator[tuple[subprocess.Popen[bytes], str, bytes]]:
    """Run the SuperNode of a kit. Yield its process, the address of its runtime, and the secret of the runtime."""
    secret = secrets.token_bytes(32)
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "secret"
        file.write_bytes(secret)  # nobody else may read the folder
        process = subprocess.Popen(supernode_command(connection, port, file))
        try:
            yield process, f"{LOOPBACK}:{port}", secret
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
            process.wait()


def main() -> None:
    """Carry out tasks until the SuperNode ends, or this process is stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    connection = Connection.of(Path(sys.argv[1]))
    trainer = TrainerProcess(connection.kit / LOCAL / SITE_FILE, lambda text: print(text, file=sys.stderr))
    with suppress(KeyboardInterrupt), supernode(connection) as (process, address, secret):
        site = Site(address, secret, trainer)
        try:
            work(site, lambda: process.poll() is None)
        finally:
            site.close()
    sys.exit(1)


def work(site: Site, goes_on: Callable[[], bool]) -> None:
    """Carry out tasks as they come.

    Args:
        site: carries them out.
        goes_on: tells whether the SuperNode runs.
    """
    idle_since = time.monotonic()
    while goes_on():
        busy = False
        with suppress(httpx.ConnectError):  # the SuperNode is starting
            busy = site.step()
        if busy:
            idle_since = time.monotonic()
            continue
        if time.monotonic() - idle_since > IDLE_SECONDS:
            site.trainer.stop()
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
