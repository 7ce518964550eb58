"""Carry out the tasks of several silos at a time, in worker processes of this machine."""

import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from silohash.base.errors import JobFailed
from silohash.base.files import explaining_disk_errors
from silohash.methods.message import Message
from silohash.training.engines.port import WAIT_FOR_ALL, Answer, Engine, Limits, SiloResult, SiloTask
from silohash.training.engines.processes import Exchange, ProcessEndedError, ProcessPool
from silohash.training.engines.wire import decode_result, encode_task

TASKS_PER_PROCESS = 3


class WorkerProcesses(Engine):
    """Train several silos at a time, in worker processes that share the prepared inputs.

    Every process maps the files of the inputs, so they are in memory only once. Tasks and results are sent through
    pipes as encoded messages. Nothing is pickled, and every task is waited for.
    """

    def __init__(self, folder: Path, workers: int, save: Callable[[Path], None]) -> None:
        self.folder = folder
        self.workers = workers
        self.save = save
        self.pool = ProcessPool([sys.executable, "-m", "silohash.training.worker", str(folder)], workers)
        self._under_way: deque[Future[SiloResult]] = deque()

    def start(self, silos: Sequence[str]) -> None:
        """Write the inputs. A worker process starts when it is first needed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with explaining_disk_errors(self.folder):
            self.folder.mkdir(parents=True)
        self.save(self.folder)

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Send each task to the next free worker process, and yield the results in the order of the tasks.

        At most three tasks per process are under way or wait to be yielded, so that results do not pile up. A worker process
        that ends, or reports an error, raises one here.
        """
        futures = self._under_way
        try:
            for task in tasks:
                futures.append(self.pool.submit(partial(_exchange_task, task)))
                if len(futures) >= TASKS_PER_PROCESS * self.workers:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Give up the tasks that no worker process has begun, and ignore the results of the others."""
        while self._under_way:
            self._under_way.popleft().cancel()

    def stop(self) -> None:
        """Stop the worker processes and remove the inputs."""
        self.pool.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _exchange_task(task: SiloTask, exchange: Exchange) -> SiloResult:
    try:
        answer = exchange(encode_task(task))
    except ProcessEndedError as error:
        raise JobFailed(
            f"A worker process ended while it trained silo {task.silo} (exit status {error.status}). If memory ran "
            "out, lower train.workers or train.batch; then resume the run."
        ) from error
    return decode_result(Message.decode(answer))
