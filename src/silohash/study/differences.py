"""Tables of differences from one choice, such as every method minus FedAvg, paired by seed.

Runs with the same seed share partition, validation items and initial parameters. Pairing removes the part of the spread
over seeds that they have in common, so that the interval of a difference is narrower than those of the two figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from silohash.evaluate.significance import seed_interval
from silohash.study.pivot import Cell, Key, ResultTable, file_name


def difference_tables(table: ResultTable, against: Mapping[str, tuple[str, ...]]) -> list[ResultTable]:
    """Return one table per reference: the differences of all other choices from it.

    Args:
        table: a table of figures.
        against: an axis -> the choices that are references.
    """
    return [difference_table(table, axis, name) for axis, names in against.items() for name in names]


def difference_table(table: ResultTable, axis: str, reference: str) -> ResultTable:
    """Return the differences of all other choices of an axis from one choice.

    Args:
        table: a table of figures, whose rows or columns have the axis.
        axis: the name of the axis.
        reference: the choice that is subtracted.
    """
    rows = _without(table.rows, table.row_fields, axis, reference)
    columns = _without(table.columns, table.column_fields, axis, reference)
    by_fields = {frozenset(cell.fields.items()): cell for cell in table.cells.values()}
    cells = {}
    for row in rows:
        for column in columns:
            cell = table.cells[row, column]
            subtracted = by_fields[frozenset({**cell.fields, axis: reference}.items())]
            cells[row, column] = paired_difference(cell, subtracted)
    note = (
        f"Each figure minus that of {reference} with the same seed, as the mean over the seeds. "
        "The interval is that of the paired differences."
    )
    return replace(
        table, title=f"{table.title}, difference from {reference}", name=f"{table.name}-minus-{file_name(reference)}",
        rows=rows, columns=columns, cells=cells, ranked=False, notes=(note,),
        format_value=lambda value: f"{value:+.3f}",
    )  # fmt: skip


def paired_difference(cell: Cell, reference: Cell) -> Cell:
    """Return the differences of two cells for the seeds that both have, with Student's interval of their mean.

    A single seed gives a difference without an interval. A difference from figures that use the true labels of items is
    marked as such figures are.
    """
    subtracted = dict(zip(reference.seeds, reference.values, strict=False))
    pairs = [
        (seed, value - subtracted[seed])
        for seed, value in zip(cell.seeds, cell.values, strict=False)
        if seed in subtracted
    ]
    values = tuple(value for _, value in pairs)
    low, high = seed_interval(values)
    rows = (*cell.rows, *(row for row in reference.rows if row.uses_labels)) if pairs else ()
    return Cell(
        fields=cell.fields, seeds=tuple(seed for seed, _ in pairs),
        missing=len(cell.seeds) + cell.missing - len(pairs), rows=rows, values=values, low=low,
        high=high, interval="seeds" if len(values) > 1 else "",
    )  # fmt: skip


def _without(keys: tuple[Key, ...], fields: tuple[str, ...], axis: str, reference: str) -> tuple[Key, ...]:
    """Return the keys whose value of the axis is not the reference."""
    if axis not in fields:
        return keys
    place = fields.index(axis)
    return tuple(key for key in keys if key[place] != reference)
