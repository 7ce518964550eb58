"""Who trains the silos of a round: this process, or worker processes beside it. Results come in silo order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Literal, Protocol, get_args

from silohash.exchange.message import Message
from silohash.runtime.silo import SiloResult
from silohash.types import Arrays, UserError

TaskKind = Literal["train", "finish", "validate", "deploy"]
TASK_KINDS: dict[str, TaskKind] = {kind: kind for kind in get_args(TaskKind)}
LENGTH_BYTES = 8


@dataclass(frozen=True)
class SiloTask:
    """What a silo is to do.

    Attributes:
        kind: to ``train`` for a round, to ``finish`` one that waited for merged statistics, to ``validate`` the model that
            it would deploy on its own held-back queries, or to ``deploy``: to return that model.
        silo: its number.
        broadcast: what the server sent.
        kept: what the silo kept from its last round.
    """

    kind: TaskKind
    silo: int
    broadcast: Message
    kept: Arrays = field(default_factory=dict)


class Runner(Protocol):
    """Runs silo tasks and yields their results in the order of the tasks."""

    def run(self, tasks: Sequence[SiloTask]) -> Iterable[SiloResult]:
        """Runs tasks; the result of a ``validate`` task holds ``score`` and ``queries`` in its update."""
        ...

    def close(self) -> None:
        """Ends workers, if there are any."""
        ...


class SiloWorker(Protocol):
    """Does one task after another."""

    def do(self, task: SiloTask) -> SiloResult:
        """Does a task."""
        ...


class InProcess:
    """Trains silo after silo in this process."""

    def __init__(self, worker: SiloWorker) -> None:
        self.worker = worker

    def run(self, tasks: Sequence[SiloTask]) -> Iterator[SiloResult]:
        """Runs the tasks in order."""
        for task in tasks:
            yield self.worker.do(task)

    def close(self) -> None:
        """Nothing to end."""


class WorkerProcesses:
    """Trains several silos at a time, each in a process that reads the prepared inputs from shared memory.

    The inputs are files that every process maps, so that they are in memory once. Tasks and results cross the pipes as
    encoded messages; nothing is pickled.

    Args:
        folder: where `Prepared.save` put the inputs.
        workers: how many processes.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        command = [sys.executable, "-m", "silohash.runtime.worker", str(folder)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            for _ in range(workers)
        ]
        self.free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self.processes:
            self.free.put(process)
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="silohash-worker")

    def run(self, tasks: Sequence[SiloTask]) -> Iterator[SiloResult]:
        """Hands tasks to whichever worker is free; yields results in the tasks' order.

        Raises:
            UserError: if a worker fails; says what it said.
        """
        futures: list[Future[SiloResult]] = [self.threads.submit(self._ask, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def _ask(self, task: SiloTask) -> SiloResult:
        process = self.free.get()
        try:
            assert process.stdin is not None  # noqa: S101  both are pipes
            assert process.stdout is not None  # noqa: S101
            write_frame(process.stdin, encode_task(task))
            answer = read_frame(process.stdout)
        except (BrokenPipeError, EOFError) as error:
            raise UserError(
                f"A worker process ended while it trained silo {task.silo} (exit status {process.poll()}). If memory ran "
                "out, lower train.workers or train.batch; then resume the run."
            ) from error
        finally:
            self.free.put(process)
        return decode_result(Message.decode(answer))

    def close(self) -> None:
        """Ends the workers: they stop when their input ends."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            if process.stdin is not None:
                with suppress(OSError):  # a worker that has died leaves a broken pipe
                    process.stdin.close()
        for process in self.processes:
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Writes a message's bytes behind their length."""
    stream.write(len(content).to_bytes(LENGTH_BYTES, "little"))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Reads one message's bytes.

    Raises:
        EOFError: if the stream ends before.
    """
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        raise EOFError
    size = int.from_bytes(head, "little")
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def encode_task(task: SiloTask) -> bytes:
    """Returns a task as one message: the broadcast, with the silo's own state in its section."""
    broadcast = task.broadcast
    return replace(
        broadcast,
        state=task.kept,
        counts={**broadcast.counts, "silo": task.silo},
        notes={**broadcast.notes, "task": task.kind},
    ).encode()


def decode_task(message: Message) -> SiloTask:
    """Reads what `encode_task` made."""
    broadcast = replace(message, state={})
    return SiloTask(
        kind=TASK_KINDS[message.notes["task"]], silo=message.counts["silo"], broadcast=broadcast, kept=message.state
    )


def encode_result(result: SiloResult) -> bytes:
    """Returns a result as one message: the update, with the silo's state and the record of its round."""
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
    """Reads what `encode_result` made.

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
