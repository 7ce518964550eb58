"""Runs compared query by query: difference, interval and p-value, where they were asked the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from silohash.evaluate.measures import Measure
from silohash.evaluate.significance import bootstrap_interval, paired_bootstrap
from silohash.registry import suggestion
from silohash.report.tables import choices, read_results
from silohash.runtime.per_query import Key, read_per_query
from silohash.runtime.run import Run
from silohash.study.pivot import GROUPS
from silohash.types import ResultRow, UserError


@dataclass(frozen=True)
class Difference:
    """Two runs' difference in one figure.

    Attributes:
        first: the first run's name.
        second: the second's.
        evaluation: as "GG", or "GG/PG" where one has a global model and the other personal ones.
        task: as "i2t".
        measure: as "mAP@all".
        first_mean: the first run's figure, over the queries that both count.
        second_mean: the second's.
        difference: the first less the second.
        low: lower end of the difference's 95 % bootstrap interval over queries.
        high: upper end.
        p_value: of the paired bootstrap, two-sided.
        queries: how many queries both count.
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
class Measured:
    """A run's figures, and those of its queries.

    Attributes:
        name: what the run is called.
        rows: its figures.
        per_query: (evaluation, task, measure) -> ``(Q,)``, NaN for a query that is not counted.
        queries: digest of the queries' ids.
    """

    name: str
    rows: tuple[ResultRow, ...]
    per_query: Mapping[Key, npt.NDArray[np.float64]]
    queries: str


def read_measured(runs: Sequence[Run]) -> list[Measured]:
    """Reads what runs measured; runs of the same name are told apart by their folder's path.

    Raises:
        UserError: if a run has no figures, or was evaluated before they were kept query by query.
    """
    names = [run.name for run in runs]
    found = []
    for run in runs:
        _ = run.config
        rows = tuple(read_results(run.results_path))
        if not run.per_query_path.exists():
            raise UserError(
                f'"{run.folder}" has no figures query by query ({run.per_query_path.name}). '
                f"Measure it again: silohash evaluate {run.folder}"
            )
        if not rows:
            raise UserError(f'"{run.folder}" has no figures. Evaluate it with measures that it can give: [evaluate].')
        per_query, queries = read_per_query(run.per_query_path)
        name = run.name if names.count(run.name) == 1 else str(run.folder)
        found.append(Measured(name, rows, per_query, queries))
    return found


def compare_runs(found: Sequence[Measured], measures: Sequence[str] = ()) -> list[Difference]:
    """Compares every two of some runs.

    Args:
        found: two runs or more.
        measures: which to compare; all that both of a pair have by default.

    Returns:
        A difference for each pair, evaluation, task and measure that both have.

    Raises:
        UserError: if there are fewer than two runs, two were measured differently or asked other queries, a measure is
            not theirs, or two have no figure in common.
    """
    if len(found) < 2:
        raise UserError("There is one run, and nothing to compare it with. Name two or more.")
    wanted = _wanted(found, measures)
    for first, second in combinations(found, 2):
        _check(first, second)
    differences = []
    for first, second in combinations(found, 2):
        of_pair = [d for d in _differences(first, second) if d.measure in wanted]
        if not of_pair:
            raise UserError(
                f'"{first.name}" and "{second.name}" have no figure in common: {_figures(first)}, and {_figures(second)}. '
                "Evaluate them alike: [evaluate] evaluations, tasks and measures."
            )
        differences += of_pair
    return differences


def _wanted(found: Sequence[Measured], measures: Sequence[str]) -> set[str]:
    known = {measure for run in found for _, _, measure in run.per_query}
    asked = [str(Measure.parse(text)) for text in measures]
    for measure in asked:
        if measure not in known:
            raise UserError(
                f'None of the runs measured "{measure}"{suggestion(measure, known)}; there are: {", ".join(sorted(known))}.'
            )
    return set(asked) or known


def _check(first: Measured, second: Measured) -> None:
    """Checks that two runs were asked the same on the same data."""
    one, other = first.rows[0], second.rows[0]
    for what, its, theirs in (
        ("data", one.dataset, other.dataset),
        ("protocol", one.protocol, other.protocol),
        ("choices", _choices(one), _choices(other)),
    ):
        if its != theirs:
            raise UserError(
                f'"{first.name}" and "{second.name}" do not compare: they differ in their {what}, "{its}" and "{theirs}". '
                "Compare runs on the same data, evaluated alike."
            )
    if first.queries != second.queries:
        raise UserError(
            f'"{first.name}" and "{second.name}" do not compare: they were asked other queries of {one.dataset}. '
            "Were the files or the options of the data changed between them? Train one of them again."
        )


def _choices(row: ResultRow) -> str:
    """Returns what must be the same of how two runs were measured; each may have chosen its round its own way."""
    return choices(row).rpartition("; ")[0]


def _differences(first: Measured, second: Measured) -> list[Difference]:
    theirs = {_place(key): key for key in second.per_query}
    found = []
    for key in first.per_query:
        other = theirs.get(_place(key))
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


def _place(key: Key) -> tuple[int, str, str]:
    """Returns what two figures must share to be compared: global and personal models stand as one."""
    group = next(number for number, evaluations in enumerate(GROUPS) if key[0] in evaluations)
    return group, key[1], key[2]


def _figures(run: Measured) -> str:
    return f"{run.name} has {', '.join(' '.join(key) for key in run.per_query)}"
