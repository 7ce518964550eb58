"""The processes of a federation on 127.0.0.1, for tests that start and stop them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from silohash.base.errors import UserError
from silohash.service.clients.search import Client
from tests.nats import Federation
from tests.ports import free_port

STARTED_SECONDS = 120.0
HUB = """
from silohash.cli import main
from silohash.service import nats_bus

nats_bus.GRACE_SECONDS = 60.0
main()
"""
"""A hub that waits for silos to connect again for as long as a busy machine may take."""


class Processes:
    """The processes of a federation, by name.

    Attributes:
        federation: the files, and the NATS server.
        client: a client of the hub.
        text: words that the model knows.
    """

    def __init__(self, federation: Federation, text: str = "red square") -> None:
        self.federation, self.text = federation, text
        self.port = free_port()
        self.client = Client(f"http://127.0.0.1:{self.port}", timeout_seconds=120)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Starts a silo or the hub."""
        folder = self.federation.folder
        program = ["-c", HUB, "hub"] if name == "hub" else ["-m", "silohash", "silo"]
        command = [sys.executable, *program, str(folder / f"{name}.toml")]
        with (folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*command, *(["--port", str(self.port)] if name == "hub" else [])], stdout=log, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def stop(self, name: str, number: int = signal.SIGKILL) -> int:
        """Ends a process with a signal, and returns its exit code."""
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(STARTED_SECONDS)

    def logs(self) -> str:
        """Returns what all processes logged."""
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in self.federation.folder.glob("*.log"))

    def until(self, holds: Callable[[], bool], seconds: float) -> float:
        """Waits until something holds, and returns the seconds that it took."""
        start = time.monotonic()
        while not holds():
            assert time.monotonic() < start + seconds, self.logs()
            time.sleep(0.05)
        return time.monotonic() - start

    def whole(self) -> bool:
        """Returns whether a search is answered by all silos."""
        try:
            return not self.client.search(self.text, k=3).missing_silos
        except UserError:
            return False


@contextmanager
def all_started(processes: Processes, silos: Sequence[str]) -> Iterator[Processes]:
    """Yields the processes of a federation once all silos and the hub have started, and stops those that still run."""
    try:
        for name in (*silos, "hub"):
            processes.start(name)
        processes.until(processes.whole, STARTED_SECONDS)
        yield processes
    finally:
        for name in list(processes.running):
            processes.stop(name)


@contextmanager
def federation_of(
    run: Path, folder: Path, *silos: str, policies: Mapping[str, str] | None = None, text: str = "red square",
    deadline_seconds: float = 60.0,
) -> Iterator[Processes]:  # fmt: skip
    """Yields the running processes of a federation. A silo has a copy of the run with its own index alone, the hub has none.

    Args:
        run: the run with the indexes of all silos.
        folder: where the copies and all files go.
        silos: names of the silos.
        policies: content of the policy files of some silos.
        text: words that the model knows.
        deadline_seconds: of the hub.
    """
    copies = {name: folder / "runs" / name for name in ("hub", *silos)}
    for name, copy in copies.items():
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("index", "checkpoint"))
        if name != "hub":
            shutil.copytree(run / "index" / name, copy / "index" / name)
    for name, policy in (policies or {}).items():
        (copies[name] / "policies").mkdir()
        (copies[name] / "policies" / f"{name}.toml").write_text(policy)
    federation = Federation(folder, *silos, run=copies["hub"], runs=copies, deadline_seconds=deadline_seconds)
    with federation, all_started(Processes(federation, text), silos) as started:
        yield started
