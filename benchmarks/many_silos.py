"""Time and memory of rounds with many small silos: 10, 100 and 1,000 silos, and a tenth of 1,000 silos per round.

    python benchmarks/many_silos.py [--silos N...] [METHOD...]

The silos of 1,000 have 4 to 40 pairs each, and fewer silos share the same pairs, so that all configurations have the
same inputs. The model has 1.8 million parameters. Silos train for one epoch per round with one thread, and no silo holds
back items for validation. Every configuration runs in its own process.

``time``    CPU time of a round per silo, relative to the method's bare training steps: the local method's stored
            outputs, and the batches, forward passes, loss terms, backward passes and optimizer steps of the same silos
            in a plain loop with existing optimizers. A second line shows what the method itself computes from all items
            after the training, such as class means, and the time relative to both. Two rounds are measured after a first
            one, which creates the optimizers and the temporary file.
``memory``  peak memory of the process, relative to that with 10 silos.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from training import CONFIG, report

from silohash.methods.federated.base import FederatedMethod, FederationInfo, SiloContext
from silohash.models.parameters import Optimizer
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Adapted
from silohash.run.config.load import load_resolved
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import WAIT_FOR_ALL, Answer, InProcess, Limits, SiloTask
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.silo import make_context, make_optimizer
from silohash.training.worker import Worker

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "fedprox": {"name": "fedprox"},
    "fedcafe": {"name": "fedcafe", "memory": "class_mean"},
    "fedhap": {"name": "fedhap"},
}
CLASSES, IMAGE_WIDTH, TEXT_WIDTH = 18, 1280, 2048
MOST_SILOS = 1_000
ROUNDS = 2
TIME_GOAL, MEMORY_GOAL = 1.5, 1.3


def main() -> None:
    """Measure the methods on the command line; all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"{', '.join(METHODS)}; by default all")
    parser.add_argument("--silos", nargs="*", type=int, default=[10, 100, 1_000], help="numbers of silos")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "SILOS", "FRACTION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        method, silos, fraction = options.one
        print(json.dumps(measured(method, int(silos), float(fraction))))
        return
    for method in options.methods or METHODS:
        few = in_own_process(method, 10, 1.0)
        for silos, fraction in [*((count, 1.0) for count in options.silos), (max(options.silos), 0.1)]:
            found = few if (silos, fraction) == (10, 1.0) else in_own_process(method, silos, fraction)
            show(method, silos, fraction, found, few)


def show(method: str, silos: int, fraction: float, found: dict[str, float], few: dict[str, float]) -> None:
    """Print the time and memory of one configuration."""
    share = "all" if fraction == 1 else f"{fraction:.0%}"
    ratio = found["seconds"] / found["bare_seconds"]
    report(
        f"{method}, {silos} silos, {share} per round: {1e3 * found['seconds']:.1f} ms per silo / bare steps", ratio,
        f"<= {TIME_GOAL}", met=ratio <= TIME_GOAL,
    )  # fmt: skip
    with_pass = found["bare_seconds"] + found["pass_seconds"]
    print(
        f"    {1e3 * found['bare_seconds']:.1f} ms of bare steps, then {1e3 * found['pass_seconds']:.1f} ms of the method's "
        f"own pass over the items: time / both {found['seconds'] / with_pass:.2f}"
    )
    ratio = found["megabytes"] / few["megabytes"]
    report(
        f"{method}, {silos} silos, {share} per round: peak memory {found['megabytes']:.0f} MB / 10 silos", ratio,
        f"<= {MEMORY_GOAL}", met=ratio <= MEMORY_GOAL,
    )  # fmt: skip


def in_own_process(method: str, silos: int, fraction: float) -> dict[str, float]:
    """Return what `measured` finds in a process of its own, whose peak memory is that of this configuration."""
    command = [sys.executable, __file__, "--one", method, str(silos), str(fraction)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


def measured(method: str, silos: int, fraction: float) -> dict[str, float]:
    """Return the CPU seconds per silo of rounds and of bare training steps, and the peak memory in megabytes."""
    torch.set_num_threads(1)
    prepared = inputs(method, silos)
    federated, worker = prepared.resolved.federated, Worker(prepared, torch.device("cpu"))
    info = FederationInfo(silos=silos, classes=CLASSES, bits=prepared.config.local.bits, total_rounds=100)
    state = RunState(round=0, server=federated.init_server(worker.model, info))
    names = [name for name, _, _ in prepared.silos]
    settings = RoundSettings(rounds=1 + ROUNDS, silos=names, fraction=fraction, validate=False)
    participants = max(1, round(fraction * silos))
    engine, ends, megabytes = BesideBareSteps(worker, every=max(1, participants // 100)), list[float](), list[float]()

    def after_round(_: RunState) -> None:
        """Note the end of a round and the memory until then. The first round is not measured."""
        ends.append(time.process_time() - engine.seconds)
        megabytes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
        if len(ends) == 1:
            engine.measured.clear()

    run_rounds(state, federated=federated, engine=engine, settings=settings, save=after_round)
    bare_seconds, pass_seconds = np.mean(engine.measured, axis=0).tolist()
    return {
        "seconds": (ends[-1] - ends[0]) / (ROUNDS * participants), "bare_seconds": bare_seconds,
        "pass_seconds": pass_seconds, "megabytes": megabytes[-1],
    }  # fmt: skip


class BesideBareSteps(InProcess):
    """Carry out tasks, and measure bare steps of some of their silos in between, so that a busy machine affects both.

    Args:
        worker: Carries out the tasks.
        every: Bare steps are measured after each training task of this distance.

    Attributes:
        measured: Seconds of the bare steps and of the method's pass, per measured silo.
        seconds: Total time of the measurements.
    """

    def __init__(self, worker: Worker, every: int) -> None:
        super().__init__(worker)
        self.every, self.measured, self.seconds = every, list[tuple[float, float]](), 0.0

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Carry out the tasks in order. After a training task, the same silo may take bare steps."""
        for number, task in enumerate(tasks):
            yield self.worker.do(task)
            if task.kind == "train" and (number + task.broadcast.round) % self.every == 0:
                started = time.process_time()
                self.measured.append(plain_round(self.worker, task))
                self.seconds += time.process_time() - started


def inputs(method: str, silos: int) -> Prepared:
    """Return random inputs of the shape of coco18's features, divided among the silos."""
    overrides = [f"federated.{key}={json.dumps(value)}" for key, value in METHODS[method].items()]
    resolved = load_resolved(CONFIG, [*overrides, "federated.local_epochs=1"])
    many = [4 + number * 37 // MOST_SILOS for number in range(MOST_SILOS)]
    pairs = [sum(many[start::silos]) for start in range(silos)]
    generator, count = np.random.default_rng(0), sum(pairs)
    text = np.zeros((count, TEXT_WIDTH), np.float32)
    np.put_along_axis(text, generator.integers(0, TEXT_WIDTH, (count, 8)), 0.35, axis=1)
    arrays = {
        "image": generator.random((count, IMAGE_WIDTH), np.float32),
        "text": text,
        "labels": (generator.random((count, CLASSES)) < 0.15).astype(np.float32),
        "has_image": np.ones(count, np.bool_),
        "has_text": np.ones(count, np.bool_),
    }
    hidden = resolved.config.model.hidden
    widths = {"image": IMAGE_WIDTH, "text": TEXT_WIDTH}
    spec = ModelSpec(
        towers={m: TowerSpec(kind="mlp", shape=(width,), hidden=hidden) for m, width in widths.items()},
        classes=CLASSES, class_head=resolved.federated.class_head,
    )  # fmt: skip
    return Prepared(resolved, spec, [(f"silo-{n}", size, 0) for n, size in enumerate(pairs)], arrays)


def plain_round(worker: Worker, task: SiloTask) -> tuple[float, float]:
    """Return the CPU seconds of one silo's training steps, and of the method's pass over the items after them."""
    data, _ = worker.prepared.silo(task.silo, worker.device)
    context = make_context(
        task, worker.config, model=worker.model, local=worker.local, data=data, initial=worker.initial
    )
    worker.federated.begin_round(context)
    optimizers = [optimizer_of(worker, step.parameters) for step in worker.local.steps(worker.model)]
    auxiliary = [p for network in context.auxiliary.values() for p in network.parameters()]
    judge = with_state(Optimizer(auxiliary, "adam", 1e-3)) if auxiliary else None
    return timed(lambda: plain_steps(worker, context, optimizers, judge)), seconds_of_pass(worker, context)


def plain_steps(
    worker: Worker,
    context: SiloContext,
    optimizers: Sequence[Optimizer],
    judge: Optimizer | None,
) -> None:
    """Train for one epoch, without optimizers' creation, messages or aggregation."""
    data = context.data
    for rows in batches(len(data), worker.config.train.batch, context):
        batch = data.batch(rows)
        for step, optimizer in zip(worker.local.steps(worker.model), optimizers, strict=True):
            outputs = Adapted(worker.model, worker.federated, context.payload.extras)(batch, step.modalities)
            terms = worker.local.terms(step, outputs, batch, context.state)
            advance(optimizer, {**terms, **worker.federated.regularizer(context, batch, outputs)})
            worker.local.record(step, outputs, batch, context.state)
            if judge is not None:
                advance(judge, worker.federated.auxiliary_step(context, batch, outputs))
    worker.local.end_epoch(worker.model, data, context.state)


def seconds_of_pass(worker: Worker, context: SiloContext) -> float:
    """Return the CPU seconds of what a method computes from a silo's items after the training, such as class means."""
    federated = worker.federated
    statistics = timed(lambda: federated.silo_statistics(context))
    update = timed(lambda: federated.silo_update(context))
    return statistics + update - timed(lambda: FederatedMethod.silo_update(federated, context))


def timed(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def optimizer_of(worker: Worker, prefixes: tuple[str, ...]) -> Optimizer:
    """Return an optimizer with state for the parameters whose names start with one of the prefixes."""
    moving = [p for name, p in worker.model.named_parameters() if name.startswith(prefixes)]
    return with_state(make_optimizer(moving, worker.config.train, 1e-3))


def with_state(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer with its state created, by a step on gradients of zero."""
    for parameter in optimizer.parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def batches(count: int, size: int, context: SiloContext) -> Iterator[torch.Tensor]:
    """Yield the rows of each batch, after the local method has stored its outputs."""
    context.local.init_state(context.model, context.data, context.state)
    yield from torch.randperm(count).split(size)


def advance(optimizer: Optimizer, terms: dict[str, tuple[float, torch.Tensor]]) -> None:
    """Take one step on the weighted sum of terms."""
    if terms:
        loss = torch.stack([weight * value for weight, value in terms.values()]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
