"""Train the silos of a round, in this process or in worker processes."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, get_args

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod
from silohash.runtime.checkpoint import RunState
from silohash.runtime.processes import Exchange, ProcessEndedError, ProcessPool
from silohash.runtime.silo import SiloResult, SiloTask, TaskKind
from silohash.types import UserError

TASKS_PER_PROCESS = 3

TASK_KINDS: dict[str, TaskKind] = {kind: kind for kind in get_args(TaskKind)}


@dataclass
class Tasks:
    """The tasks of a round, which are made one after the other, and the bytes that silos receive with them."""

    kind: TaskKind
    silos: Sequence[int]
    state: RunState
    federated: FederatedMethod
    downlink_bytes: int = 0

    def __iter__(self) -> Iterator[SiloTask]:
        """Yield one task per silo, holding the next round's message and the state the silo kept."""
        for silo in self.silos:
            broadcast = self.federated.broadcast(self.state.server, silo, round=self.state.round)
            yield SiloTask(self.kind, silo, broadcast, kept=self.state.silos.get(silo, {}))
            self.downlink_bytes += broadcast.size_bytes()

    def to_weigh(self) -> Iterator[SiloTask]:
        """Yield one task per silo to announce its weights."""
        empty = Message(kind="broadcast", sender="server", round=self.state.round)
        for silo in self.silos:
            yield SiloTask("weigh", silo, empty)


class Runner(Protocol):
    """The interface of an object that runs silo tasks."""

    def run(self, tasks: Iterable[SiloTask]) -> Iterable[SiloResult]:
        """Run tasks and yield their results in the order of the tasks, each as soon as it can be had.

        A result is valid until the next one is requested, because its arrays may share the memory of a model.
        The update of a ``validate`` task holds the scalar ``score`` and the count ``queries``.
        """
        ...

    def close(self) -> None:
        """Stop any worker processes."""
        ...


class SiloWorker(Protocol):
    """The interface of an object that carries out one silo task at a time."""

    def do(self, task: SiloTask) -> SiloResult:
        """Carry out a task and return its result, which is valid until the next task."""
        ...


class InProcess:
    """Train one silo after another in this process."""

    def __init__(self, worker: SiloWorker) -> None:
        self.worker = worker

    def run(self, tasks: Iterable[SiloTask]) -> Iterator[SiloResult]:
        """Run the tasks in order."""
        for task in tasks:
            yield self.worker.do(task)

    def close(self) -> None:
        """Do nothing, because there are no worker processes."""


class WorkerProcesses:
    """Train several silos at a time, in worker processes that share the prepared inputs.

    Every process maps the files of the inputs, so they are in memory only once. Tasks and results are sent through
    pipes as encoded messages. Nothing is pickled.

    Args:
        folder: the folder that `Prepared.save` wrote.
        workers: number of worker processes.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self.workers = workers
        self.pool = ProcessPool([sys.executable, "-m", "silohash.runtime.worker", str(folder)], workers)

    def run(self, tasks: Iterable[SiloTask]) -> Iterator[SiloResult]:
        """Send each task to the next free worker process, and yield the results in the order of the tasks.

        At most three tasks per process are under way or wait to be yielded, so that results do not pile up.

        Raises:
            UserError: if a worker process ends, or reports an error that the user can correct.
            RuntimeError: if a worker process reports any other error.
        """
        futures: deque[Future[SiloResult]] = deque()
        try:
            for task in tasks:
                futures.append(self.pool.submit(partial(_exchange_task, task)))
                if len(futures) >= TASKS_PER_PROCESS * self.workers:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Stop the worker processes."""
        self.pool.close()


def _exchange_task(task: SiloTask, exchange: Exchange) -> SiloResult:
    """Send a task to a worker process and return its result."""
    try:
        answer = exchange(encode_task(task))
    except ProcessEndedError as error:
        raise UserError(
            f"A worker process ended while it trained silo {task.silo} (exit status {error.status}). If memory ran "
            "out, lower train.workers or train.batch; then resume the run."
        ) from error
    return decode_result(Message.decode(answer))


def encode_task(task: SiloTask) -> bytes:
    """Encode a task as one message: the broadcast, with the state that the silo kept."""
    broadcast = task.broadcast
    return replace(
        broadcast,
        state=task.kept,
        counts={**broadcast.counts, "silo": task.silo},
        notes={**broadcast.notes, "task": task.kind},
    ).encode()


def decode_task(message: Message) -> SiloTask:
    """Return the task that `encode_task` encoded."""
    broadcast = replace(message, state={})
    return SiloTask(
        kind=TASK_KINDS[message.notes["task"]], silo=message.counts["silo"], broadcast=broadcast, kept=message.state
    )


def encode_result(result: SiloResult) -> bytes:
    """Encode a result as one message: the update, with the state to keep and the record of the silo's round."""
    about = {
        "silo": result.silo,
        "loss": repr(result.loss),
        "seconds": result.seconds,
        "warnings": list(result.warnings),
        "terms": {name: repr(value) for name, value in result.terms.items()},
    }
    notes = {**result.update.notes, "result": json.dumps(about)}
    return replace(result.update, state=result.kept, notes=notes).encode()


def decode_result(message: Message) -> SiloResult:
    """Return the result that `encode_result` encoded.

    Raises:
        UserError: if the worker reports an error that the user can correct.
        RuntimeError: if the worker reports any other error, with the worker's traceback.
    """
    if "crash" in message.notes:
        raise RuntimeError(f"A worker process failed:\n{message.notes['crash']}")
    if "failure" in message.notes:
        raise UserError(message.notes["failure"])
    about = json.loads(message.notes["result"])
    notes = {name: text for name, text in message.notes.items() if name != "result"}
    return SiloResult(
        silo=about["silo"],
        update=replace(message, state={}, notes=notes),
        kept=message.state,
        loss=float(about["loss"]),
        terms={name: float(value) for name, value in about["terms"].items()},
        seconds=about["seconds"],
        warnings=tuple(about["warnings"]),
    )
