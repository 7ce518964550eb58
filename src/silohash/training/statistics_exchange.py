"""The optional exchange of statistics within a round: silos wait until those of all silos are merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from silohash.base.types import Arrays
from silohash.methods.federated.averaging import unprotected
from silohash.methods.federated.folding import Collection, Folded
from silohash.methods.federated.refusal import refusal
from silohash.methods.message import Message
from silohash.methods.stored import Spool
from silohash.training.engines.attendance import Attendance
from silohash.training.engines.port import Absence, Answer, SiloResult, SiloTask
from silohash.training.silo import lasting
from silohash.training.tasks import Tasks
from silohash.training.updates.sealed_server import merged_statistics, unreadable


def announced(attendance: Attendance, tasks: Iterable[SiloTask]) -> Iterator[Mapping[str, float]]:
    """Yield the weights of each silo per parameter group, for tasks of the kind ``weigh``."""
    for result in attendance.results(tasks):
        yield result.update.weights


@dataclass
class StatisticsExchange:
    """The optional exchange of statistics: sum those of the silos, merge them, and let the silos finish their round.

    Attributes:
        tasks: The training tasks of the round.
        attendance: Sends tasks to the silos.
        spool: Stores what the silos keep while they wait for the merged statistics.
        updates: The collection for the final updates.
        extras: The merged statistics; empty if there was no exchange.
        uplink_bytes: Number of bytes that the silos sent for the exchange.
        downlink_bytes: Number of bytes that the server sent for the exchange.
        waiting: Numbers of the silos that wait, because their statistics are not rejected.
    """

    tasks: Tasks
    attendance: Attendance
    spool: Spool
    updates: Collection
    extras: Arrays = field(default_factory=dict)
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    waiting: set[int] = field(default_factory=set)

    def completed(self, results: Iterable[SiloResult]) -> Iterator[SiloResult]:
        """Yield the results of a round, with the final updates of the silos that wait for merged statistics.

        A silo that does not finish its round is left out.

        Args:
            results: Results of the training, in silo order. A silo whose update is of the kind ``statistics`` waits. The
                other silos have finished. They are yielded as they arrive until a silo waits.
        """
        held: list[SiloResult] = []
        for result in results:
            if held or result.update.kind == "statistics":
                held.append(self._held(result))
            else:
                yield result
        finished = self._finished(held)
        for result in held:
            if result.silo in self.waiting:
                last = next(finished)
                if isinstance(last, Absence):
                    continue
                yield replace(result, update=last.update, kept=last.kept, seconds=result.seconds + last.seconds)
            else:
                yield result
        next(finished, None)  # the engine checks the quorum after the last answer

    def _finished(self, held: Sequence[SiloResult]) -> Iterator[Answer]:
        """Merge the statistics, and return an iterator over the final answers of the silos that wait for them."""
        waiting = [result for result in held if result.silo in self.waiting]
        if not waiting:
            return iter(())
        self._merge([result.update for result in waiting], sum(r.update.kind == "statistics" for r in held))
        if isinstance(self.updates, Folded) and self.tasks.federated.traits.weights_known == "after statistics":
            self.updates.expect(announced(self.attendance, map(self._weigh, waiting)))
        return self.attendance.answers(map(self._finish, waiting))

    def _held(self, result: SiloResult) -> SiloResult:
        """Store a result until the statistics are merged, and note whether its silo waits for them."""
        if result.update.kind == "statistics" and self._refusal(result) is None:
            self.waiting.add(result.silo)
            self.uplink_bytes += result.update.size_bytes()
        return replace(result, kept=self.spool.store(result.kept), update=self.spool.store_message(result.update))

    def _refusal(self, result: SiloResult) -> str | None:
        """Return why a silo's statistics are rejected. Its trained model is checked when it arrives in the update."""
        federated = self.tasks.federated
        refused = refusal(result.update, lasting(result.kept), self.tasks.state.server, federated)
        return refused or unreadable(result.update, federated)

    def _merge(self, messages: Sequence[Message], given: int) -> None:
        """Sum the statistics, as the robust rule changes them, and merge them.

        Args:
            messages: Statistics that were not rejected.
            given: Number of silos that sent statistics.
        """
        federated = self.tasks.federated
        if federated.aggregation.protection is not unprotected:
            messages, _ = federated.aggregation.protection(messages, given - len(messages))
        self.extras = merged_statistics(federated, self.tasks.state.server, messages)
        self.downlink_bytes = sum(array.nbytes for array in self.extras.values()) * len(messages)

    def _finish(self, result: SiloResult) -> SiloTask:
        """Return the task to finish a silo's round with the merged statistics."""
        state = self.tasks.state
        sent = self.tasks.federated.broadcast(state.server, result.silo, round=state.round)
        return SiloTask("finish", result.silo, replace(sent, extras={**sent.extras, **self.extras}), result.kept)

    def _weigh(self, result: SiloResult) -> SiloTask:
        """Return the task to announce a silo's weights, without the trained model, which they do not depend on."""
        task = self._finish(result)
        return replace(task, kind="weigh", kept=lasting(task.kept))
