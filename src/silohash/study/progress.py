"""How far a study is: bars in a terminal, a plain line a run elsewhere; both on standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from silohash.runtime.config import RunConfig
from silohash.study.pool import Job, Outcome


class StudyProgress:
    """Counts runs and rounds, and estimates what is left from the rounds done so far.

    Args:
        console: where to show it.
        what: what the runs are called, as "runs" or "trials".
        configs: of the runs that are to come.
        finished: how many are finished already.
    """

    def __init__(self, console: Console, what: str, configs: Sequence[RunConfig], *, finished: int = 0) -> None:
        self.console = console
        self.what = what
        self.total, self.done = len(configs) + finished, finished
        self.rounds_in_all = sum(config.federated.rounds for config in configs)
        self.rounds_before = 0
        self.rounds_done = 0
        self.running: dict[str, int] = {}
        self.started_at = time.monotonic()
        self.bars: Progress | None = None
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> StudyProgress:
        if self.console.is_terminal:
            self.bars = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"),
                console=self.console,
            )  # fmt: skip
            self.bars.start()
            self.tasks[""] = self.bars.add_task(self.what, total=self.total, completed=self.done, said="")
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()
            self.bars = None

    def started(self, job: Job, rounds: int) -> None:
        """Shows a run, in a terminal with a bar of its own."""
        self.rounds_before += rounds
        if self.bars is None:
            self._print(f"{job.name}: {f'goes on after round {rounds}' if rounds else 'started'}")
        else:
            self.tasks[job.name] = self.bars.add_task(f"  {job.name}", total=job.config.federated.rounds, said="rounds")

    def ended(self, outcome: Outcome) -> None:
        """Says how a run ended."""
        name = outcome.job.name
        self.done += 1
        self.running.pop(name, None)
        self.rounds_done += outcome.job.config.federated.rounds
        if self.bars is not None:
            self.bars.remove_task(self.tasks.pop(name))
            self.bars.update(self.tasks[""], completed=self.done, said=self._left())
        if outcome.code:
            self._print(f"{name}: failed: {outcome.said} (log: {outcome.job.log_path})")
        elif self.bars is None:
            taken, count = duration(outcome.seconds), f"{self.done}/{self.total} {self.what}"
            self._print(f"{name}: done in {taken} ({count}{self._left()})")

    def looked(self, rounds: Mapping[str, int]) -> None:
        """Moves the bars of the running ones."""
        self.running = dict(rounds)
        if self.bars is not None:
            for name, count in rounds.items():
                self.bars.update(self.tasks[name], completed=count)
            self.bars.update(self.tasks[""], said=self._left())

    def _left(self) -> str:
        """Returns the remaining time in words; nothing before a run has ended, or at the end."""
        rounds = self.rounds_done + sum(self.running.values())
        if not self.rounds_done or rounds <= self.rounds_before or rounds >= self.rounds_in_all:
            return ""
        a_round = (time.monotonic() - self.started_at) / (rounds - self.rounds_before)
        return f", about {duration(a_round * (self.rounds_in_all - rounds))} left"

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Returns a time in words that fit its size.

    Example:
        >>> duration(7.4), duration(400), duration(9000)
        ('7 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
