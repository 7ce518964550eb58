"""The figures of single runs of a study, as a file of comma-separated values and as tables of pages."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import numpy.typing as npt
from scipy import stats

from tests.docs.feduch_page import interval_cell

FILES = {"unseen": "results-unseen.csv", "all": "results.csv"}
"""The files of a run with its figures over items that no silo trained on, and over all."""

Key = tuple[str, ...]
"""The choices of a run, the evaluation, the task and the kind of items."""

Figures = dict[Key, dict[str, float]]
"""mAP@all in percent, by key and seed."""

LEVEL = 0.05
MARGIN = 1.0
"""Points of mAP within which two rows count as equal."""

DIFFERENT, EQUAL = "\\*", "≈"
"""The marks of differences that stand, and of rows that are equal within the margin, both after Holm's correction."""

Columns = Mapping[str, Callable[[str], Sequence[Key]]]
"""Head of each column, and the keys of a row's figures in it, of which the first that exists counts."""


def store(study: Path, path: Path, axes: Sequence[str], names: Mapping[str, Key]) -> None:
    """Write the figures of a study's runs. The choices of its axes are given by the folders of their runs.

    Figures of runs that the file has and the study does not are kept.
    """
    order = [*names.values()]
    rows = [
        (*choices, folder.name.removeprefix(f"{name}-seed"), *row)
        for name, choices in names.items()
        for folder in (study / "runs").glob(f"{name}-seed*")
        for row in _figures_of(folder)
    ]
    ran = {row[: len(axes) + 1] for row in rows}
    if path.exists():
        with path.open(encoding="utf-8") as stream:
            kept = [tuple(row) for row in csv.reader(stream)][1:]
        rows += [row for row in kept if row[: len(axes) + 1] not in ran and row[: len(axes)] in order]
    rows.sort(key=lambda row: (order.index(row[: len(axes)]), int(row[len(axes)]), *row[len(axes) + 1 :]))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*axes, "seed", "evaluation", "task", "items", "mAP@all"])
        writer.writerows(rows)


def _figures_of(run: Path) -> Iterator[Key]:
    for items, file in FILES.items():
        with (run / file).open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                yield row["evaluation"], row["task"], items, f"{100 * float(row['value']):.2f}"


def figures(path: Path) -> Figures:
    """Return the figures that a file holds."""
    found: Figures = {}
    with path.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            seed, value = row.pop("seed"), float(row.pop("mAP@all"))
            found.setdefault(tuple(row.values()), {})[seed] = value
    return found


def table(
    found: Figures, name: str, columns: Columns, bases: Mapping[str, str | None], *, differences: bool = False,
    marked: bool = False,
) -> str:  # fmt: skip
    """Return a table with a line per row, of figures or of their differences from those of its base, paired by seed.

    A row without a base has no differences. ``name`` is the head of the first column. If ``marked``, differences have the
    mark of what holds after Holm's correction for all differences of the table.
    """
    cells: dict[str, list[list[float]]] = {}
    for row, base in bases.items():
        if differences and base is None:
            continue
        cells[row] = []
        for keys in columns.values():
            values = _by_seed(found, keys(row))
            if differences and base is not None:
                subtracted = _by_seed(found, keys(base))
                values = {seed: value - subtracted[seed] for seed, value in values.items()}
            cells[row].append([*values.values()])
    ends = iter(marks([cell for row in cells.values() for cell in row]) if marked else [])
    lines = [f"| {name} | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for row, values in cells.items():
        written = [interval_cell(cell, signed=differences) + next(ends, "") for cell in values]
        lines.append(f"| {row} | {' | '.join(written)} |")
    return "\n".join(lines)


def marks(cells: Sequence[Sequence[float]]) -> list[str]:
    """Return the mark of each difference, of which the values of all seeds are given.

    A difference stands if a t-test over seeds rejects 0. Two rows are equal within `MARGIN` if two one-sided t-tests reject
    a difference as large. Each of the two questions is corrected for the number of cells.
    """
    stands = holm([_beyond(cell, 0.0, two_sided=True) for cell in cells]) < LEVEL
    within = holm([max(_beyond(cell, -MARGIN), _beyond([-x for x in cell], -MARGIN)) for cell in cells]) < LEVEL
    return [EQUAL if equal else DIFFERENT if differs else "" for differs, equal in zip(stands, within, strict=True)]


def _beyond(values: Sequence[float], limit: float, *, two_sided: bool = False) -> float:
    """Return the p-value of a mean that is at most the limit, or that is the limit."""
    spread, distance = stdev(values) / len(values) ** 0.5, mean(values) - limit
    if spread == 0:
        return 0.0 if distance > 0 or (two_sided and distance < 0) else 1.0
    tail = stats.t.sf(abs(distance) / spread if two_sided else distance / spread, len(values) - 1)
    return float(2 * tail if two_sided else tail)


def holm(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the p-values after the step-down correction for their number.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics, 1979.
    """
    order = np.argsort(values)
    raised = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(raised))
    return corrected


def _by_seed(found: Figures, keys: Sequence[Key]) -> dict[str, float]:
    return next(found[key] for key in keys if key in found)
