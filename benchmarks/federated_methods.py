"""Time of a round of each federated method, relative to a round of FedAvg.

    python benchmarks/federated_methods.py [METHOD...]

The third round is measured, because by then every method has its state from earlier rounds (a previous model,
prototypes, a memory). A round has five local epochs and includes the messages. Each method's round and FedAvg's take
turns, and their CPU times are compared. The goal for MOON and FedCAFE is 1.3.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from training import CONFIG, SILOS, coco18_or_drawn, report, side_by_side

from silohash.data.archive import Archive
from silohash.data.partitions.base import partition
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import FederationInfo
from silohash.run.config.load import load_config, load_resolved
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess
from silohash.training.experiment import prepare_run
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.worker import Worker

GOALS = {"moon": 1.3, "fedcafe": 1.3}
LOCAL_EPOCHS = 5
ROUNDS_BEFORE = 2


def main() -> None:
    """Measure the methods on the command line; all of them by default."""
    archive = coco18_or_drawn(load_config(CONFIG))
    torch.set_num_threads(1)
    average = third_round(archive, "fedavg")
    names = sys.argv[1:] or [name for name in FEDERATED_METHODS.names() if name not in {"fedavg", "centralized"}]
    for name in names:
        seconds, average_seconds = side_by_side(third_round(archive, name), average, clock=time.process_time)
        ratio, goal = seconds / average_seconds, GOALS.get(name)
        shown = "none" if goal is None else f"<= {goal}"
        report(f"a round of {name} / a round of fedavg", ratio, shown, met=goal is None or ratio <= goal)


def third_round(archive: Archive, method: str) -> Callable[[], object]:
    """Return a function that runs a method's third round, each time from the same state."""
    resolved = load_resolved(CONFIG, [f"federated.name={method}", f"federated.local_epochs={LOCAL_EPOCHS}"])
    prepared, _ = prepare_run(archive, partition(archive, "iid", SILOS, 0), resolved)
    federated, worker = resolved.federated, Worker(prepared, torch.device("cpu"))
    info = FederationInfo(silos=SILOS, classes=prepared.spec.classes, bits=resolved.config.local.bits, total_rounds=100)
    settings = RoundSettings(rounds=ROUNDS_BEFORE, silos=[name for name, _, _ in prepared.silos], validate=False)
    engine = InProcess(worker)
    start = RunState(round=0, server=federated.init_server(worker.model, info))
    state = run_rounds(start, federated=federated, engine=engine, settings=settings)

    def one() -> object:
        return run_rounds(
            state, federated=federated, engine=engine, settings=replace(settings, rounds=ROUNDS_BEFORE + 1)
        )

    return one


if __name__ == "__main__":
    main()
