"""Print the table of local methods of `papers/federated.md`, from the figures of single runs.

`python -m tests.docs.federated_local_page` prints it. With the path of a study, it first stores the figures of its runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from silohash.study.config import load_study
from silohash.study.plan import folder_name
from tests.docs import federated_page
from tests.docs.feduch_page import PAPERS, RESULTS
from tests.docs.run_figures import Columns, Figures, figures, store, table

RUNS = RESULTS / "federated-local.csv"
RECIPE = PAPERS.parent / "recipes" / "federated-local.toml"
DATA = ("coco18", "fashion-0.5")
SEEDS = ("0", "1", "2")
TRAININGS = ("FedAvg", "FedRidge after FedAvg")
NAMES = {
    "DCMH, FedAvg": "FedAvg", "DCMH, FedRidge after FedAvg": "FedRidge after FedAvg",
    "CenterAP, FedAvg": "CenterAP, FedAvg", "CenterAP, FedRidge after FedAvg": "CenterAP, FedRidge after FedAvg",
}  # fmt: skip
"""Rows whose runs are those of the comparison of federated methods, by their names there."""


def methods() -> list[str]:
    """Return the local methods of the study, in its order."""
    return [choice.name for choice in load_study(RECIPE).axis("local").choices]


def rows(training: str) -> list[str]:
    """Return the rows with one federated method."""
    return [f"{local}, {training}" for local in methods()]


def all_figures() -> Figures:
    """Return the figures by data set, row, evaluation, task and kind of items."""
    found = {
        (data, f"{local}, {training}", *key): seeds for (data, local, training, *key), seeds in figures(RUNS).items()
    }
    compared = figures(federated_page.RUNS)
    for row, name in NAMES.items():
        for (data, method, *key), seeds in compared.items():
            if data in DATA and method == name:
                found[data, row, *key] = {seed: seeds[seed] for seed in SEEDS}
    return found


def columns() -> Columns:
    """Return the columns: the data set, and the task, over items that nobody trained on."""
    return {
        f"{data}, {task}": lambda row, data=data, task=task: [(data, row, "GG", task, "unseen")]
        for data in DATA
        for task in ("i2t", "t2i")
    }


def tables() -> list[str]:
    """Return the table of figures, and that of differences from CenterAP under the same training."""
    found = all_figures()
    shown = [row for training in TRAININGS for row in rows(training)]
    bases = {row: f"CenterAP, {row.split(', ')[1]}" for row in shown}
    bases = {row: None if row == base else base for row, base in bases.items()}
    return [
        table(found, "local method, training", columns(), dict.fromkeys(shown)),
        table(found, "local method, training", columns(), bases, differences=True, marked=True),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        named = {
            folder_name({"data": data, "local": local, "training": training}): (data, local, training)
            for data in DATA
            for local in methods()
            for training in TRAININGS
        }
        store(Path(sys.argv[1]), RUNS, ["data", "local", "training"], named)
    print("\n\n".join(tables()))
