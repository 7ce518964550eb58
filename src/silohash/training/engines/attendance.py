"""Who takes part in a round: send its tasks to the silos that are live, and note the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from silohash.base.errors import TooFewSilos
from silohash.training.engines.port import Absence, Answer, Engine, Limits, SiloResult, SiloTask


def check_quorum(absent: Sequence[str], sent: int, limits: Limits) -> None:
    """Check that enough silos answered their tasks.

    Args:
        absent: One phrase per silo that did not, with its name and the reason.
        sent: Number of silos that were sent a task.
        limits: How many must answer.

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
