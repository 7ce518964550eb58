"""The port between the loop over rounds and the engines that carry out the tasks of silos, and the engine of one process.

The loop speaks to every engine in six calls. It does not know where the silos are.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from silohash.base.errors import TooFewSilos
from silohash.base.types import ReadArrays
from silohash.methods.message import Message

TaskKind = Literal["describe", "prepare", "weigh", "train", "finish", "merge", "validate", "calibrate", "deploy"]


@dataclass(frozen=True)
class SiloTask:
    """A request to a silo.

    Attributes:
        kind: ``describe`` to describe the silo's items before the first round and ``prepare`` to load them, both only for
            silos that hold their own data; ``weigh`` to return the silo's weights without training, ``train`` to train
            for one round, ``finish`` to end a round once the statistics are merged, ``merge`` to decrypt sums over silos and
            compute what the server would, ``validate`` to score the model that the silo would deploy on its validation
            queries, ``calibrate`` to count their hits and codes, or ``deploy`` to return that model.
        silo: Index of the silo, starting at 0.
        kept: Arrays that the silo stored in its last round.
        best: Arrays that the silo stored in the best round so far, which a silo with a disk of its own must not remove.
    """

    kind: TaskKind
    silo: int
    broadcast: Message
    kept: ReadArrays = field(default_factory=dict)
    best: ReadArrays = field(default_factory=dict)


@dataclass(frozen=True)
class SiloResult:
    """The result of a silo's task.

    Its arrays may share the memory of the model, so they are valid until the model is used for another task. The update
    of a ``validate`` task holds the scalar ``score`` and the count ``queries``.

    Attributes:
        kept: Arrays that the silo stores for its next round.
        loss: Mean loss of the last epoch; NaN for a task without training.
        terms: Mean of each loss term in the last epoch, before weighting.
        warnings: Warnings about the training, as sentences.
    """

    silo: int
    update: Message
    kept: ReadArrays = field(default_factory=dict)
    loss: float = math.nan
    terms: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Absence:
    """A silo that did not carry out its task, and why, in words that follow its name, as in ``is no longer connected``."""

    silo: int
    reason: str


Answer: TypeAlias = SiloResult | Absence
"""What comes back for a task."""


@dataclass(frozen=True)
class Limits:
    """How long to wait for silos.

    Attributes:
        deadline_seconds: Time after which the answers of a round are no longer waited for; None for no limit.
        quorum: Number of silos that must answer. The others may be absent.
        start: Number of silos that must describe their items before the first round; None for all. The others join later.
    """

    deadline_seconds: float | None = None
    quorum: int = 1
    start: int | None = None


WAIT_FOR_ALL = Limits()
"""No deadline."""


class Engine:
    """An object that carries out the tasks of silos, wherever they are. By default, all silos are always live."""

    def start(self, silos: Sequence[str]) -> None:
        """Make the silos of a run ready for tasks.

        Raises:
            UserError: If this is impossible.
        """

    def live(self, silos: Sequence[int]) -> list[int]:
        """Return which of the silos can be sent tasks at present, in the same order."""
        away = self.status()
        return [silo for silo in silos if silo not in away]

    @abstractmethod
    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Send tasks to silos, and yield one answer per task, in the order of the tasks, each as soon as it can be had.

        A result is valid until the next one is requested, because its arrays may share the memory of a model.

        There is at most one task per silo. Engines on this machine wait for all answers, whatever the limits.

        Raises:
            UserError: If fewer silos than the quorum answer, or the user must correct something.
        """

    def cancel(self) -> None:
        """Give up the tasks that are under way. Their answers are not used."""

    def status(self) -> Mapping[int, str]:
        """Return why silos are not live, by their index, in words that follow the silo's name."""
        return {}

    def stop(self) -> None:
        """End the run at the silos, and release what the engine holds."""


def check_quorum(absent: Sequence[str], sent: int, limits: Limits) -> None:
    """Check that enough silos answered their tasks, given a phrase per silo that did not, with its name and the reason.

    Raises:
        UserError: If too few did.
    """
    needed, answered = min(limits.quorum, sent), sent - len(absent)
    if answered < needed:
        raise TooFewSilos(
            f"{answered} of {sent} silos answered, and {needed} must: {'; '.join(absent)}. Start the run again "
            "when they can: it continues after its last round."
        )


@dataclass
class Attendance:
    """The silos of one round, and why some of them do not take part, or no longer, by their numbers."""

    engine: Engine
    limits: Limits
    absent: dict[int, str] = field(default_factory=dict)

    def invited(self, silos: Sequence[int]) -> list[int]:
        """Return which of the silos of a round are live, and note the others.

        Raises:
            UserError: If fewer silos than the quorum are live.
        """
        reasons = self.engine.status()  # asked once, because a silo can connect at any time
        live = [silo for silo in silos if silo not in reasons]
        self.absent.update({silo: reasons[silo] for silo in silos if silo in reasons})
        needed = min(self.limits.quorum, len(silos))
        if len(live) < needed:
            raise TooFewSilos(
                f"{len(live)} of {len(silos)} silos can take part, and {needed} must: silo "
                f"{min(self.absent)} {self.absent[min(self.absent)]}. Start the silos, then resume the run."
            )
        return live

    def answers(self, tasks: Iterable[SiloTask]) -> Iterator[Answer]:
        """Yield one answer per task, in the order of the tasks."""
        for answer in self.engine.send(tasks, self.limits):
            if isinstance(answer, Absence):
                self.absent[answer.silo] = answer.reason
            yield answer

    def results(self, tasks: Iterable[SiloTask]) -> Iterator[SiloResult]:
        """Yield the results of the silos that carry out their tasks, in the order of the tasks."""
        for answer in self.answers(tasks):
            if isinstance(answer, SiloResult):
                yield answer


class SiloWorker(Protocol):
    """The interface of an object that carries out one silo task at a time."""

    def do(self, task: SiloTask) -> SiloResult:
        """Carry out a task and return its result, which is valid until the next task."""
        ...


class InProcess(Engine):
    """Train one silo after another in this process. Every task is waited for."""

    def __init__(self, worker: SiloWorker) -> None:
        self.worker = worker

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        """Carry out the tasks in order."""
        for task in tasks:
            yield self.worker.do(task)
