"""The figures of single runs of a study, as a file of comma-separated values and as tables of pages."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.docs.feduch_page import interval_cell

FILES = {"all": "results.csv", "unseen": "results-unseen.csv"}
"""The files of a run with its figures over all items, and over those that no silo trained on."""

Key = tuple[str, ...]
"""The choices of a run, the evaluation, the task and the kind of items."""

Figures = dict[Key, dict[str, float]]
"""mAP@all in percent, by key and seed."""

Columns = Mapping[str, Callable[[str], Sequence[Key]]]
"""Head of each column, and the keys of a row's figures in it, of which the first that exists counts."""


def store(study: Path, path: Path, axes: Sequence[str], names: Mapping[str, Key]) -> None:
    """Write the figures of a study's runs. The choices of its axes are given by the folders of their runs."""
    order = [*names.values()]
    rows = [
        (*choices, int(folder.name.removeprefix(f"{name}-seed")), *row)
        for name, choices in names.items()
        for folder in (study / "runs").glob(f"{name}-seed*")
        for row in _figures_of(folder)
    ]
    rows.sort(key=lambda row: (order.index(row[: len(axes)]), *row[len(axes) :]))
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
    found: Figures, name: str, columns: Columns, bases: Mapping[str, str | None], *, differences: bool = False
) -> str:
    """Return a table with a line per row, of figures or of their differences from those of its base, paired by seed.

    A row without a base has no differences. ``name`` is the head of the first column.
    """
    lines = [f"| {name} | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for row, base in bases.items():
        if differences and base is None:
            continue
        cells = []
        for keys in columns.values():
            values = _by_seed(found, keys(row))
            if differences and base is not None:
                subtracted = _by_seed(found, keys(base))
                values = {seed: value - subtracted[seed] for seed, value in values.items()}
            cells.append(interval_cell([*values.values()], signed=differences))
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_seed(found: Figures, keys: Sequence[Key]) -> dict[str, float]:
    return next(found[key] for key in keys if key in found)
