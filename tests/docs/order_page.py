"""Print the table of `docs/how-to/search.md` on the order of hits, from the figures of single runs.

`python -m tests.docs.order_page` prints it. With the path of a study (search-order.toml), it first measures its runs.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import mean

from tests.docs.feduch_page import PAPERS, interval_cell

RUNS = PAPERS / "results" / "search-order.csv"
ORDERS = ("hamming", "magnitudes", "outputs", "all outputs")
MEASURES = ("mAP@all", "P@10")
TASKS = ("t2i", "i2t")

Figures = dict[tuple[str, str, str, str, str], dict[str, float]]


def store(study: Path) -> None:
    """Write the figures of each order of hits of a study's runs, in percent."""
    sys.path.insert(0, str(PAPERS.parent / "benchmarks"))
    from search_order import measured

    from silohash.run.folder import Run

    rows = []
    for folder in sorted((study / "runs").iterdir()):
        data, local, seed = folder.name.split("-")
        for task, orders in measured(Run.open(folder)).items():
            for order, values in zip(ORDERS, orders, strict=True):
                for measure, value in zip(MEASURES, values, strict=True):
                    rows.append((data, local, seed.removeprefix("seed"), task, order, measure, f"{value:.2f}"))
    with RUNS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([("data", "local", "seed", "task", "order", "measure", "value"), *rows])


def figures() -> Figures:
    """Return the figures by seed, for each data set, local method, task, order and measure."""
    found: Figures = {}
    with RUNS.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            key = (row["data"], row["local"], row["task"], row["order"], row["measure"])
            found.setdefault(key, {})[row["seed"]] = float(row["value"])
    return found


def table(measure: str) -> str:
    """Return a table of the plain order and of what the others add to it, paired by seed."""
    found = figures()
    lines = [f"| data, method, task | {' | '.join(ORDERS)} |", f"| --- |{' ---: |' * len(ORDERS)}"]
    for data, local in dict.fromkeys(key[:2] for key in found):
        for task in TASKS:
            plain = found[data, local, task, ORDERS[0], measure]
            more = (found[data, local, task, order, measure] for order in ORDERS[1:])
            cells = [interval_cell([value[seed] - plain[seed] for seed in plain], signed=True) for value in more]
            lines.append(f"| {data}, {local}, {task} | {mean(plain.values()):.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables() -> list[str]:
    """Return a table per measure."""
    return [table(measure) for measure in MEASURES]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(Path(sys.argv[1]))
    print("\n\n".join(tables()))
