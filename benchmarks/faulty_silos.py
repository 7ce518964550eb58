"""Faulty silos on real data: which of them are detected, and how much each aggregation rule loses.

    python benchmarks/faulty_silos.py [DATA SET...] [--labels | --statistics] [--methods METHOD...] [--rounds N]

There are ten silos. The default data sets are ``coco18`` and ``fashion``. The score is that of the last round's model on
the held-back items of the correct silos, in percent.

The first table is for shuffled labels and takes five minutes per data set. Silos have equal or unequal sizes, and the labels
of none, one or three of them are shuffled among their items. ``found`` counts the faulty silos that the record of any round
names, and ``wrong`` the others that are named.

The second table is for wrong statistics beside correct parameters (`faulty_statistics`) and takes twenty minutes per data
set. Three silos send ``huge`` sums of -1000, the ``opposite`` of their sums, or ``common`` sums: one code for all classes,
with the largest possible counts. There is one column per rule, and one for the updates that were rejected.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from faulty_statistics import statistics_table

from silohash.data.partitions.base import partition
from silohash.methods.federated.base import FederationInfo
from silohash.run.config.load import load_resolved
from silohash.run.events import Observer, RoundRecord
from silohash.run.folder import archive_of
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess
from silohash.training.experiment import prepare_run
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, mean_score, run_rounds, validation_scores
from silohash.training.worker import Worker

SILOS, ROUNDS = 10, 8
CONFIG = {
    "features": {"text": {"kind": "tfidf", "buckets": 1024}},
    "model": {"hidden": 256},
    "local": {"name": "dcmh", "bits": 32},
    "train": {"batch": 128, "threads": 1, "learning_rate": 4e-3},
    "evaluate": {"validation": 0.1},
}
OPTIONS: Mapping[str, Mapping[str, str]] = {"fashion": {"labels": "article_type"}}
SHARES: Mapping[str, tuple[str, dict[str, float]]] = {"even": ("iid", {}), "unequal": ("dirichlet", {"beta": 0.2})}
RULES = ("none", "clip", "median", "trimmed_mean", "multi_krum")


class Named(Observer):
    """An observer that collects the silos that a record names."""

    def __init__(self) -> None:
        self.silos: set[str] = set()

    def round(self, record: RoundRecord) -> None:
        """Add the silos of the record's warnings."""
        self.silos |= {warning.partition(": ")[0] for warning in record.warnings}


def main() -> None:
    """Measure the data sets on the command line."""
    parser = argparse.ArgumentParser(description="Measure what faulty silos cost under each aggregation rule.")
    parser.add_argument("data", nargs="*", default=["coco18", "fashion"], help="data sets")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--labels", action="store_true", help="shuffled labels only")
    only.add_argument("--statistics", action="store_true", help="wrong statistics only")
    parser.add_argument("--methods", nargs="+", default=[], help="methods of the table of statistics; default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of the table of statistics")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.statistics:
        labels_table(options.data)
    if not options.labels:
        for data in options.data:
            statistics_table(data, base_of(data), rounds=options.rounds, methods=options.methods)


def base_of(data: str) -> dict[str, object]:
    """Return the config for a data set, without ``[federated]``."""
    return {**CONFIG, "data": {"name": data, "options": OPTIONS.get(data, {})}}


def labels_table(sets: Sequence[str]) -> None:
    """Print the table of shuffled labels."""
    print(f"{'data':10} {'sizes':8} {'faulty':>6} {'rule':14} {'score':>6} {'found':>6} {'wrong':>8}")
    for data, shares in product(sets, SHARES):
        measured(data, shares)


def measured(data: str, shares: str) -> None:
    """Print the results for one data set and one kind of sizes."""
    federated = {"name": "fedavg", "rounds": ROUNDS, "local_epochs": 4}
    base = base_of(data)
    resolved = load_resolved({**base, "federated": federated})
    archive, (kind, options) = archive_of(resolved.config.data), SHARES[shares]
    inputs, _ = prepare_run(archive, partition(archive, kind, SILOS, 0, **options), resolved)
    for faulty, rule in [(0, "none"), *product((1, 3), RULES)]:
        ruled = {} if rule == "none" else {"robust": {"rule": rule}}
        score, named = trained(
            replace(inputs, resolved=load_resolved({**base, "federated": {**federated, **ruled}})), faulty
        )
        right = sum(name in named for name, *_ in inputs.silos[:faulty])
        print(
            f"{data:10} {shares:8} {faulty:6} {rule:14} {100 * score:6.1f} {right:6} {len(named) - right:8}", flush=True
        )


def trained(inputs: Prepared, faulty: int) -> tuple[float, set[str]]:
    """Return the last model's score on the correct silos, with true labels, and the silos that any record names."""
    believed = replace(inputs, arrays={**inputs.arrays, "labels": shuffled(inputs, faulty)})
    federated, worker = inputs.resolved.federated, Worker(believed, torch.device("cpu"))
    info = FederationInfo(silos=SILOS, classes=inputs.spec.classes, bits=inputs.config.local.bits, total_rounds=ROUNDS)
    settings, named = RoundSettings(rounds=ROUNDS, silos=[name for name, *_ in inputs.silos]), Named()
    state = RunState(round=0, server=federated.init_server(worker.model, info))
    state = run_rounds(state, federated=federated, engine=InProcess(worker), settings=settings, observers=[named])
    scores = validation_scores(InProcess(Worker(inputs, torch.device("cpu"))), federated, state, settings)
    return mean_score(scores[faulty:]) or 0.0, named.silos


def shuffled(inputs: Prepared, faulty: int) -> np.ndarray:
    """Return the labels, with those of the first silos shuffled within each silo."""
    labels, ends = inputs.arrays["labels"].copy(), np.cumsum([train + held for _, train, held in inputs.silos])
    for silo, (start, end) in enumerate(zip([0, *ends], ends[:faulty], strict=False)):
        labels[start:end] = np.random.default_rng(silo).permutation(labels[start:end])
    return labels


if __name__ == "__main__":
    main()
