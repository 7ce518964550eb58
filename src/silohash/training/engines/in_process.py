"""Carry out the tasks of silos one after another in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from silohash.training.engines.port import WAIT_FOR_ALL, Answer, Engine, Limits, SiloResult, SiloTask


class SiloWorker(Protocol):
    """The interface of an object that carries out one silo task at a time."""

    def do(self, task: SiloTask) -> SiloResult:
        """Carry out a task and return its result, which is valid until the next task."""
        ...


@dataclass
class InProcess(Engine):
    """Train one silo after another in this process. Every task is waited for."""

    worker: SiloWorker

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Carry out the tasks in order."""
        for task in tasks:
            yield self.worker.do(task)
