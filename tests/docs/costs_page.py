"""Print the tables of `docs/how-to/costs.md`, from the figures of single runs.

`python -m tests.docs.costs_page` prints them. With the path of a study, it first stores the figures of its runs.
The real-valued ones are those of `silohash evaluate RUN --costs` for runs of ITQ with 64 bits, where it was called.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from silohash.report.tables import read_results
from tests.docs.feduch_page import PAPERS, RESULTS, interval_cell

RUNS = RESULTS / "costs.csv"
PAGE = PAPERS.parent / "docs" / "how-to" / "costs.md"
DATA = {"coco18": ("mAP@all", ("i2t", "t2i", "t2t", "t2item")), "flickr8k-1k": ("R@10[by=pairs]", ("i2t", "t2i"))}
BITS = ("64", "128")
REAL = "real-valued"
METHODS = (REAL, "ITQ", "UCCH", "DGCPN", "hyperplanes")

Key = tuple[str, str, str, str, str]
"""Data set, method, bits, task, and which items are searched: all, or only unseen ones."""


def store(study: Path) -> None:
    """Write the figures of a study's runs, in percent."""
    with RUNS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["data", "method", "bits", "task", "items", "seed", "value"])
        writer.writerows(sorted(_measured(study)))


def _measured(study: Path) -> Iterator[tuple[str | int, ...]]:
    for folder in (study / "runs").iterdir():
        name, method, bits, seed = folder.name.split("-")
        data = name.replace("_", "-")
        measure, tasks = DATA[data]
        files = {"all": "results.csv", "unseen": "results-unseen.csv"}
        for items, file in files.items():
            for row in read_results(folder / file):
                if row.measure == measure and row.task in tasks:
                    yield data, method, bits, row.task, items, seed.removeprefix("seed"), f"{100 * row.value:.2f}"
        for row in read_results(folder / "costs.csv") if (folder / "costs.csv").exists() and bits == BITS[0] else ():
            if row.run.endswith("no codes") and row.measure == measure and row.task in tasks:
                yield data, REAL, "0", row.task, "all", seed.removeprefix("seed"), f"{100 * row.value:.2f}"


def figures() -> dict[Key, dict[str, float]]:
    """Return the figures by seed."""
    found: dict[Key, dict[str, float]] = {}
    with RUNS.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            seed, value = row.pop("seed"), float(row.pop("value"))
            found.setdefault(tuple(row.values()), {})[seed] = value
    return found


def table(data: str) -> str:
    """Return a table with a row per method and a column per task and code length."""
    found, (_, tasks) = figures(), DATA[data]
    columns = [(task, bits) for task in tasks for bits in BITS]
    lines = [_line("method", [f"{task}, {bits} bits" for task, bits in columns]), f"| --- |{' ---: |' * len(columns)}"]
    for method in METHODS:
        keys = [(data, method, "0" if method == REAL else bits, task, "all") for task, bits in columns]
        lines.append(_line(method, [_cell(found[key]) for key in keys]))
    return "\n".join(lines)


def gains() -> str:
    """Return a table of the differences of the methods that train from ITQ, paired by seed."""
    found, heads, rows = figures(), list[str](), dict[str, list[str]]()
    for data, (_, tasks) in DATA.items():
        for items in ("all", "unseen") if data == "coco18" else ("all",):
            for task in tasks:
                heads.append(f"{data}{', unseen items' if items == 'unseen' else ''}, {task}")
                for method in ("UCCH", "DGCPN"):
                    for bits in BITS:
                        own, itq = (found[data, name, bits, task, items] for name in (method, "ITQ"))
                        difference = [own[seed] - itq[seed] for seed in own]
                        rows.setdefault(f"{method} − ITQ, {bits} bits", []).append(
                            interval_cell(difference, signed=True)
                        )
    # as many columns as rows would be too wide for a page
    lines = [_line("search", list(rows)), f"| --- |{' ---: |' * len(rows)}"]
    return "\n".join(
        [
            *lines,
            *(_line(head, list(cells)) for head, cells in zip(heads, zip(*rows.values(), strict=True), strict=True)),
        ]
    )


def _cell(values: dict[str, float]) -> str:
    same = len({*values.values()}) == 1
    return f"{next(iter(values.values())):.1f}" if same else interval_cell([*values.values()], signed=False)


def _line(head: str, cells: list[str]) -> str:
    return f"| {head} | {' | '.join(cells)} |"


def tables() -> list[str]:
    """Return all tables of the page."""
    return [*map(table, DATA), gains()]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(Path(sys.argv[1]))
    print("\n\n".join(tables()))
