"""Print the tables of `docs/how-to/icons.md`, from the figures of single runs.

`python -m tests.docs.icons_page` prints them. With the path of a study, it first stores the figures of its runs.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from tests.docs.feduch_page import PAPERS, interval_cell

RUNS = PAPERS / "results" / "icons-study.csv"
TRAININGS = {
    "each_silo_alone": "each silo alone", "FedAvg__DCMH": "FedAvg, DCMH", "FedAvg__CenterAP": "FedAvg, CenterAP",
    "pooled": "pooled",
}  # fmt: skip
ALONE = "each silo alone"
SCOPES = {"own items": ("GL", "PL"), "items of others": ("GF", "PF"), "all items": ("GA", "PA")}
TASKS = ("i2t", "t2i")
FILES = {"all": "results.csv", "unseen": "results-unseen.csv"}

Figures = dict[tuple[str, str, str, str], dict[str, float]]


def store(study: Path) -> None:
    """Write the figures of a study's runs, in percent."""
    rows = []
    for folder in (study / "runs").iterdir():
        training, seed = folder.name.rsplit("-seed", 1)
        for items, file in FILES.items():
            with (folder / file).open(encoding="utf-8") as stream:
                rows += [
                    (
                        TRAININGS[training],
                        int(seed),
                        row["evaluation"],
                        row["task"],
                        items,
                        f"{100 * float(row['value']):.2f}",
                    )
                    for row in csv.DictReader(stream)
                ]
    order = [*TRAININGS.values()]
    with RUNS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["training", "seed", "evaluation", "task", "items", "mAP@all"])
        writer.writerows(sorted(rows, key=lambda row: (order.index(row[0]), *row[1:])))


def figures() -> Figures:
    """Return the figures by seed, for each training, evaluation, task and kind of items."""
    found: Figures = {}
    with RUNS.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            key = (row["training"], row["evaluation"], row["task"], row["items"])
            found.setdefault(key, {})[row["seed"]] = float(row["mAP@all"])
    return found


def table(items: str, *, differences: bool = False) -> str:
    """Return a table with a row per training, of figures or of their differences from silos alone, paired by seed."""
    found = figures()
    heads = [f"{scope}, {task}" for scope in SCOPES for task in TASKS]
    lines = [f"| training | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for training in TRAININGS.values():
        if differences and training == ALONE:
            continue
        cells = []
        for of_global, of_own in SCOPES.values():
            for task in TASKS:
                values = found[training, of_own if training == ALONE else of_global, task, items]
                if differences:
                    alone = found[ALONE, of_own, task, items]
                    values = {seed: value - alone[seed] for seed, value in values.items()}
                cells.append(interval_cell([*values.values()], signed=differences))
        lines.append(f"| {training} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables() -> list[str]:
    """Return all tables of the page that come from these runs."""
    return [table(items, differences=differences) for items in ("unseen", "all") for differences in (False, True)]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(Path(sys.argv[1]))
    print("\n\n".join(tables()))
