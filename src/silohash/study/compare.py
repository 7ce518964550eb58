"""Comparison of runs query by query: difference, interval and p-value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from silohash.base.errors import NotMeasured, RunsDiffer, TooFew, UnknownName, UnsuitableMeasure
from silohash.base.registry import suggestion
from silohash.base.types import ResultRow
from silohash.evaluate.measures import Measure, is_rank
from silohash.evaluate.significance import bootstrap_interval, paired_bootstrap
from silohash.measure.evaluation import Key, read_per_query
from silohash.report.tables import choices_besides_round, read_results
from silohash.run.folder import Run
from silohash.study.pivot import GROUPS


@dataclass(frozen=True)
class Difference:
    """The difference between two runs in one figure.

    Attributes:
        evaluation: Such as "GG", or "GG/PG" if one run has a global model and the other personal models.
        first_mean: The first run's figure, over the queries that both runs count.
        low: Lower end of the 95 % bootstrap interval of the difference over the queries.
        p_value: Two-sided p-value of the paired bootstrap.
        queries: Number of queries that both runs count.
    """

    first: str
    second: str
    evaluation: str
    task: str
    measure: str
    first_mean: float
    second_mean: float
    difference: float
    low: float
    high: float
    p_value: float
    queries: int


@dataclass(frozen=True)
class EvaluatedRun:
    """The figures of a run, in total and per query, with its name in messages. See `silohash.study.results.RunResult`."""

    name: str
    rows: tuple[ResultRow, ...]
    per_query: Mapping[Key, npt.NDArray[np.float64]]
    queries: str


def read_evaluated(runs: Sequence[Run]) -> list[EvaluatedRun]:
    """Read the figures of runs. Runs with the same name are named by the paths of their folders.

    Raises:
        UserError: If a run has no figures, or no figures per query.
    """
    names = [run.name for run in runs]
    found = []
    for run in runs:
        run.check()
        rows = tuple(read_results(run.results_path))
        if not run.per_query_path.exists():
            raise NotMeasured(
                f'"{run.folder}" has no figures per query ({run.per_query_path.name}). '
                f"Evaluate it again: silohash evaluate {run.folder}"
            )
        if not rows:
            raise NotMeasured(
                f'"{run.folder}" has no figures. Evaluate it with measures that fit its data: [evaluate].'
            )
        per_query, queries = read_per_query(run.per_query_path)
        name = run.name if names.count(run.name) == 1 else str(run.folder)
        found.append(EvaluatedRun(name, rows, per_query, queries))
    return found


def compare_runs(found: Sequence[EvaluatedRun], measures: Sequence[str] = ()) -> list[Difference]:
    """Return the differences of every pair of runs, one per evaluation, task and measure that both have.

    Raises:
        UserError: If there are fewer than two runs, two runs were measured differently or on different queries, no run
            has a measure, or two runs have no figure in common.
    """
    if len(found) < 2:
        raise TooFew("There is only one run, and nothing to compare it with. Name two or more.")
    wanted = _wanted(found, measures)
    for first, second in combinations(found, 2):
        _check(first, second)
    differences = []
    for first, second in combinations(found, 2):
        of_pair = [d for d in _differences(first, second) if d.measure in wanted]
        if not of_pair:
            raise RunsDiffer(
                f'"{first.name}" and "{second.name}" have no figure in common: {_figures(first)}, and {_figures(second)}. '
                "Evaluate them with the same evaluations, tasks and measures in [evaluate]."
            )
        differences += of_pair
    return differences


def _wanted(found: Sequence[EvaluatedRun], measures: Sequence[str]) -> set[str]:
    known = {measure for run in found for _, _, measure in run.per_query if not is_rank(measure)}
    wanted = [str(Measure.parse(text)) for text in measures]
    for measure in wanted:
        if is_rank(measure):
            raise UnsuitableMeasure(
                f'"{measure}" is a median, which the paired test of means does not cover. Compare R@K or mAP.'
            )
        if measure not in known:
            raise UnknownName(
                f'None of the runs measured "{measure}"{suggestion(measure, known)}. Available: {", ".join(sorted(known))}.'
            )
    return set(wanted) or known


def _check(first: EvaluatedRun, second: EvaluatedRun) -> None:
    one, other = first.rows[0], second.rows[0]
    for what, value, other_value in (
        ("data", one.dataset, other.dataset),
        ("protocol", one.protocol, other.protocol),
        ("conditions", choices_besides_round(one), choices_besides_round(other)),
    ):
        if value != other_value:
            raise RunsDiffer(
                f'"{first.name}" and "{second.name}" cannot be compared, because they differ in their {what}: "{value}" and '
                f'"{other_value}". Compare runs on the same data with the same evaluation.'
            )
    if first.queries != second.queries:
        raise RunsDiffer(
            f'"{first.name}" and "{second.name}" cannot be compared, because their queries from {one.dataset} differ. '
            "If the files or the options of the data changed between them, train one of them again."
        )


def _differences(first: EvaluatedRun, second: EvaluatedRun) -> list[Difference]:
    keys = {_comparable(key): key for key in second.per_query}
    found = []
    for key in first.per_query:
        other = keys.get(_comparable(key))
        if other is None:
            continue
        values, others = first.per_query[key], second.per_query[other]
        both = np.isfinite(values) & np.isfinite(others)
        if not both.any():
            continue
        one, two = values[both], others[both]
        seed = first.rows[0].seed
        low, high = bootstrap_interval(one - two, seed)
        found.append(
            Difference(
                first=first.name, second=second.name,
                evaluation=key[0] if key[0] == other[0] else f"{key[0]}/{other[0]}", task=key[1], measure=key[2],
                first_mean=float(one.mean()), second_mean=float(two.mean()), difference=float((one - two).mean()),
                low=low, high=high, p_value=paired_bootstrap(one, two, seed), queries=int(both.sum()),
            )
        )  # fmt: skip
    return found


def _comparable(key: Key) -> tuple[int, str, str]:
    """Return what two figures must share to be compared. Global and personal models may be compared."""
    group = next(number for number, evaluations in enumerate(GROUPS) if key[0] in evaluations)
    return group, key[1], key[2]


def _figures(run: EvaluatedRun) -> str:
    return f"{run.name} has {', '.join(' '.join(key) for key in run.per_query)}"
