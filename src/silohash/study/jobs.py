"""The runs of a study as jobs: which are left to do, several at a time in child processes, and their progress.

Of the folders that a study finds, some hold finished runs, some can be resumed, and others must be set aside.
"""

import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from silohash.base.attempts import attempted
from silohash.base.errors import RunChanged, UserError
from silohash.base.files import explaining_disk_errors
from silohash.base.locks import locked
from silohash.base.types import Notify
from silohash.base.visible import visible
from silohash.data.partitions.base import read_partition
from silohash.measure.evaluation import read_per_query
from silohash.report.tables import read_results
from silohash.run.config.sections import EXECUTION_KEYS, RunConfig
from silohash.run.folder import Run
from silohash.study.figures import Figure
from silohash.study.worker import FAILED, GRACE_SECONDS, LOCK_SECONDS, LOG
from silohash.training.checkpoint import has_checkpoint, load_checkpoint
from silohash.training.engines.processes import Exchange, ProcessEndedError, ProcessPool, available_threads

POLL_SECONDS = 0.1
LOG_TAIL_BYTES = 1 << 14
State = Literal["new", "started", "finished"]
DIFFERENCES_SHOWN = 3
IGNORED_KEYS = tuple(f"train.{name}" for name in EXECUTION_KEYS)
"""Settings that do not change a run's results."""

RUNS_PER_PROCESS = 24
"""A process is replaced after this number of runs, because the memory that its allocator keeps grows with each."""

Ending: TypeAlias = tuple[int, str]
"""Exit code and last message of a run."""


@dataclass(frozen=True)
class Job:
    """A run to train or, if its folder holds a started one, to resume. With ``figures``, it is then evaluated.

    The run keeps what the figures ``drawn`` need.
    """

    name: str
    folder: Path
    config: RunConfig
    figures: bool = True
    drawn: tuple[Figure, ...] = ()

    @property
    def log_path(self) -> Path:
        """The run's log."""
        return self.folder / LOG

    def rounds_done(self) -> int:
        """Return the number of finished rounds."""
        return attempted(Run(self.folder).rounds_path.read_bytes, OSError, otherwise=b"").count(b"\n")

    def request(self, threads: int) -> dict[str, Any]:
        """Return the request to a child process, whose ``threads`` are divided among the run's workers."""
        config = self.config.to_json()
        train = config["train"]
        train["threads"] = train["threads"] or max(1, threads // train["workers"])
        drawn = [figure.model_dump(mode="json", exclude_unset=True) for figure in self.drawn]
        return {"folder": str(self.folder), "config": config, "figures": self.figures, "drawn": drawn}


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
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


class StudyProgress:
    """Count finished runs and rounds, and estimate the remaining time from the rounds so far."""

    def __init__(self, console: Console, noun: str, configs: Sequence[RunConfig], *, finished: int = 0) -> None:
        self.console = console
        self.noun = noun
        self.total, self.done = len(configs) + finished, finished
        self.total_rounds = sum(config.federated.rounds for config in configs)
        self.earlier_rounds = 0
        self.finished_rounds = 0
        self.running: dict[str, int] = {}
        self.started_at = time.monotonic()
        self.bars: Progress | None = None
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.bars = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False), console=self.console,
            )  # fmt: skip
            self.bars.start()
            self.tasks[""] = self.bars.add_task(self.noun, total=self.total, completed=self.done, note="")
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()
            self.bars = None

    def started(self, job: Job, rounds: int) -> None:
        """Show that a run has started, with ``rounds`` finished before."""
        self.earlier_rounds += rounds
        if self.bars is None:
            self._print(f"{job.name}: {f'resumed after round {rounds}' if rounds else 'started'}")
        else:
            self.tasks[job.name] = self.bars.add_task(
                f"  {visible(job.name)}", total=job.config.federated.rounds, note="rounds"
            )

    def ended(self, outcome: Outcome) -> None:
        """Show how a run ended."""
        name = outcome.job.name
        self.done += 1
        self.running.pop(name, None)
        self.finished_rounds += outcome.job.config.federated.rounds
        if self.bars is not None:
            self.bars.remove_task(self.tasks.pop(name))
            self.bars.update(self.tasks[""], completed=self.done, note=self._remaining())
        if outcome.code:
            self._print(f"{name}: failed: {outcome.message} (log: {outcome.job.log_path})")
        elif self.bars is None:
            count = f"{self.done}/{self.total} {self.noun}"
            self._print(f"{name}: done in {duration(outcome.seconds)} ({count}{self._remaining()})")

    def update(self, rounds: Mapping[str, int]) -> None:
        """Move the bars of the running runs to their numbers of finished rounds."""
        self.running = dict(rounds)
        if self.bars is not None:
            for name, count in rounds.items():
                self.bars.update(self.tasks[name], completed=count)
            self.bars.update(self.tasks[""], note=self._remaining())

    def _remaining(self) -> str:
        rounds = self.finished_rounds + sum(self.running.values())
        if not self.finished_rounds or rounds <= self.earlier_rounds or rounds >= self.total_rounds:
            return ""
        seconds_per_round = (time.monotonic() - self.started_at) / (rounds - self.earlier_rounds)
        return f", about {duration(seconds_per_round * (self.total_rounds - rounds))} left"

    def _print(self, text: str) -> None:
        self.console.print(visible(text), highlight=False, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a duration as text, in the unit that fits its size.

    Example:
        >>> duration(7.4), duration(400), duration(9000)
        ('7 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    display: StudyProgress,
    make_pool: Callable[[int], JobPool] = JobPool,
    *,
    until: float = math.inf,
) -> list[Outcome]:
    """Run chains of jobs, a number of processes at a time, and return the outcomes in the order in which the jobs ended.

    The next job of a chain starts when the one before has ended. A job that fails does not stop the others. At the time
    ``until``, as given by `time.monotonic`, the running jobs are stopped and keep what they finished. A pool is only made if
    there is a job.

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
    tail = attempted(path.read_bytes, OSError, otherwise=b"")[-LOG_TAIL_BYTES:]
    lines = tail.decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def unfinished(jobs: Sequence[Job], notify: Notify, *, fresh: bool = False) -> list[Job]:
    """Return the runs to start or resume.

    A folder that cannot be resumed is set aside, and its run starts again.

    Raises:
        UserError: If the settings of a run have changed and ``fresh`` is false. No folder is moved in that case.
    """
    for job in jobs:
        if job.folder.exists():
            # A killed study may have left a run that is still stopping.
            with locked(job.folder, wait_seconds=LOCK_SECONDS):
                pass
    changed = {job.name: difference for job in jobs if (difference := changes(job))}
    if changed and not fresh:
        name, others = next(iter(changed)), f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise RunChanged(
            f"The run {name}{others} was started with other settings: {changed[name]}. Restore the study, choose another "
            "--out, or run the changed runs again with --fresh."
        )
    for job in jobs:
        reason = f"its settings have changed: {changed[job.name]}" if job.name in changed else damage(job)
        if reason:
            aside = set_aside(job.folder)
            notify(f"{job.name}: starts again; the old folder is now {aside.name} ({reason})")
    return [job for job in jobs if state_of(job) != "finished"]


def state_of(job: Job) -> State:
    """Return the state of a run. A run whose figures cannot be read counts as started, and is evaluated again."""
    run = Run(job.folder)
    if not run.config_path.exists():
        return "new"
    if not job.figures:
        return "finished" if run.is_trained else "started"
    try:
        read_results(run.results_path)
        read_per_query(run.per_query_path)
    except UserError:
        return "started"
    return "finished" if run.report_path.exists() else "started"


def damage(job: Job) -> str:
    """Return why a run cannot be resumed; empty if it can be, or was never started."""
    run = Run(job.folder)
    if not run.config_path.exists():
        left = [path for path in (run.checkpoint, run.model_folder, run.results_path) if path.exists()]
        return f"it has {left[0].name} but no config.toml" if left else ""
    try:
        started = run.config
        read_partition(run.folder / "partition.json")
        run.rounds()
        if has_checkpoint(run.checkpoint) and not run.is_trained:
            load_checkpoint(run.checkpoint, started.digest())
    except UserError as error:
        return str(error)
    return ""


def changes(job: Job) -> str:
    """Return how a started run's settings differ from the study's; empty if they do not, or cannot be read."""
    before = attempted(lambda: Run(job.folder).config, UserError, otherwise=job.config)
    return "" if before.located_digest() == job.config.located_digest() else difference(before, job.config)


def difference(before: RunConfig, now: RunConfig) -> str:
    """Return the settings in which two runs differ, in words."""
    old, new = _flat(before.to_json()), _flat(now.to_json())
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key) and key not in IGNORED_KEYS]
    shown = [f"{key} was {_value(old, key)} and is now {_value(new, key)}" for key in keys[:DIFFERENCES_SHOWN]]
    more = len(keys) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def set_aside(folder: Path) -> Path:
    """Rename a folder to an unused name next to it, and return the new path."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.aside-{number}")).exists():
        number += 1
    with explaining_disk_errors(folder):
        folder.rename(aside)
    return aside


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        flat |= _flat(inner, f"{prefix}{name}.") if isinstance(inner, Mapping) else {f"{prefix}{name}": inner}
    return flat


def _value(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
