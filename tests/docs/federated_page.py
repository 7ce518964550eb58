"""Print the tables of `papers/federated.md` that have the rows of its study, from the figures of single runs.

`python -m tests.docs.federated_page` prints them. With the path of a study, it first stores the figures of its runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from silohash.study.config import load_study
from silohash.study.plan import folder_name
from tests.docs.feduch_page import PAPERS, RESULTS
from tests.docs.run_figures import Columns, figures, store, table

RUNS = RESULTS / "federated.csv"
RECIPE = PAPERS.parent / "recipes" / "federated.toml"
DATA = ("coco18", "fashion-0.5", "fashion-0.2")
EVALUATIONS = ("GG", "PG")
TASKS = ("i2t", "t2i")
NAMES = {
    "FedCMR (hash layers)": "FedCMR, hash layers", "FedCMR (all layers)": "FedCMR, all layers",
    "FedBi-GNNs": "FedBi-GNNs' weights", "FedRidge, FedAvg": "FedRidge after FedAvg",
    "CenterAP, FedRidge": "CenterAP, FedRidge after FedAvg",
}  # fmt: skip
"""Methods that the page calls otherwise than the recipe."""


def methods() -> dict[str, str]:
    """Return the methods of the study, in its order, by the names that the page has for them."""
    axis = load_study(RECIPE).axis("method")
    return {NAMES.get(choice.name, choice.name): choice.name for choice in axis.choices}


def columns(items: str, evaluations: Sequence[str] = EVALUATIONS) -> Columns:
    """Return the columns: the data set, and the task. A global model counts before those of the silos."""
    return {
        f"{data}, {task}": lambda row, data=data, task=task: [(data, row, name, task, items) for name in evaluations]
        for data in DATA
        for task in TASKS
    }


def tables() -> list[str]:
    """Return all tables of the page that come from these runs.

    Over items that nobody trained on: figures, differences from FedAvg, and from CenterAP's row. Over all items: figures,
    differences from FedAvg, and the figures across silos of methods without a global model.
    """
    found, rows = figures(RUNS), methods()
    printed = []
    for items, compared in (("unseen", ("FedAvg", "CenterAP, FedAvg")), ("all", ("FedAvg",))):
        shown = columns(items)
        printed.append(table(found, "method", shown, dict.fromkeys(rows)))
        for base in compared:
            bases = {row: None if row == base else base for row in rows}
            printed.append(table(found, "method", shown, bases, differences=True, marked=True))
    apart = [row for row in rows if (DATA[0], row, "GG", TASKS[0], "all") not in found]
    return [*printed, table(found, "method", columns("all", ["XS"]), dict.fromkeys(apart))]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        named = {
            folder_name({"data": data, "method": name}): (data, shown)
            for data in DATA
            for shown, name in methods().items()
        }
        store(Path(sys.argv[1]), RUNS, ["data", "method"], named)
    print("\n\n".join(tables()))
