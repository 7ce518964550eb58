"""Print the tables of `papers/feduch.md` in the form of the paper, from the figures of single runs.

`python -m tests.docs.feduch_page` prints them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

from scipy import stats

PAPERS = Path(__file__).parents[2] / "papers"
RESULTS = PAPERS / "results"
TASKS = ("t2i", "i2t")
COLUMNS = [(task, bits) for task in TASKS for bits in (16, 32, 64, 128)]
CASES = [(evaluation, items) for evaluation in ("GL", "GG") for items in ("all", "unseen")]
ITEMS = {"all": "all items", "unseen": "never trained"}
ONE_LENGTH = "64"
OF_SINGLE_SILOS = {"GL": "PL", "GG": "PG"}
BASELINE = "FedAvg"

Figures = dict[tuple[str, str, str, str, str, str], dict[str, float]]


def figures(name: str) -> Figures:
    """Return the figures of a study by seed, for each method, bits, evaluation, task, measure and kind of items."""
    found: Figures = {}
    with (RESULTS / f"feduch-paper-{name}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["method"], row["bits"], row["evaluation"], row["task"], row["measure"], row["items"])
            found.setdefault(key, {})[row["seed"]] = float(row["value"])
    return found


def table(evaluation: str, items: str, *, measure: str = "mAP@50", differences: bool = False) -> str:
    """Return Wikipedia's table with a row per method: figures, or their differences from FedAvg, paired by seed."""
    columns = [(str(bits), evaluation, task, measure, items) for task, bits in COLUMNS]
    heads = [f"{task}, {bits} bits" if bits == 16 else str(bits) for task, bits in COLUMNS]
    return _table("wiki", heads, columns, differences=differences)


def table_of_one_length(name: str, *, measure: str = "mAP@50", differences: bool = False) -> str:
    """Return the table of a set that was trained with one length: both evaluations, all items and those never trained on."""
    columns = [(ONE_LENGTH, evaluation, task, measure, items) for evaluation, items in CASES for task in TASKS]
    heads = [
        f"{evaluation}, {ITEMS[items]}, {task}" if task == TASKS[0] else task
        for evaluation, items in CASES
        for task in TASKS
    ]
    return _table(name, heads, columns, differences=differences)


def _table(name: str, heads: list[str], columns: list[tuple[str, str, str, str, str]], *, differences: bool) -> str:
    found = figures(name)
    methods = list(dict.fromkeys(key[0] for key in found))
    rows = []
    for method in [name for name in methods if not differences or name != BASELINE]:
        cells = []
        for bits, evaluation, *rest in columns:
            own = OF_SINGLE_SILOS[evaluation] if method == "Standalone" else evaluation
            values = found[(method, bits, own, *rest)]
            if differences:
                base = found[(BASELINE, bits, evaluation, *rest)]
                values = {seed: value - base[seed] for seed, value in values.items()}
            cells.append(interval_cell(list(values.values()), signed=differences))
        rows.append([method, *cells])
    return "\n".join(_lines(heads, rows))


def interval_cell(values: list[float], *, signed: bool) -> str:
    """Return a mean with its 95 % interval (Student's t)."""
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    number = f"{mean(values):+.1f}" if signed else f"{mean(values):.1f}"
    return f"{number.replace('-', '−').replace('+0.0', '0.0').replace('−0.0', '0.0')} ± {half:.1f}"


def _lines(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| method | {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def tables() -> list[str]:
    """Return all tables of the page that come from these runs."""
    return [
        *(table(evaluation, items) for evaluation, items in CASES),
        *(table(evaluation, items, differences=True) for evaluation, items in CASES),
        *(table_of_one_length(name, differences=signed) for name in ("coco18", "fashion") for signed in (False, True)),
    ]


if __name__ == "__main__":
    print("\n\n".join(tables()))
