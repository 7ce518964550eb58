"""A training federation that FLARE connects, whose members run as processes of this machine, with mutual TLS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from silohash.base.files import read_arrays
from silohash.run.events import Observer, RoundRecord
from silohash.run.folder import Run
from silohash.training.checkpoint import load_checkpoint
from silohash.training.engines.flare.jobs import connected_silos, session
from silohash.training.engines.flare.kits import write_kits
from silohash.training.sites.kits import LEADER, LOCAL, SERVER, SITE_FILE, Training
from silohash.training.sites.training import RUNS
from tests.ports import free_port

PATIENCE_SECONDS = 300.0
REGISTERED = "Successfully registered client"


def until(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the federation takes too long"
        time.sleep(0.2)


@dataclass
class Federation:
    """A federation and its processes.

    Attributes:
        root: folder of its kits, archives and logs.
        port: port of the server.
        names: names of the silos.
        environment: variables with which all processes are started.
        processes: the supervisors of the members that were started.
    """

    root: Path
    port: int
    names: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def made(cls, root: Path, archives: Mapping[str, Path]) -> Self:
        """Writes the kits of a server at a free port and of one silo per archive."""
        made = cls(root, free_port(), list(archives))
        write_kits(made.kits, made.names, Training(port=made.port))
        for name, archive in archives.items():
            (made.kits / name / LOCAL / SITE_FILE).write_text(
                f'silo = "{name}"\nstate = "../state"\ndevice = "cpu"\nthreads = 1\n[data]\npath = "{archive}"\n'
            )
        return made

    @classmethod
    @contextmanager
    def running(
        cls, root: Path, archives: Mapping[str, Path], *, environment: Mapping[str, str] | None = None
    ) -> Iterator[Self]:
        """Starts a server and one silo per archive, waits until all are connected, and stops them afterwards."""
        made = cls.made(root, archives)
        made.environment = environment or {}
        with made.started():
            yield made

    @contextmanager
    def started(self) -> Iterator[Self]:
        """Starts the server and all silos, waits until they are connected, and stops them afterwards."""
        try:
            for name in (SERVER, *self.names):
                self.start(name)
            until(self.connected)
            yield self
        finally:
            self.stop()

    def listed(self) -> list[str]:
        """Returns the names of the silos that the server lists as connected, in order; none if it does not answer."""
        try:
            with session(self.leader, 5.0) as opened:
                return connected_silos(opened)
        except Exception:
            return []

    def connected(self, names: Sequence[str] | None = None) -> bool:
        """Tells whether exactly these silos are connected; by default all."""
        return self.listed() == sorted(self.names if names is None else names)

    @property
    def kits(self) -> Path:
        return self.root / "kits"

    @property
    def leader(self) -> Path:
        return self.kits / LEADER

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        command = "server" if name == SERVER else "silo"
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "silohash", command, str(self.kits / name)],
                stdout=log, stderr=log, cwd=self.root,
                env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment, **(environment or {})},
            )  # fmt: skip

    def stop(self, *names: str) -> None:
        stopped = [self.processes.pop(name) for name in names or list(self.processes)]
        for process in stopped:
            process.send_signal(signal.SIGTERM)
        for process in stopped:
            process.wait(PATIENCE_SECONDS)

    def restart(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Stops a silo, starts it again, and waits until it has connected. The server lists it all the time."""
        log = self.kits / name / "log.txt"
        before = log.read_text().count(REGISTERED)
        self.stop(name)
        self.start(name, environment)
        until(lambda: log.read_text().count(REGISTERED) > before)

    def kill(self, name: str) -> None:
        """Kills all processes of a member, as if its machine had lost power."""
        for process in self.children(str(self.kits / name)):
            os.kill(process, signal.SIGKILL)
        self.processes.pop(name).wait(PATIENCE_SECONDS)

    def children(self, *words: str) -> list[int]:
        """Returns the ids of processes of this federation whose command lines hold some words."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().decode() if entry.name.isdecimal() else ""
            except (OSError, UnicodeDecodeError):
                continue
            if str(self.kits) in command and all(word in command for word in words):
                found.append(int(entry.name))
        return found

    def stored(self, name: str, run: str) -> Run:
        """Returns the run that a silo stored."""
        return Run.open(self.kits / name / "state" / run)

    def check_equal(self, folder: Path, watch: Watch, one: Run) -> None:
        """Checks that a run equals that of one machine, bit for bit: its rounds, and the models of the silos."""
        for mine, other in zip(watch.records, one.rounds(), strict=True):
            assert (mine.loss, mine.terms, mine.validation) == (other.loss, other.terms, other.validation)
        for name in self.names:
            own, deployed = self.stored(name, folder.name), one.model.deployed_by(name)
            assert own.model.digest(deployed) == one.model.digest(deployed)
        if not one.model.personalized:
            assert Run.open(folder).model.digest("global") == one.model.digest("global")

    def check_encrypted(self, folder: Path, digest: str, one: Run) -> None:
        """Checks that a run with encrypted sums equals one on one machine without, and that nobody but silos can read it.

        Args:
            folder: folder of the run.
            digest: digest of its config.
            one: the run on one machine.
        """
        apart = Run.open(folder)
        expected = [record.validation for record in one.rounds()]
        assert [record.validation for record in apart.rounds()] == pytest.approx(expected, abs=0.02)
        checkpoint = self.kits / SERVER / RUNS / folder.name / "checkpoint"
        kept = load_checkpoint(checkpoint, digest)
        assert not kept.server.params
        assert kept.server.private.keys() == {"state", "final"}
        assert not [key for name in (SERVER, LEADER) for key in (self.kits / name).rglob("silos.key")]
        own = [self.stored(name, folder.name) for name in self.names]
        assert len({run.model.digest("global") for run in own}) == 1
        found, wanted = (read_arrays(run.model_folder / "weights-000.safetensors")[0] for run in (own[0], one))
        assert max(float(np.abs(found[name] - wanted[name]).max()) for name in wanted) < 1e-3


class Watch(Observer):
    """An observer that keeps the records, and acts after a round."""

    def __init__(self, act: Callable[[int], None] = lambda number: None) -> None:
        self.records: list[RoundRecord] = []
        self.act = act

    def round(self, record: RoundRecord) -> None:
        self.records.append(record)
        self.act(record.round)
