"""Cost of training: overhead of the federated loop, use of the machine, methods, bfloat16, and a second worker process.

    python benchmarks/training.py [--smoke]

The data are the features of coco18, or random numbers of the same shape if ``SILOHASH_DATA`` does not have them. Every
line shows a ratio of two times measured in turn in this run, and its goal.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from silohash.base.errors import UserError
from silohash.data.archive import Archive, ArchiveCard
from silohash.data.partitions.base import partition
from silohash.methods.federated.base import FederationInfo
from silohash.methods.local.base import SiloData, SiloState
from silohash.models.parameters import install
from silohash.run.config.load import load_resolved
from silohash.run.config.sections import RunConfig
from silohash.run.folder import archive_of
from silohash.training.checkpoint import RunState, save_checkpoint
from silohash.training.engines.port import InProcess
from silohash.training.engines.worker_processes import WorkerProcesses
from silohash.training.experiment import prepare_run
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.silo import autocast, make_optimizer
from silohash.training.worker import Worker

SILOS = 10
EPOCHS = 2
REPEATS = 3
HIDDEN = 4096
CONFIG: dict[str, Any] = {
    "data": {"name": "coco18"},
    "features": {"text": {"kind": "tfidf", "buckets": 2048}},
    "model": {"hidden": 512},
    "partition": {"kind": "iid", "silos": SILOS},
    "local": {"name": "dcmh", "bits": 64},
    "federated": {"name": "fedavg", "rounds": 100, "local_epochs": EPOCHS},
    "train": {"batch": 128, "threads": 1, "decay": False},
    "evaluate": {"validation": 0.0},
}


def main() -> None:
    """Measure and print every ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="use small networks and few silos, to check that it runs")
    smoke = parser.parse_args().smoke
    hidden, silos = (64, 2) if smoke else (HIDDEN, SILOS)
    resolved = load_resolved(CONFIG)
    archive = coco18_or_drawn(resolved.config)
    parts = partition(archive, "iid", silos, 0)
    prepared, _ = prepare_run(archive, parts, resolved)
    torch.set_num_threads(1)
    print(f"{archive.card.name}: {silos} silos of {prepared.silos[0][1]} pairs, {EPOCHS} epochs per round, one thread")
    overhead(prepared)
    methods(prepared)
    matrix_share(prepared, hidden)
    bfloat16(prepared, hidden)
    workers(prepared)


def report(claim: str, ratio: float, goal: str, *, met: bool) -> None:
    """Print one line."""
    print(f"{claim:72} {ratio:6.2f}   goal {goal:8} {'met' if met else 'NOT MET'}", flush=True)


def coco18_or_drawn(config: RunConfig) -> Archive:
    """Return coco18, or random numbers of its shape."""
    try:
        return archive_of(config.data)
    except UserError as error:
        print(f"{error} Using random numbers of the shape of coco18.", file=sys.stderr)
    generator = np.random.default_rng(0)
    count = 5_000
    words = np.array([" ".join(f"w{w}" for w in row) for row in generator.integers(0, 1200, (count, 8))])
    return Archive(
        ids=np.arange(count).astype(np.str_),
        image=generator.random((count, 1280), dtype=np.float32),
        text=words,
        labels=(generator.random((count, 18)) < 0.1).astype(np.uint8)
        | np.eye(18, dtype=np.uint8)[np.arange(count) % 18],
        label_names=tuple(f"label {c}" for c in range(18)),
        splits={"query": np.arange(1_000), "database": np.arange(1_000, count), "train": np.arange(1_000, count)},
        card=ArchiveCard(name="drawn", source="", license=""),
    )


def side_by_side(*tasks: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Return the median seconds of each task. The tasks take turns, so that a busy machine affects all of them."""
    for task in tasks:
        task()
    seconds: list[list[float]] = [[] for _ in tasks]
    for _ in range(REPEATS):
        for task, found in zip(tasks, seconds, strict=True):
            started = clock()
            task()
            found.append(clock() - started)
    return [statistics.median(found) for found in seconds]


def overhead(prepared: Prepared) -> None:
    """Compare the federated loop, with its checkpoint, with the same training steps in a plain loop."""
    config = prepared.config
    federated = prepared.resolved.federated
    worker = Worker(prepared, torch.device("cpu"))
    settings = RoundSettings(rounds=100, silos=[name for name, _, _ in prepared.silos], validate=False)
    info = FederationInfo(
        silos=len(prepared.silos), classes=prepared.spec.classes, bits=config.local.bits, total_rounds=100
    )
    state = RunState(round=0, server=federated.init_server(worker.model, info))
    data = [prepared.silo(number, torch.device("cpu"))[0] for number in range(len(prepared.silos))]
    with tempfile.TemporaryDirectory() as folder:

        def loop() -> None:
            one = RoundSettings(rounds=1, silos=settings.silos, validate=False)
            run_rounds(
                state,
                federated=federated,
                engine=InProcess(worker),
                settings=one,
                save=lambda after: save_checkpoint(Path(folder) / "checkpoint", after, "benchmark"),
            )

        def bare() -> None:
            for silo in data:
                install(worker.model, state.server.params)
                plain_training(worker, silo)

        federated_seconds, bare_seconds = side_by_side(loop, bare)
    ratio = federated_seconds / bare_seconds
    report("a round of the federated loop / its bare training steps", ratio, "<= 1.05", met=ratio <= 1.05)


def methods(prepared: Prepared) -> None:
    """Compare epochs of the local methods ``centerap`` and ``dcmh`` on the pairs of one silo."""
    silo = prepared.silo(0, torch.device("cpu"))[0]
    workers = []
    for name in ("centerap", "dcmh"):
        resolved = load_resolved({**CONFIG, "local": {"name": name, "bits": 64}})
        workers.append(Worker(replace(prepared, resolved=resolved), torch.device("cpu")))
    seconds, base_seconds = side_by_side(*(partial(plain_training, worker, silo) for worker in workers))
    ratio = seconds / base_seconds
    report("an epoch of centerap / of dcmh", ratio, "<= 1.3", met=ratio <= 1.3)


def plain_training(worker: Worker, silo: SiloData) -> None:
    """Do the steps of one silo's round, without hooks, records, messages or aggregation."""
    settings = worker.config.train
    local, model, state = worker.local, worker.model.train(), SiloState()
    steps = local.steps(model)
    optimizers = [
        make_optimizer([p for n, p in model.named_parameters() if n.startswith(step.parameters)], settings, 1e-3)
        for step in steps
    ]
    local.init_state(model, silo, state)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(silo)).split(settings.batch):
            batch = silo.batch(rows)
            for step, optimizer in zip(steps, optimizers, strict=True):
                with autocast(settings.precision, rows.device):
                    outputs = model(batch, step.modalities)
                terms = local.terms(step, outputs, batch, state)
                loss = torch.stack([weight * value for weight, value in terms.values()]).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                local.record(step, outputs, batch, state)
        local.end_epoch(model, silo, state)


def step_of(prepared: Prepared, *, hidden: int, precision: str, batch: int) -> tuple[Callable[[], None], int]:
    """Return a training step of both towers, and the number of floating-point operations in its matrix products."""
    changed = {"model": {"hidden": hidden}, "train": {"batch": batch, "precision": precision}}
    resolved = load_resolved({**prepared.config.to_json(), **_merged(prepared.config.to_json(), changed)})
    config = resolved.config
    towers = {name: type(spec)(**{**spec.__dict__, "hidden": hidden}) for name, spec in prepared.spec.towers.items()}
    spec = type(prepared.spec)(towers=towers, classes=prepared.spec.classes)
    worker = Worker(type(prepared)(resolved, spec, prepared.silos, prepared.arrays), torch.device("cpu"))
    everything = pooled(prepared)
    state, settings = SiloState(), config.train
    worker.local.init_state(worker.model, everything, state)
    steps = worker.local.steps(worker.model)
    optimizers = [
        make_optimizer([p for n, p in worker.model.named_parameters() if n.startswith(step.parameters)], settings, 1e-3)
        for step in steps
    ]
    rows = torch.arange(batch)
    pairs = everything.batch(rows)

    def step_once() -> None:
        for step, optimizer in zip(steps, optimizers, strict=True):
            with autocast(settings.precision, rows.device):
                outputs = worker.model(pairs, step.modalities)
            terms = worker.local.terms(step, outputs, pairs, state)
            loss = torch.stack([weight * value for weight, value in terms.values()]).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            worker.local.record(step, outputs, pairs, state)

    anchors = len(state.buffers["anchors"])
    bits = config.local.bits
    operations = 0
    for tower in towers.values():
        operations += 2 * 2 * batch * tower.shape[0] * hidden + 3 * 2 * batch * hidden * bits
        operations += 2 * 2 * batch * anchors * bits + 2 * batch * anchors * prepared.spec.classes
    return step_once, operations


def _merged(config: dict[str, Any], changed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: {**config[name], **values} for name, values in changed.items()}


def pooled(prepared: Prepared) -> SiloData:
    """Return the pairs of all silos as those of one silo."""
    one = Prepared(prepared.resolved, prepared.spec, [("all", len(prepared.arrays["labels"]), 0)], prepared.arrays)
    return one.silo(0, torch.device("cpu"))[0]


def matrix_share(prepared: Prepared, hidden: int) -> None:
    """Compare training steps with matrix products of the largest shape in a step."""
    batch, width = 512, prepared.spec.towers["image"].shape[0]
    step, operations = step_of(prepared, hidden=hidden, precision="float32", batch=batch)
    left, right = torch.randn(batch, width), torch.randn(width, hidden)
    out = torch.empty(batch, hidden)

    def product() -> None:
        for _ in range(8):
            torch.mm(left, right, out=out)

    step_seconds, product_seconds = side_by_side(step, product)
    rate, roof = operations / step_seconds, 8 * 2 * batch * width * hidden / product_seconds
    share = rate / roof
    report(
        f"training steps / matrix products ({rate / 1e9:.0f} of {roof / 1e9:.0f} GFLOP/s, hidden {hidden}, batch {batch})",
        share, ">= 0.70", met=share >= 0.7,
    )  # fmt: skip


def bfloat16(prepared: Prepared, hidden: int) -> None:
    """Compare a step in float32 with the same step in bfloat16."""
    full, _ = step_of(prepared, hidden=hidden, precision="float32", batch=512)
    half, _ = step_of(prepared, hidden=hidden, precision="bfloat16", batch=512)
    full_seconds, half_seconds = side_by_side(full, half)
    ratio = full_seconds / half_seconds
    report("float32 step / bfloat16 step", ratio, ">= 2", met=ratio >= 2)


def workers(prepared: Prepared) -> None:
    """Compare a round in one process with a round in two worker processes, with one thread each."""
    federated = prepared.resolved.federated
    worker = Worker(prepared, torch.device("cpu"))
    info = FederationInfo(silos=len(prepared.silos), classes=prepared.spec.classes, bits=64, total_rounds=100)
    state = RunState(round=0, server=federated.init_server(worker.model, info))
    settings = RoundSettings(rounds=1, silos=[name for name, _, _ in prepared.silos], validate=False)
    with tempfile.TemporaryDirectory() as folder:
        two = WorkerProcesses(Path(folder) / "inputs", 2, prepared.save)
        try:
            two.start(settings.silos)
            seconds = side_by_side(
                lambda: run_rounds(state, federated=federated, engine=InProcess(worker), settings=settings),
                lambda: run_rounds(state, federated=federated, engine=two, settings=settings),
            )
        finally:
            two.stop()
    ratio = seconds[0] / seconds[1]
    report("a round with one worker / with two", ratio, ">= 1.6", met=ratio >= 1.6)


if __name__ == "__main__":
    main()
