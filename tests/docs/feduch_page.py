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
RUNS = PAPERS / "results" / "feduch-paper-wiki.csv"
COLUMNS = [(task, bits) for task in ("t2i", "i2t") for bits in (16, 32, 64, 128)]
OF_SINGLE_SILOS = {"GL": "PL", "GG": "PG"}
BASELINE = "FedAvg"

Figures = dict[tuple[str, str, str, str, str, str], dict[str, float]]


def figures() -> Figures:
    """Return the figures of the runs by seed, for each method, bits, evaluation, task, measure and kind of items."""
    found: Figures = {}
    with RUNS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["method"], row["bits"], row["evaluation"], row["task"], row["measure"], row["items"])
            found.setdefault(key, {})[row["seed"]] = float(row["value"])
    return found


def table(evaluation: str, items: str, *, measure: str = "mAP@50", differences: bool = False) -> str:
    """Return a table with a row per method, of figures or of their differences from FedAvg, paired by seed."""
    found = figures()
    methods = list(dict.fromkeys(key[0] for key in found))
    rows = []
    for method in [name for name in methods if not differences or name != BASELINE]:
        cells = []
        for task, bits in COLUMNS:
            own = OF_SINGLE_SILOS[evaluation] if method == "Standalone" else evaluation
            values = found[method, str(bits), own, task, measure, items]
            if differences:
                base = found[BASELINE, str(bits), evaluation, task, measure, items]
                values = {seed: value - base[seed] for seed, value in values.items()}
            cells.append(interval_cell(list(values.values()), signed=differences))
        rows.append([method, *cells])
    return "\n".join(_lines(rows))


def interval_cell(values: list[float], *, signed: bool) -> str:
    """Return a mean with its 95 % interval (Student's t)."""
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    number = f"{mean(values):+.1f}" if signed else f"{mean(values):.1f}"
    return f"{number.replace('-', '−').replace('+0.0', '0.0').replace('−0.0', '0.0')} ± {half:.1f}"


def _lines(rows: list[list[str]]) -> Iterator[str]:
    heads = [f"{task}, {bits} bits" if bits == 16 else str(bits) for task, bits in COLUMNS]
    yield f"| method | {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def tables() -> list[str]:
    """Return all tables of the page that come from these runs."""
    return [
        *(table(evaluation, items) for evaluation in ("GL", "GG") for items in ("all", "unseen")),
        *(table(evaluation, items, differences=True) for evaluation in ("GL", "GG") for items in ("all", "unseen")),
    ]


if __name__ == "__main__":
    print("\n\n".join(tables()))
