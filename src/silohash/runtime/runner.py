"""Who trains the silos of a round: this process, or worker processes beside it. Results come in silo order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, get_args

from silohash.exchange.message import Message
from silohash.runtime.processes import Exchange, ProcessEndedError, ProcessPool
from silohash.runtime.silo import SiloResult, SiloTask, TaskKind
from silohash.types import UserError

TASK_KINDS: dict[str, TaskKind] = {kind: kind for kind in get_args(TaskKind)}


class Runner(Protocol):
    """Run silo tasks and yields their results in the order of the tasks."""

    def run(self, tasks: Sequence[SiloTask]) -> Iterable[SiloResult]:
        """Run tasks; the result of a ``validate`` task holds ``score`` and ``queries`` in its update."""
        ...

    def close(self) -> None:
        """End workers, if there are any."""
        ...


class SiloWorker(Protocol):
    """Does one task after another."""

    def do(self, task: SiloTask) -> SiloResult:
        """Does a task."""
        ...


class InProcess:
    """Train silo after silo in this process."""

    def __init__(self, worker: SiloWorker) -> None:
        self.worker = worker

    def run(self, tasks: Sequence[SiloTask]) -> Iterator[SiloResult]:
        """Run the tasks in order."""
        for task in tasks:
            yield self.worker.do(task)

    def close(self) -> None:
        """Nothing to end."""


class WorkerProcesses:
    """Train several silos at a time, in worker processes that share the prepared inputs.

    The inputs are files that every process maps, so they are in memory once. Tasks and results cross the pipes as
    encoded messages; nothing is pickled.

    Args:
        folder: where `Prepared.save` put the inputs.
        workers: number of processes.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self.pool = ProcessPool([sys.executable, "-m", "silohash.runtime.worker", str(folder)], workers)

    def run(self, tasks: Sequence[SiloTask]) -> Iterator[SiloResult]:
        """Give each task to the next free worker process and yield the results in the order of the tasks.

        Raises:
            UserError: if a worker process fails; with its message.
        """
        futures = [self.pool.submit(partial(_exchange_task, task)) for task in tasks]
        try:
            for future in futures:
                yield future.result()
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
            f"A worker process ended while it trained silo {task.silo} (exit status {error.status}). If memory ran out, "
            "lower train.workers or train.batch; then resume the run."
        ) from error
    return decode_result(Message.decode(answer))


def encode_task(task: SiloTask) -> bytes:
    """Return a task as one message: the broadcast, with the silo's own state in its section."""
    broadcast = task.broadcast
    return replace(
        broadcast,
        state=task.kept,
        counts={**broadcast.counts, "silo": task.silo},
        notes={**broadcast.notes, "task": task.kind},
    ).encode()


def decode_task(message: Message) -> SiloTask:
    """Read what `encode_task` made."""
    broadcast = replace(message, state={})
    return SiloTask(
        kind=TASK_KINDS[message.notes["task"]], silo=message.counts["silo"], broadcast=broadcast, kept=message.state
    )


def encode_result(result: SiloResult) -> bytes:
    """Return a result as one message: the update, with the silo's state and the record of its round."""
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
    """Read what `encode_result` made.

    Raises:
        UserError: if the worker reports something that the user can put right.
        RuntimeError: if it reports anything else; with the worker's own traceback.
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
