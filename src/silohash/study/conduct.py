"""A whole study: checked, tuned, run, and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from silohash.files import write_text
from silohash.study.cells import cells, search_name, selected
from silohash.study.child import USER_ERROR
from silohash.study.folders import unfinished
from silohash.study.grid import StudyConfig
from silohash.study.locks import locked
from silohash.study.pool import ChildProcess, Job, Outcome, Worker, run_jobs, single
from silohash.study.progress import StudyProgress
from silohash.study.results import RUNS, StudyResults, collect, write_summary
from silohash.study.tuning import Tuning


@dataclass(frozen=True)
class Conducted:
    """A study that was run.

    Attributes:
        results: what all its finished runs found, those of earlier starts included.
        failed: the runs that failed this time.
    """

    results: StudyResults
    failed: Sequence[Outcome] = ()

    @property
    def code(self) -> int:
        """The exit status: 0, or 2 if the user can put right all that failed, else 1."""
        if not self.failed:
            return 0
        return USER_ERROR if all(outcome.code == USER_ERROR for outcome in self.failed) else 1


def conduct(
    config: StudyConfig,
    out: Path,
    console: Console,
    *,
    only: Sequence[str] = (),
    fresh: bool = False,
    smoke: bool = False,
    make_worker: Callable[[int], Worker] = ChildProcess,
) -> Conducted:
    """Runs what is not finished of a study; every config is checked before the first run starts.

    Args:
        config: the study.
        out: its folder.
        console: where to show how far it is.
        only: ``axis=choice``: the runs to do; all by default.
        fresh: whether runs and searches whose settings have changed since are set aside and begun anew.
        smoke: whether runs that come to the same are fine, as when all have their rounds cut.
        make_worker: makes who does the runs, with its threads.

    Raises:
        UserError: if a config is wrong, another study is at work in the folder, or it holds runs of other settings.
        KeyboardInterrupt: after the runs have been stopped.
    """
    wanted = selected(config, cells(config, refuse_equal=not smoke), only)

    def notify(text: str) -> None:
        """Prints a line beside the bars."""
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    with locked(out, f"Another silohash study is at work in {out}. Wait for it, or give another --out."):
        write_text(out / "study.toml", config.to_toml())
        failed: list[Outcome] = []
        if config.tune:
            asked = {search_name(config, cell.choices) for cell in wanted}
            with Tuning(config, config.tune, out, notify, fresh=fresh) as tuning:
                failed += _tune(tuning, asked, config.processes, console, make_worker)
                tuned = tuning.best()
            names = {cell.name for cell in wanted if search_name(config, cell.choices) in tuned}
            wanted = [cell for cell in cells(config, tuned, refuse_equal=False) if cell.name in names]
        jobs = [Job(cell.name, out / RUNS / cell.name, cell.config) for cell in wanted]
        left = unfinished(jobs, notify, fresh=fresh)
        if left:
            with StudyProgress(
                console, "runs", [job.config for job in left], finished=len(jobs) - len(left)
            ) as progress:
                failed += _failed(run_jobs([single(job) for job in left], config.processes, progress, make_worker))
        results = collect(config, out)
        write_summary(results, out)
    return Conducted(results, failed)


def _tune(
    tuning: Tuning, names: set[str], processes: int, console: Console, make_worker: Callable[[int], Worker]
) -> list[Outcome]:
    chosen = [search for search in tuning.searches if search.name in names]
    left = tuning.left(chosen)
    if not left:
        return []
    finished = len(chosen) * tuning.tune.trials - len(left)
    with StudyProgress(console, "trials", left, finished=finished) as progress:
        return _failed(run_jobs([tuning.chain(search) for search in chosen], processes, progress, make_worker))


def _failed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.code]
