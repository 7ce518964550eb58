"""The results of a study's runs, read from their folders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.attempts import attempted
from silohash.base.errors import UserError
from silohash.base.memory import read_peak
from silohash.base.types import ResultRow
from silohash.measure.evaluation import Key, read_per_query
from silohash.report.tables import read_results, write_results
from silohash.run.events import RoundRecord
from silohash.run.folder import Run
from silohash.study.config import Choices, StudyConfig
from silohash.study.plan import PlannedRun, Tuned, planned_runs, read_best, search_name

RUNS = "runs"
BEST = Path("tuning") / "best.toml"


@dataclass(frozen=True)
class RunResult:
    """The results of one run of a study.

    Attributes:
        per_query: (evaluation, task, measure) -> ``(Q,)`` float64, NaN for a query that is not counted; for GG, PG and
            XS.
        queries: Digest of the query ids. The values of two runs may be paired if their digests are equal.
        peak_bytes: Peak memory of the process that trained and measured the run; None if it was not measured.
    """

    choices: Choices
    seed: int
    folder: Path
    rows: tuple[ResultRow, ...]
    per_query: Mapping[Key, npt.NDArray[np.float64]]
    rounds: tuple[RoundRecord, ...]
    queries: str = ""
    peak_bytes: int | None = None


@dataclass(frozen=True)
class StudyResults:
    """The results of a study.

    Attributes:
        runs: The finished runs, in the order of the axes, then of the seeds.
        missing: The names of the runs that are not finished, or were run with settings other than the study's present
            ones.
        tuned: Name of a search -> the parameters it found; empty without tuning.
    """

    config: StudyConfig
    runs: tuple[RunResult, ...]
    missing: tuple[str, ...] = ()
    tuned: Tuned = field(default_factory=dict)

    @cached_property
    def _by_choices(self) -> dict[frozenset[tuple[str, str]], list[RunResult]]:
        found: dict[frozenset[tuple[str, str]], list[RunResult]] = {}
        for run in sorted(self.runs, key=lambda run: self.config.seeds.index(run.seed)):
            found.setdefault(frozenset(run.choices.items()), []).append(run)
        return found

    def runs_with(self, fields: Choices) -> list[RunResult]:
        """Return the finished runs whose choices are those of ``fields``, one per seed and in the order of the seeds."""
        return self._by_choices.get(frozenset((axis, fields.get(axis, "")) for axis in self.config.axis_names), [])


def collect(config: StudyConfig, out: Path) -> StudyResults:
    """Read the finished runs of a study."""
    tuned = read_best(out / BEST) if config.tune else {}
    found, missing = [], []
    for planned in planned_runs(config, tuned, refuse_equal=False):
        run = Run(out / RUNS / planned.name)
        if is_finished(run, planned) and (not config.tune or search_name(config, planned.choices) in tuned):
            unseen = config.table.database == "unseen"
            values, queries = read_per_query(run.unseen_per_query_path if unseen else run.per_query_path)
            rows = read_results(run.unseen_results_path if unseen else run.results_path)
            found.append(
                RunResult(
                    choices=planned.choices, seed=planned.seed, folder=run.folder,
                    rows=tuple(rows), per_query=values, rounds=tuple(run.rounds()),
                    queries=queries, peak_bytes=read_peak(run.memory_path),
                )
            )  # fmt: skip
        else:
            missing.append(planned.name)
    return StudyResults(config, tuple(found), tuple(missing), tuned)


def write_summary(results: StudyResults, out: Path) -> None:
    """Write the figures of all runs to the study's ``results.csv``."""
    write_results(out / "results.csv", [row for run in results.runs for row in run.rows])


def is_finished(run: Run, planned: PlannedRun) -> bool:
    """Return whether a folder holds the figures of a run with the study's present settings."""
    if not (run.config_path.exists() and run.results_path.exists() and run.per_query_path.exists()):
        return False
    digest = attempted(lambda: run.config.located_digest(), UserError, otherwise=None)
    return digest == planned.config.located_digest()
