"""Carry out the tasks of silos one after another in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from silohash.training.engines.port import WAIT_FOR_ALL, Answer, Limits, SiloResult, SiloTask


class SiloWorker(Protocol):
    """The interface of an object that carries out one silo task at a time."""

    def do(self, task: SiloTask) -> SiloResult:
        """Carry out a task and return its result, which is valid until the next task."""
        ...


class InProcess:
    """Train one silo after another in this process. All silos are always live, and every task is waited for.

    Args:
        worker: Carries out the tasks.
    """

    def __init__(self, worker: SiloWorker) -> None:
        self.worker = worker

    def start(self, silos: Sequence[str]) -> None:
        """Do nothing, because the worker is ready."""

    def live(self, silos: Sequence[int]) -> list[int]:
        """Return all silos."""
        return list(silos)

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Carry out the tasks in order."""
        for task in tasks:
            yield self.worker.do(task)

    def cancel(self) -> None:
        """Do nothing, because no task is under way between two answers."""

    def status(self) -> Mapping[int, str]:
        """Return nothing, because all silos are live."""
        return {}

    def stop(self) -> None:
        """Do nothing, because there are no worker processes."""
