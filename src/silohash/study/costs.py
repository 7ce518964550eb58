"""What a study's runs cost: what travels and how long a round takes, from the record of every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from silohash.runtime.events import RoundRecord
from silohash.study.grid import BESIDE_AXES
from silohash.study.pivot import (
    Sheet,
    Spot,
    averaged,
    choices_key,
    field_values,
    laid_out,
    lay_out,
    runs_by_choices,
)
from silohash.study.results import CellResult, StudyResults

BYTES_A_MEGABYTE = 1_000_000

COSTS: Mapping[str, Callable[[RoundRecord], float]] = {
    "sent a round (MB)": lambda record: record.uplink_bytes / BYTES_A_MEGABYTE,
    "received a round (MB)": lambda record: record.downlink_bytes / BYTES_A_MEGABYTE,
    "a round (seconds)": lambda record: record.seconds,
}
"""Name -> the cost of one round, of all silos together."""

NOTES = (
    "Means over the rounds of a run. Sent: what all silos send in a round; received: what they are sent.",
    "Seconds are wall time on the machine that ran it; runs at the same time share its cores.",
)


def cost_sheet(study: StudyResults) -> Sheet:
    """Returns the table of costs: the axes as in the tables of figures, and a column a cost."""
    config = study.config
    row_fields, column_fields = (
        tuple(name for name in fields if name not in BESIDE_AXES) for fields in laid_out(config)
    )
    left_over = tuple(name for name in config.axis_names if name not in (*row_fields, *column_fields))
    layout = (*row_fields, *left_over), (*column_fields, "measure")
    values = {**field_values(study, ()), "measure": list(COSTS)}
    by_choices = runs_by_choices(study)

    def spot(fields: Mapping[str, str]) -> Spot:
        """Returns the cell of a value of every field."""
        chosen = {axis: fields[axis] for axis in config.axis_names}
        return _cost_spot(fields, by_choices.get(choices_key(chosen), []), len(config.seeds))

    title = f"{config.title or 'Study'}, costs"
    sheet = lay_out(config, (title, "costs"), layout, values, {}, spot)
    return replace(sheet, ranked=False, notes=NOTES, figure=amount)


def amount(value: float) -> str:
    """Returns a cost as text, to three digits.

    Example:
        >>> amount(0.012345), amount(12345.6), amount(0.0)
        ('0.0123', '12,346', '0')
    """
    if not value:
        return "0"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{digits}f}"


def _cost_spot(fields: Mapping[str, str], cells: Sequence[CellResult], seeds: int) -> Spot:
    cost = COSTS[fields["measure"]]
    values = [float(np.mean([cost(record) for record in cell.rounds])) for cell in cells if cell.rounds]
    return averaged(
        Spot(
            fields=fields,
            seeds=tuple(cell.seed for cell in cells),
            missing=seeds - len(cells),
            values=tuple(values),
        )
    )
