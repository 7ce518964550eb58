"""Silos with random labels on real data: which are named, and what they cost under each rule.

Run: ``python benchmarks/faulty_silos.py [DATA SET…]`` (``coco18`` and ``fashion`` by default; five minutes each). Ten silos
with even and with unequal shares; none, one or three of them hold labels that are shuffled among their items. The score is
that of the last round's model on the honest silos' held-back items, in points; ``named`` are faulty silos that the last
round's record names, ``wrongly`` honest ones.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import torch

from silohash.data.partition.base import partition
from silohash.federated.base import FederationInfo
from silohash.runtime.checkpoint import RunState
from silohash.runtime.config import load_config
from silohash.runtime.events import RoundRecord
from silohash.runtime.experiment import prepare_run
from silohash.runtime.prepared import Prepared
from silohash.runtime.rounds import RoundSettings, mean_score, run_rounds, validation_scores
from silohash.runtime.run import archive_of
from silohash.runtime.runner import InProcess
from silohash.runtime.worker import Worker

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


class Last:
    """An observer that keeps the last record."""

    record: RoundRecord

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Nothing to do."""

    def round(self, record: RoundRecord) -> None:
        """Keeps it."""
        self.record = record

    def finish(self) -> None:
        """Nothing to do."""


def main() -> None:
    """Measures the data sets named on the command line."""
    torch.set_num_threads(1)
    print(f"{'data':10} {'shares':8} {'faulty':>6} {'rule':14} {'score':>6} {'named':>6} {'wrongly':>8}")
    for data, shares in product(sys.argv[1:] or ["coco18", "fashion"], SHARES):
        measured(data, shares)


def measured(data: str, shares: str) -> None:
    """Prints the lines of one data set in one kind of shares."""
    federated = {"name": "fedavg", "rounds": ROUNDS, "local_epochs": 4}
    base = {**CONFIG, "data": {"name": data, "options": OPTIONS.get(data, {})}}
    config = load_config({**base, "federated": federated})
    archive, (kind, options) = archive_of(config), SHARES[shares]
    inputs, _ = prepare_run(archive, partition(archive, kind, SILOS, 0, **options), config)
    for faulty, rule in [(0, "none"), *product((1, 3), RULES)]:
        ruled = {} if rule == "none" else {"robust": {"rule": rule}}
        score, named = trained(
            replace(inputs, config=load_config({**base, "federated": {**federated, **ruled}})), faulty
        )
        right = sum(name in named for name, *_ in inputs.silos[:faulty])
        print(
            f"{data:10} {shares:8} {faulty:6} {rule:14} {100 * score:6.1f} {right:6} {len(named) - right:8}", flush=True
        )


def trained(inputs: Prepared, faulty: int) -> tuple[float, set[str]]:
    """Returns the honest silos' true score of the last model, and the silos that the last record names."""
    believed = replace(inputs, arrays={**inputs.arrays, "labels": shuffled(inputs, faulty)})
    federated, worker = inputs.config.federated_method, Worker(believed, torch.device("cpu"))
    info = FederationInfo(silos=SILOS, classes=inputs.spec.classes, bits=inputs.config.local.bits, total_rounds=ROUNDS)
    settings, last = RoundSettings(rounds=ROUNDS, silos=[name for name, *_ in inputs.silos]), Last()
    state = RunState(round=0, server=federated.init_server(worker.model, info))
    state = run_rounds(state, federated=federated, runner=InProcess(worker), settings=settings, observers=[last])
    scores = validation_scores(InProcess(Worker(inputs, torch.device("cpu"))), federated, state, settings)
    named = {warning.partition(": ")[0] for warning in last.record.warnings}
    return mean_score(scores[faulty:]) or 0.0, named


def shuffled(inputs: Prepared, faulty: int) -> np.ndarray:
    """Returns the labels, those of the first silos shuffled among each silo's own items."""
    labels, ends = inputs.arrays["labels"].copy(), np.cumsum([train + held for _, train, held in inputs.silos])
    for silo, (start, end) in enumerate(zip([0, *ends], ends[:faulty], strict=False)):
        labels[start:end] = np.random.default_rng(silo).permutation(labels[start:end])
    return labels


if __name__ == "__main__":
    main()
