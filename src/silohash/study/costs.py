"""The costs of a study's runs: transferred data, time and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from silohash.runtime.events import RoundRecord
from silohash.study.config import RESULT_FIELDS
from silohash.study.pivot import (
    Cell,
    Layout,
    ResultTable,
    field_values,
    make_table,
    runs_by_choices,
    runs_with,
    table_layout,
    with_interval,
)
from silohash.study.results import RunResult, StudyResults

BYTES_PER_MEGABYTE = 1_000_000
MEMORY = "peak memory (MB)"

COSTS: Mapping[str, Callable[[RunResult], float]] = {
    "sent per round (MB)": lambda run: _per_round(run, lambda record: record.uplink_bytes) / BYTES_PER_MEGABYTE,
    "received per round (MB)": lambda run: _per_round(run, lambda record: record.downlink_bytes) / BYTES_PER_MEGABYTE,
    "time per round (s)": lambda run: _per_round(run, lambda record: record.seconds),
    "time of all rounds (s)": lambda run: sum(record.seconds for record in run.rounds) if run.rounds else math.nan,
    MEMORY: lambda run: math.nan if run.peak_bytes is None else run.peak_bytes / BYTES_PER_MEGABYTE,
}
"""Name -> cost of a run, for all silos together; NaN if it is not known."""

NOTES = (
    "Per round: means over the rounds of a run. Sent: by all silos together to the server. Received: by all silos together.",
    "Times are wall time, with the validation. Runs at the same time on one machine share its cores.",
)
MEMORY_NOTE = (
    "Peak memory is that of the process that trains and measures a run, with the program itself and the archive. Worker "
    "processes of a run (train.workers) are not counted."
)


def cost_table(study: StudyResults) -> ResultTable:
    """Return the table of costs, with the axes of the tables of figures and one column per cost that is known."""
    config = study.config
    shown = table_layout(config)
    rows, columns = ([name for name in fields if name not in RESULT_FIELDS] for fields in (shown.rows, shown.columns))
    rows += [name for name in config.axis_names if name not in shown.fields]
    costs = known_costs(study)
    values = {**field_values(study, ()), "measure": costs}
    by_choices = runs_by_choices(study)

    def make_cell(fields: Mapping[str, str]) -> Cell:
        """Return the cell with the given value of every field."""
        return _cost_cell(fields, runs_with(by_choices, config, fields), len(config.seeds))

    table = make_table(config, Layout(tuple(rows), (*columns, "measure")), values, make_cell)
    title = f"{config.title or 'Study'}, costs"
    notes = (*NOTES, MEMORY_NOTE) if MEMORY in costs else NOTES
    return replace(table, title=title, name="costs", ranked=False, notes=notes, format_value=format_cost)


def known_costs(study: StudyResults) -> list[str]:
    """Return the names of the costs, without the memory if it was not measured in any run."""
    measured = any(run.peak_bytes is not None for run in study.runs)
    return [name for name in COSTS if measured or name != MEMORY]


def format_cost(value: float) -> str:
    """Return a cost as text, with three significant digits.

    Example:
        >>> format_cost(0.012345), format_cost(12345.6), format_cost(0.0)
        ('0.0123', '12,346', '0')
    """
    if not value:
        return "0"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{digits}f}"


def _per_round(run: RunResult, cost: Callable[[RoundRecord], float]) -> float:
    """Return the mean cost of a run's rounds; NaN without rounds."""
    return float(np.mean([cost(record) for record in run.rounds])) if run.rounds else math.nan


def _cost_cell(fields: Mapping[str, str], runs: Sequence[RunResult], seeds: int) -> Cell:
    values = [COSTS[fields["measure"]](run) for run in runs]
    return with_interval(
        Cell(
            fields=fields, seeds=tuple(run.seed for run in runs), missing=seeds - len(runs),
            values=tuple(value for value in values if math.isfinite(value)),
        )
    )  # fmt: skip
