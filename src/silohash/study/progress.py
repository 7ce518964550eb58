"""The progress of a study on standard error: bars in a terminal, one line per run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from silohash.config.sections import RunConfig
from silohash.study.jobs import Job, Outcome
from silohash.visible import visible


class StudyProgress:
    """Count finished runs and rounds, and estimate the remaining time from the rounds so far.

    Args:
        console: where to show the progress.
        noun: "runs" or "trials".
        configs: the configs of the runs to come.
        finished: number of runs that finished earlier.
    """

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

    def __enter__(self) -> StudyProgress:
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
        """Return the remaining time in words; empty before the first run has ended and at the end."""
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
