"""Silos that send wrong sums and records beside correct parameters: how much each aggregation rule loses.

`faulty_silos` runs this. Each method trains ten silos of equal size, of which the first three are faulty. Their parameters
and weights are correct, and their statistics are those of one of the `FAULTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch

from silohash.base.types import Arrays
from silohash.data.partitions.base import partition
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.message import Message
from silohash.run.config.load import load_resolved
from silohash.run.events import Observer, RoundRecord
from silohash.run.folder import archive_of
from silohash.training.engines.port import WAIT_FOR_ALL, InProcess, Limits, SiloResult, SiloTask
from silohash.training.experiment import prepare_run
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, mean_score, run_rounds, validation_scores
from silohash.training.worker import Worker

METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedhap": {"min_count": 1},
    "fedproc": {"min_count": 1},
    "fedproto": {"min_count": 1},
    "fedcafe": {"min_count": 1},
    "fedcafe, means": {"min_count": 1, "memory_rows": "mean"},
    "fedcmr": {"share": "all"},
}
RULES = ("none", "clip", "median")
SILOS, FAULTY = 10, 3

Sums: TypeAlias = tuple[np.ndarray, np.ndarray]
"""The sums of a mean, and the counts by which they are divided."""

Fault: TypeAlias = Callable[[SharedMean, Sums, int], Sums]
"""A function of a mean, its sums and counts, and the number of items of the silo that returns what to send instead."""


def huge(_mean: SharedMean, given: Sums, _items: int) -> Sums:
    """Return sums of -1000."""
    return np.full_like(given[0], -1e3), given[1]


def opposite(_mean: SharedMean, given: Sums, _items: int) -> Sums:
    """Return the silo's own sums, negated."""
    return -given[0], given[1]


def common(mean: SharedMean, given: Sums, items: int) -> Sums:
    """Return the same code for every class with the largest possible counts, and other means that are far too large."""
    if not mean.by_row:
        return (1000 if mean.low >= 0 else -10) * given[0], given[1]
    width = given[0].shape[1]
    code = np.random.default_rng(0).choice([-1.0, 1.0], width) / (np.sqrt(width) if mean.unit else 1.0)
    counts = np.full(given[1].shape, min(items, mean.most) if mean.section == "sums" else 1)
    return counts[:, None] * code, counts


FAULTS: Mapping[str, Fault | None] = {"none": None, "huge": huge, "opposite": opposite, "common": common}


class FaultyStatistics(InProcess):
    """An engine whose first silos send wrong means."""

    def __init__(self, worker: Worker, means: Sequence[SharedMean], fault: Fault | None) -> None:
        super().__init__(worker)
        self.means, self.fault = means, fault

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[SiloResult]:
        """Run the tasks, and change the messages of the faulty silos."""
        for task in tasks:
            result = self.worker.do(task)
            wrong = self.fault is not None and task.kind in ("train", "finish") and task.silo < FAULTY
            yield replace(result, update=self.changed(result.update)) if wrong else result

    def changed(self, message: Message) -> Message:
        """Return a message with wrong means."""
        assert self.fault is not None
        for mean in self.means:
            values = mean.values(message)
            wrong: Arrays = {}
            for name, count in mean.pairs(message).items():
                wrong[name], wrong[count] = self.fault(mean, (values[name], values[count]), message.counts["items"])
            message = mean.changed(message, wrong)
        return message


class Rejections(Observer):
    """An observer that keeps the number of silos whose last update was rejected."""

    count = 0

    def round(self, record: RoundRecord) -> None:
        """Count the rejections of a round."""
        self.count = sum(silo.rejected is not None for silo in record.silos)


def statistics_table(data: str, base: Mapping[str, Any], *, rounds: int, methods: Sequence[str] = ()) -> None:
    """Print one line per method and fault: the score under each rule, and how many updates were rejected.

    Args:
        data: Name of the data set.
        base: Config without ``[federated]``.
        rounds: Number of rounds of four epochs.
        methods: Keys of `METHODS`; all of them by default.
    """
    rules = " ".join(f"{rule:>7}" for rule in RULES)
    print(f"{'data':10} {'method':15} {'statistics':10} {rules} {'rejected':>9}", flush=True)
    for method in methods or METHODS:
        federated = {"name": method.partition(",")[0], "rounds": rounds, "local_epochs": 4, **METHODS[method]}
        plain = load_resolved({**base, "federated": federated})
        archive = archive_of(plain.config.data)
        inputs, _ = prepare_run(archive, partition(archive, "iid", SILOS, 0), plain)
        # FedProto sends no parameters to clip
        allowed = ("none", "median") if federated["name"] == "fedproto" else RULES
        for kind, fault in FAULTS.items():
            shown, rejected = dict.fromkeys(RULES, "-"), 0
            for rule in allowed:
                robust = {} if rule == "none" else {"robust": {"rule": rule}}
                resolved = load_resolved({**base, "federated": {**federated, **robust}})
                score, rejected = trained(replace(inputs, resolved=resolved), fault)
                shown[rule] = f"{100 * score:.1f}"
            figures = " ".join(f"{figure:>7}" for figure in shown.values())
            print(f"{data:10} {method:15} {kind:10} {figures} {rejected:9}", flush=True)


def trained(inputs: Prepared, fault: Fault | None) -> tuple[float, int]:
    """Return the last models' score on the correct silos, and the number of updates rejected in the last round."""
    federated, worker, seen = inputs.resolved.federated, Worker(inputs, torch.device("cpu")), Rejections()
    rounds = inputs.config.federated.rounds
    settings = RoundSettings(rounds=rounds, silos=[name for name, *_ in inputs.silos], validate=False)
    engine = FaultyStatistics(worker, federated.means, fault)
    start = worker.first_state()
    state = run_rounds(start, federated=federated, engine=engine, settings=settings, observers=[seen])
    scores = validation_scores(InProcess(worker), federated, state, settings)
    return mean_score(scores[FAULTY:]) or 0.0, seen.count
