"""The runs of a study as jobs, several at a time, each in a child process."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from silohash.run.config.sections import RunConfig
from silohash.run.folder import Run
from silohash.study.worker import FAILED, GRACE_SECONDS, LOG
from silohash.training.engines.processes import Exchange, ProcessEndedError, ProcessPool, available_threads

POLL_SECONDS = 0.1
LOG_TAIL_BYTES = 1 << 14
RUNS_PER_PROCESS = 24
"""A process is replaced after this number of runs, because the memory that its allocator keeps grows with each."""

Ending: TypeAlias = tuple[int, str]
"""Exit code and last message of a run."""


@dataclass(frozen=True)
class Job:
    """A run to train.

    Attributes:
        name: Its name in messages.
        folder: The run's folder; a run that was started there is resumed.
        config: The run's config.
        figures: Whether to evaluate the run on the archive's queries.
    """

    name: str
    folder: Path
    config: RunConfig
    figures: bool = True

    @property
    def log_path(self) -> Path:
        """The run's log."""
        return self.folder / LOG

    def rounds_done(self) -> int:
        """Return the number of finished rounds."""
        try:
            return Run(self.folder).rounds_path.read_bytes().count(b"\n")
        except OSError:
            return 0

    def request(self, threads: int) -> dict[str, Any]:
        """Return the request to a child process, whose ``threads`` are divided among the run's workers."""
        config = self.config.to_json()
        train = config["train"]
        train["threads"] = train["threads"] or max(1, threads // train["workers"])
        return {"folder": str(self.folder), "config": config, "figures": self.figures}


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        job: The run.
        code: 0 on success, 2 after a user's error, another number after any other error.
        message: The last line of the run's log.
        seconds: Duration, without that of earlier starts.
    """

    job: Job
    code: int
    message: str = ""
    seconds: float = 0.0


Chain: TypeAlias = Generator[Job, Outcome, None]
"""Jobs that depend on each other: each is yielded after the outcome of the one before has been sent in."""


class Display(Protocol):
    """Shows the progress of jobs."""

    def started(self, job: Job, rounds: int) -> None:
        """Show that a job has started, with ``rounds`` finished before."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """Show how a job ended."""
        ...

    def update(self, rounds: Mapping[str, int]) -> None:
        """Show the number of finished rounds of each running job. Called several times per second."""
        ...


class JobPool:
    """Does each job in one of some child processes, which share the cores equally."""

    def __init__(self, processes: int) -> None:
        self.threads = max(1, available_threads() // processes)
        threads = str(self.threads)
        self.pool = ProcessPool(
            [sys.executable, "-m", "silohash.study.worker"], processes, renew_after=RUNS_PER_PROCESS,
            environment={"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}, grace_seconds=GRACE_SECONDS + 2,
            quiet=True,
        )  # fmt: skip

    def submit(self, job: Job) -> Future[Ending]:
        """Start a job in a free process."""
        return self.pool.submit(partial(self._do, job))

    def close(self) -> None:
        """Stop the processes."""
        self.pool.close()

    def _do(self, job: Job, exchange: Exchange) -> Ending:
        try:
            answer = json.loads(exchange(json.dumps(job.request(self.threads)).encode()))
        except ProcessEndedError as error:
            last = _last_line(job.log_path)
            message = f"its process ended with exit status {error.status}, perhaps for lack of memory"
            return error.status or FAILED, f"{message}; last log line: {last}" if last else message
        return answer["code"], _last_line(job.log_path)


def single(job: Job) -> Chain:
    """Return a chain of one job."""
    yield job


def run_jobs(
    chains: Iterable[Chain],
    processes: int,
    display: Display,
    make_pool: Callable[[int], JobPool] = JobPool,
    *,
    until: float = math.inf,
) -> list[Outcome]:
    """Run chains of jobs, a limited number at a time. A job that fails does not stop the others.

    Args:
        chains: The jobs; the next job of a chain starts when the one before has ended.
        processes: Number of jobs that run at the same time.
        display: Shows the progress.
        make_pool: Makes the pool for a number of processes; called only if there is a job.
        until: The time, as given by `time.monotonic`, at which the running jobs are stopped and keep what they finished.

    Returns:
        The outcomes of the jobs that ended, in that order.

    Raises:
        KeyboardInterrupt: After the running jobs have been stopped and have kept what they finished.
    """
    waiting = deque((chain, job) for chain in chains if (job := next(chain, None)) is not None)
    if not waiting:
        return []
    running: dict[Future[Ending], tuple[Chain, Job, float]] = {}
    outcomes: list[Outcome] = []
    pool = make_pool(processes)
    try:
        while (waiting or running) and not is_over(until):
            while waiting and len(running) < processes:
                chain, job = waiting.popleft()
                display.started(job, job.rounds_done())
                running[pool.submit(job)] = chain, job, time.monotonic()
            done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
            # `wait` returns a set, but jobs that ended together are reported in the order of their start.
            for future in sorted(done, key=list(running).index):
                chain, job, started = running.pop(future)
                outcomes.append(Outcome(job, *future.result(), time.monotonic() - started))
                display.ended(outcomes[-1])
                with suppress(StopIteration):
                    waiting.append((chain, chain.send(outcomes[-1])))
            display.update({job.name: job.rounds_done() for _, job, _ in running.values()})
    finally:
        pool.close()
    return outcomes


def is_over(until: float) -> bool:
    """Return whether a point in time has been reached, as given by `time.monotonic`; never if it is infinite."""
    return math.isfinite(until) and time.monotonic() >= until


def _last_line(path: Path) -> str:
    try:
        lines = path.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
