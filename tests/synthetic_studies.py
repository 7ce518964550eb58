"""Studies with made-up figures, for tests of tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from silohash.run.events import RoundRecord, SiloRecord
from silohash.study.config import make_study
from silohash.study.pivot import Cell, ResultTable, annotated, result_tables
from silohash.study.results import RunResult, StudyResults
from tests.reports import row

QUERIES = 40


def axis(name: str, *choices: str, key: str = "") -> dict[str, Any]:
    """Return an axis with named choices or, with a key, with values."""
    if key:
        return {"name": name, "key": key, "values": [int(c) if c.isdigit() else float(c) for c in choices]}
    return {"name": name, "choice": [{"name": choice, "set": {f"local.{name}": choice}} for choice in choices]}


def records(count: int = 4, *, start: float = 0.3, uplink: int = 2_000_000) -> tuple[RoundRecord, ...]:
    """Return the records of rounds with a falling loss and a rising validation score."""
    return tuple(
        RoundRecord(
            round=number, seconds=1.5, loss=2.0 / (number + 1), terms={}, validation=start + 0.1 * number, best=True,
            silos=[SiloRecord("silo-1", 10, 1.0, 1.0)], uplink_bytes=uplink, downlink_bytes=2 * uplink,
        )
        for number in range(count)
    )  # fmt: skip


def queries_of(mean: float, spread: float, *, seed: int = 0) -> np.ndarray:
    """Return ``(QUERIES,)`` values with exactly the given mean."""
    noise = np.random.default_rng(seed).normal(size=QUERIES)
    return mean + spread * (noise - noise.mean())


def synthetic_study(
    *axes: Mapping[str, Any],
    seeds: Sequence[int] = (0, 1),
    value: Callable[[Mapping[str, str], int, str], float] = lambda choices, seed, task: 0.5,
    changed: Callable[[Mapping[str, str]], Mapping[str, Any]] = lambda choices: {},
    missing: Callable[[Mapping[str, str], int], bool] = lambda choices, seed: False,
    table: Mapping[str, Any] | None = None,
    tasks: Sequence[str] = ("i2t", "t2i"),
    evaluations: Sequence[str] = ("GG", "XS"),
    spread: float = 0.01,
    title: str = "Made up",
) -> StudyResults:
    """Return a study whose figures are ``value(choices, seed, task)``.

    Args:
        axes: as in a study's file.
        changed: fields of a run's rows that differ, ``queries`` for the digest of its queries, and ``rounds`` for their
            number.
        missing: which runs are not finished.
        spread: standard deviation of the figures over the queries.
    """
    config = make_study(
        {"title": title, "seeds": list(seeds), "axis": list(axes), "table": dict(table or {})}, where="a study"
    )
    runs, missing_names = [], []
    for combined in product(*(a.choices for a in config.axes)):
        choices = {a.name: c.name for a, c in zip(config.axes, combined, strict=True)}
        name = "-".join(choices.values())
        for seed in config.seeds:
            if missing(choices, seed):
                missing_names.append(f"{name}-seed{seed}")
                continue
            other = dict(changed(choices))
            queries, rounds = other.pop("queries", "the same"), records(other.pop("rounds", 4))
            rows, per_query = [], {}
            for evaluation, task in product(evaluations, tasks):
                mean = value(choices, seed, task)
                rows.append(
                    row(
                        run=name, evaluation=evaluation, task=task, seed=seed, value=mean, low=mean - 0.02,
                        high=mean + 0.03, **other,
                    )
                )  # fmt: skip
                drawn = sum(map(ord, name)) + 7 * seed
                per_query[evaluation, task, "mAP@all"] = queries_of(mean, spread, seed=drawn)
            runs.append(RunResult(choices, seed, Path(name), tuple(rows), per_query, rounds, queries))
    return StudyResults(config, tuple(runs), tuple(missing_names))


MEANS = {"Local": 0.4, "FedAvg": 0.6, "FedCAFE": 0.65}
METHODS = axis("method", *MEANS)
BITS = axis("bits", "16", "32", key="local.bits")
TABLE = {"rows": ["method"], "columns": ["bits", "task"], "evaluations": ["GG"]}
ONE_LENGTH = {**TABLE, "columns": ["task"]}


def by_method(choices: Mapping[str, str], seed: int, task: str) -> float:
    """Return the figure of a run: the mean of its method, plus 0.02 per seed."""
    return MEANS[choices["method"]] + 0.02 * seed


def only_table(study: StudyResults) -> ResultTable:
    """Return the single table of a study, annotated."""
    (table,) = [annotated(table) for table in result_tables(study)]
    return table


def cell_of(table: ResultTable, *values: str) -> Cell:
    """Return the single cell whose fields have the given values."""
    (found,) = [cell for cell in table.cells.values() if set(values) <= set(cell.fields.values())]
    return found


def note(table: ResultTable, text: str) -> str:
    """Return the first note that holds a text; empty if there is none."""
    return next((line for line in table.notes if text in line), "")
