"""The costs of a study's runs: transferred data and time per round, from the records of the rounds."""

from __future__ import annotations

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

COSTS: Mapping[str, Callable[[RoundRecord], float]] = {
    "sent per round (MB)": lambda record: record.uplink_bytes / BYTES_PER_MEGABYTE,
    "received per round (MB)": lambda record: record.downlink_bytes / BYTES_PER_MEGABYTE,
    "time per round (s)": lambda record: record.seconds,
}
"""Name -> cost of one round, for all silos together."""

NOTES = (
    "Means over the rounds of a run. Sent: by all silos together to the server. Received: by all silos together.",
    "Times are wall time. Runs at the same time on one machine share its cores.",
)


def cost_table(study: StudyResults) -> ResultTable:
    """Return the table of costs, with the axes of the tables of figures and one column per cost."""
    config = study.config
    shown = table_layout(config)
    rows, columns = ([name for name in fields if name not in RESULT_FIELDS] for fields in (shown.rows, shown.columns))
    rows += [name for name in config.axis_names if name not in shown.fields]
    values = {**field_values(study, ()), "measure": list(COSTS)}
    by_choices = runs_by_choices(study)

    def make_cell(fields: Mapping[str, str]) -> Cell:
        """Return the cell with the given value of every field."""
        return _cost_cell(fields, runs_with(by_choices, config, fields), len(config.seeds))

    table = make_table(config, Layout(tuple(rows), (*columns, "measure")), values, make_cell)
    title = f"{config.title or 'Study'}, costs"
    return replace(table, title=title, name="costs", ranked=False, notes=NOTES, format_value=format_cost)


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


def _cost_cell(fields: Mapping[str, str], runs: Sequence[RunResult], seeds: int) -> Cell:
    cost = COSTS[fields["measure"]]
    values = [float(np.mean([cost(record) for record in run.rounds])) for run in runs if run.rounds]
    return with_interval(
        Cell(
            fields=fields, seeds=tuple(run.seed for run in runs), missing=seeds - len(runs), values=tuple(values),
        )
    )  # fmt: skip
