"""A whole study, from its checks to its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from silohash.files import check_own_folder, write_text
from silohash.locks import LOCK, locked
from silohash.study.config import StudyConfig
from silohash.study.folders import unfinished
from silohash.study.jobs import Job, JobPool, Outcome, ProcessJobPool, run_jobs, single
from silohash.study.plan import planned_runs, search_name, selected
from silohash.study.progress import StudyProgress
from silohash.study.results import RUNS, StudyResults, collect, write_summary
from silohash.study.tuning import Tuning
from silohash.study.worker import FAILED, USER_ERROR
from silohash.visible import visible_lines


@dataclass(frozen=True)
class StudyOutcome:
    """How a study ended.

    Attributes:
        results: the results of all finished runs, including those of earlier starts.
        failed: the runs that failed this time.
    """

    results: StudyResults
    failed: Sequence[Outcome] = ()

    @property
    def code(self) -> int:
        """The exit status: 0 on success, 2 if all failures are user's errors, 1 otherwise."""
        if not self.failed:
            return 0
        return USER_ERROR if all(outcome.code == USER_ERROR for outcome in self.failed) else FAILED


def run_study(
    config: StudyConfig,
    out: Path,
    console: Console,
    *,
    only: Sequence[str] = (),
    fresh: bool = False,
    smoke: bool = False,
    make_pool: Callable[[int], JobPool] = ProcessJobPool,
) -> StudyOutcome:
    """Run the unfinished part of a study, after checking the config of every run.

    Args:
        config: the study.
        out: its folder.
        console: where to show the progress.
        only: the runs to do, as ``axis=choice``; all by default.
        fresh: whether runs and searches whose settings have changed are set aside and started again.
        smoke: whether several runs may have equal settings, as they do when their rounds are cut short.
        make_pool: makes the pool of processes that do the runs.

    Raises:
        UserError: if a config is wrong, another study works in the folder, or it holds other files or runs with other
            settings.
        KeyboardInterrupt: after the runs have been stopped.
    """
    check_own_folder(out, LOCK)
    wanted = selected(config, planned_runs(config, refuse_equal=not smoke), only)

    def notify(text: str) -> None:
        """Print a line next to the progress bars."""
        console.print(visible_lines(text), highlight=False, markup=False, soft_wrap=True)

    with locked(out, "Wait until it has finished, or choose another --out."):
        write_text(out / "study.toml", config.to_toml())
        failed: list[Outcome] = []
        if config.tune:
            names = {search_name(config, run.choices) for run in wanted}
            with Tuning(config, config.tune, out, notify, fresh=fresh) as tuning:
                failed += _tune(tuning, names, config.processes, console, make_pool)
                tuned = tuning.best()
            ready = {run.name for run in wanted if search_name(config, run.choices) in tuned}
            wanted = [run for run in planned_runs(config, tuned, refuse_equal=False) if run.name in ready]
        jobs = [Job(run.name, out / RUNS / run.name, run.config) for run in wanted]
        left = unfinished(jobs, notify, fresh=fresh)
        if left:
            with StudyProgress(
                console, "runs", [job.config for job in left], finished=len(jobs) - len(left)
            ) as progress:
                failed += _failures(run_jobs(map(single, left), config.processes, progress, make_pool))
        results = collect(config, out)
        write_summary(results, out)
    return StudyOutcome(results, failed)


def _tune(
    tuning: Tuning, names: set[str], processes: int, console: Console, make_pool: Callable[[int], JobPool]
) -> list[Outcome]:
    """Run the unfinished trials of some searches and return those that failed."""
    chosen = [search for search in tuning.searches if search.name in names]
    left = tuning.left(chosen)
    if not left:
        return []
    finished = len(chosen) * tuning.tune.trials - len(left)
    with StudyProgress(console, "trials", left, finished=finished) as progress:
        return _failures(run_jobs([tuning.chain(search) for search in chosen], processes, progress, make_pool))


def _failures(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.code]
