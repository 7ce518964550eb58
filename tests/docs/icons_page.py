"""Print the tables of `docs/how-to/icons.md`, from the figures of single runs.

`python -m tests.docs.icons_page` prints them. With the path of a study, it first stores the figures of its runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.feduch_page import RESULTS
from tests.docs.run_figures import Columns, figures, store, table

RUNS = RESULTS / "icons-study.csv"
TRAININGS = {
    "each_silo_alone": "each silo alone", "FedAvg__DCMH": "FedAvg, DCMH", "FedAvg__CenterAP": "FedAvg, CenterAP",
    "pooled": "pooled",
}  # fmt: skip
ALONE = "each silo alone"
SCOPES = {"own items": ("GL", "PL"), "items of others": ("GF", "PF"), "all items": ("GA", "PA")}
TASKS = ("i2t", "t2i")


def columns(items: str) -> Columns:
    """Return the columns: whose items are searched, and the task. A global model counts before those of the silos."""
    return {
        f"{scope}, {task}": lambda row, task=task, names=names: [(row, name, task, items) for name in names]
        for scope, names in SCOPES.items()
        for task in TASKS
    }


def tables() -> list[str]:
    """Return all tables of the page that come from these runs."""
    found, bases = figures(RUNS), {training: None if training == ALONE else ALONE for training in TRAININGS.values()}
    kinds = [(items, signed) for items in ("unseen", "all") for signed in (False, True)]
    return [table(found, "training", columns(items), bases, differences=signed) for items, signed in kinds]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(Path(sys.argv[1]), RUNS, ["training"], {folder: (name,) for folder, name in TRAININGS.items()})
    print("\n\n".join(tables()))
