"""Runs of a study, several at a time, each in a process of its own that ends when this one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from silohash.files import explaining_disk_errors
from silohash.runtime.config import RunConfig
from silohash.runtime.run import Run
from silohash.study.child import GRACE_SECONDS

POLL_SECONDS = 0.1
LOG_TAIL_BYTES = 1 << 14


@dataclass(frozen=True)
class Job:
    """A run that is to be trained.

    Attributes:
        name: what it is called while it runs.
        folder: the run's; what is begun there is gone on with.
        config: the run's.
        figures: whether it is measured on the archive's queries in the end.
    """

    name: str
    folder: Path
    config: RunConfig
    figures: bool = True

    @property
    def log_path(self) -> Path:
        """What the run says."""
        return self.folder / "log.txt"


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        job: the run.
        code: 0 if it ended well, 2 if the user can put right what was wrong.
        said: the last line of its log.
        seconds: how long it took, this time.
    """

    job: Job
    code: int
    said: str
    seconds: float


Chain: TypeAlias = Generator[Job, Outcome, None]
"""Runs that follow each other: each is yielded, and how it ended is sent back."""


class Display(Protocol):
    """Who is told how far the runs are."""

    def started(self, job: Job, rounds: int) -> None:
        """Called when a run starts, with the rounds that it has done before."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """Called when a run has ended, well or not."""
        ...

    def looked(self, rounds: Mapping[str, int]) -> None:
        """Called several times a second with the rounds that each running run has done."""
        ...


def single(job: Job) -> Chain:
    """Returns a chain of one run."""
    yield job


def run_jobs(chains: Iterable[Chain], processes: int, display: Display) -> list[Outcome]:
    """Runs chains of jobs, at most some at a time; a run that fails does not stop the others.

    Args:
        chains: what to run; the next job of a chain starts when the one before has ended.
        processes: how many run at the same time.
        display: is told.

    Returns:
        How each ended, in the order in which they did.

    Raises:
        KeyboardInterrupt: after the running ones have been stopped and have kept what they had finished.
    """
    waiting = deque((chain, job) for chain in chains if (job := next(chain, None)) is not None)
    running: dict[str, tuple[Chain, _Child]] = {}
    outcomes = []
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                chain, job = waiting.popleft()
                child = _Child(job, processes)
                running[job.name] = (chain, child)
                display.started(job, child.rounds())
            for name, (chain, child) in list(running.items()):
                outcome = child.outcome()
                if outcome is None:
                    continue
                del running[name]
                outcomes.append(outcome)
                display.ended(outcome)
                with suppress(StopIteration):
                    waiting.append((chain, chain.send(outcome)))
            display.looked({name: child.rounds() for name, (_, child) in running.items()})
            time.sleep(POLL_SECONDS)
    finally:
        _stop([child for _, child in running.values()])
    return outcomes


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Child:
    """A running run."""

    def __init__(self, job: Job, processes: int) -> None:
        train = job.config.train
        threads = train.threads or max(1, cores() // (processes * train.workers))
        config = job.config.to_json()
        config["train"]["threads"] = threads
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
            "OMP_NUM_THREADS": str(threads),
            "NUMBA_NUM_THREADS": str(threads),
        }
        with explaining_disk_errors(job.folder):
            job.folder.mkdir(parents=True, exist_ok=True)
            log = job.log_path.open("ab")
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "silohash.study.child"], stdin=subprocess.PIPE, stdout=log, stderr=log,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self.job = job
        self.started = time.monotonic()
        order = {"folder": str(job.folder), "config": config, "figures": job.figures}
        self._write(json.dumps(order).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None  # noqa: S101  it is a pipe
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended already; its exit status says how

    def rounds(self) -> int:
        """Returns how many rounds are done."""
        try:
            return Run(self.job.folder).rounds_path.read_bytes().count(b"\n")
        except OSError:
            return 0

    def outcome(self) -> Outcome | None:
        """Returns how it ended; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        self.let_go()
        return Outcome(self.job, code, _last_line(self.job.log_path), time.monotonic() - self.started)

    def let_go(self) -> None:
        """Ends its input, upon which it stops."""
        assert self.process.stdin is not None  # noqa: S101
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            return


def _stop(children: Iterable[_Child]) -> None:
    """Stops processes and waits for them; ends them by force if they take too long or Ctrl-C comes again."""
    children = list(children)
    for child in children:
        child.let_go()
    deadline = time.monotonic() + GRACE_SECONDS + 2
    try:
        for child in children:
            child.process.wait(max(0.1, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for child in children:
            child.process.kill()
    for child in children:
        child.process.wait()


def _last_line(path: Path) -> str:
    try:
        lines = path.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
