"""A whole study, from its checks to its results."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from silohash.base.errors import UserError
from silohash.base.files import check_own_folder, write_text
from silohash.base.locks import LOCK, locked
from silohash.base.visible import visible_lines
from silohash.study.config import StudyConfig
from silohash.study.jobs import Job, JobPool, Outcome, StudyProgress, is_over, run_jobs, single, unfinished
from silohash.study.plan import PlannedRun, Tuned, planned_runs, search_name, selected
from silohash.study.results import RUNS, StudyResults, collect, write_summary
from silohash.study.tuning import Tuning
from silohash.study.worker import FAILED, USER_ERROR


@dataclass(frozen=True)
class StudyOutcome:
    """How a study ended: all finished runs, those that failed this time, and whether the time limit stopped it.

    Attributes:
        plots: The files of its figures.
        undrawn: Why figures are missing.
    """

    results: StudyResults
    failed: Sequence[Outcome] = ()
    stopped: bool = False
    plots: Sequence[Path] = ()
    undrawn: Sequence[UserError] = ()

    @property
    def code(self) -> int:
        """The exit status: 0 on success, 2 if all failures are user's errors, as of figures, and 1 otherwise."""
        if not self.failed:
            return USER_ERROR if self.undrawn else 0
        return USER_ERROR if all(outcome.code == USER_ERROR for outcome in self.failed) else FAILED


def run_study(
    config: StudyConfig,
    out: Path,
    console: Console,
    *,
    only: Sequence[str] = (),
    fresh: bool = False,
    smoke: bool = False,
    until: float = math.inf,
    make_pool: Callable[[int], JobPool] = JobPool,
) -> StudyOutcome:
    """Run the unfinished part of a study, after checking the config of every run.

    ``only`` selects runs, each as ``axis=choice``. With ``fresh``, runs and searches whose settings have changed are set
    aside and started again. With ``smoke``, several runs may have equal settings, as they do when their rounds are cut
    short. At the time ``until``, see `run_jobs`, running runs are stopped as by Ctrl-C, and the next start continues them.

    Raises:
        UserError: If a config is wrong, another study works in the folder, or it holds other files or runs with other
            settings.
        KeyboardInterrupt: After the runs have been stopped.
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
            with closing(Tuning(config, config.tune, out, notify, fresh=fresh)) as tuning:
                names = {search_name(config, run.choices) for run in wanted}
                failed += _tune(tuning, names, config.processes, console, make_pool, until)
                if is_over(until):
                    return StudyOutcome(collect(config, out), failed, stopped=True)
                wanted = _with_tuned(config, wanted, tuning.best())
        jobs = [
            Job(run.name, out / RUNS / run.name, run.config, drawn=config.figures_of(run.choices)) for run in wanted
        ]
        left = unfinished(jobs, notify, fresh=fresh)
        if left:
            with StudyProgress(
                console, "runs", [job.config for job in left], finished=len(jobs) - len(left)
            ) as progress:
                outcomes = run_jobs(map(single, left), config.processes, progress, make_pool, until=until)
            failed += [outcome for outcome in outcomes if outcome.code]
        results = collect(config, out)
        write_summary(results, out)
    return StudyOutcome(results, failed, stopped=bool(results.missing) and is_over(until))


def _with_tuned(config: StudyConfig, wanted: Sequence[PlannedRun], tuned: Tuned) -> list[PlannedRun]:
    """Return the runs with what their searches found. A search whose trials all failed leaves its runs out."""
    ready = {run.name for run in wanted if search_name(config, run.choices) in tuned}
    return [run for run in planned_runs(config, tuned, refuse_equal=False) if run.name in ready]


def _tune(
    tuning: Tuning, names: set[str], processes: int, console: Console, make_pool: Callable[[int], JobPool], until: float
) -> list[Outcome]:
    """Run the unfinished trials of some searches until a point in time, and return those that failed."""
    chosen = [search for search in tuning.searches if search.name in names]
    left = tuning.left(chosen)
    if not left:
        return []
    finished = len(chosen) * tuning.tune.trials - len(left)
    with StudyProgress(console, "trials", left, finished=finished) as progress:
        chains = [tuning.chain(search) for search in chosen]
        outcomes = run_jobs(chains, processes, progress, make_pool, until=until)
    return [outcome for outcome in outcomes if outcome.code]
