"""What a study's runs found, read from their folders."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.report.tables import read_results, write_results
from silohash.runtime.events import RoundRecord
from silohash.runtime.per_query import Key, read_per_query
from silohash.runtime.run import Run
from silohash.study.cells import Cell, Tuned, cells, search_name
from silohash.study.grid import Choices, StudyConfig
from silohash.types import ResultRow, UserError

RUNS = "runs"
BEST = Path("tuning") / "best.toml"


@dataclass(frozen=True)
class CellResult:
    """What one run of a study found.

    Attributes:
        choices: axis -> choice, in the axes' order.
        seed: the run's seed.
        folder: the run's.
        rows: its figures.
        per_query: (evaluation, task, measure) -> ``(Q,)`` float64, NaN for a query that is not counted; of GG, PG and XS.
        rounds: the record of every round.
        queries: digest of the queries' ids: values of two runs may be paired where it is the same.
    """

    choices: Choices
    seed: int
    folder: Path
    rows: tuple[ResultRow, ...]
    per_query: Mapping[Key, npt.NDArray[np.float64]]
    rounds: tuple[RoundRecord, ...]
    queries: str = ""


@dataclass(frozen=True)
class StudyResults:
    """What a study found.

    Attributes:
        config: the study.
        cells: the finished runs, in the order of the axes, then of the seeds.
        missing: the names of the runs that are not finished, or are of other settings than the study's now.
        tuned: the name of a search -> what it found; empty without tuning.
    """

    config: StudyConfig
    cells: tuple[CellResult, ...]
    missing: tuple[str, ...] = ()
    tuned: Tuned = field(default_factory=dict)


def collect(config: StudyConfig, out: Path) -> StudyResults:
    """Reads a study's finished runs.

    Args:
        config: the study.
        out: the study's folder.

    Raises:
        UserError: if what tuning found, or a finished run's file, is damaged.
    """
    tuned = read_best(out / BEST) if config.tune else {}
    found, missing = [], []
    for cell in cells(config, tuned, refuse_equal=False):
        run = Run(out / RUNS / cell.name)
        if is_finished(run, cell) and (not config.tune or search_name(config, cell.choices) in tuned):
            values, queries = read_per_query(run.per_query_path)
            found.append(
                CellResult(
                    choices=cell.choices, seed=cell.seed, folder=run.folder, rows=tuple(read_results(run.results_path)),
                    per_query=values, rounds=tuple(run.rounds()), queries=queries,
                )
            )  # fmt: skip
        else:
            missing.append(cell.name)
    return StudyResults(config, tuple(found), tuple(missing), tuned)


def write_summary(results: StudyResults, out: Path) -> Path:
    """Writes the figures of all runs to the study's ``results.csv``, and returns its path."""
    path = out / "results.csv"
    write_results(path, [row for cell in results.cells for row in cell.rows])
    return path


def is_finished(run: Run, cell: Cell) -> bool:
    """Tells whether a folder holds a run's figures, of the settings that the study has now."""
    if not (run.config_path.exists() and run.results_path.exists() and run.per_query_path.exists()):
        return False
    try:
        return run.config.digest() == cell.config.digest()
    except UserError:
        return False


def read_best(path: Path) -> Tuned:
    """Reads what tuning found; nothing where it has not ended yet.

    Raises:
        UserError: if the file is damaged.
    """
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: dict(search["set"]) for name, search in value.items()}
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}). Remove it; the study's next start writes it anew.") from error
