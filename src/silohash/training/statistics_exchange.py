"""The optional exchange of statistics within a round: silos wait until those of all silos are merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from silohash.base.types import Arrays
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.federated.folding import Collection, Folded
from silohash.methods.message import Message
from silohash.methods.stored import Spool
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import Absence, Answer, Attendance, SiloResult, SiloTask, TaskKind
from silohash.training.silo import lasting
from silohash.training.updates.chain import DIRECT, Chain
from silohash.training.updates.compression import reference


@dataclass
class StatisticsExchange:
    """The optional exchange of statistics: sum those of the silos, merge them, and let the silos finish their round.

    The silos that wait are those whose statistics are not rejected.
    """

    tasks: Tasks
    attendance: Attendance
    spool: Spool
    updates: Collection
    chain: Chain = DIRECT
    extras: Arrays = field(default_factory=dict)
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    waiting: set[int] = field(default_factory=set)

    def completed(self, results: Iterable[SiloResult]) -> Iterator[SiloResult]:
        """Yield the results of a round, with the final updates of the silos that wait for merged statistics.

        A silo that does not finish its round is left out. Silos whose updates are of the kind ``statistics`` wait. The
        results of the others are yielded as they arrive until a silo waits.
        """
        held: list[SiloResult] = []
        for result in results:
            if held or result.update.kind == "statistics":
                held.append(self._held(result))
            else:
                yield result
        finished = self._finished(held)
        for result in held:
            last = next(finished) if result.silo in self.waiting else None
            if last is None:
                yield result
            elif not isinstance(last, Absence):
                yield replace(result, update=last.update, kept=last.kept, seconds=result.seconds + last.seconds)
        next(finished, None)  # the engine checks the quorum after the last answer

    def _finished(self, held: Sequence[SiloResult]) -> Iterator[Answer]:
        """Merge the statistics, and return an iterator over the final answers of the silos that wait for them."""
        waiting = [result for result in held if result.silo in self.waiting]
        if not waiting:
            return iter(())
        rejected = sum(result.update.kind == "statistics" for result in held) - len(waiting)
        messages, _ = self.chain.screened(None, [result.update for result in waiting], rejected)
        self.extras = self.chain.merged(self.tasks.state.server, messages, self.tasks.federated)
        self.downlink_bytes = sum(array.nbytes for array in self.extras.values()) * len(messages)
        if isinstance(self.updates, Folded) and self.tasks.federated.traits.weights_known == "after statistics":
            self.updates.expect(one.update.weights for one in self.attendance.results(map(self._weigh, waiting)))
        return self.attendance.answers(map(self._finish, waiting))

    def _held(self, result: SiloResult) -> SiloResult:
        """Store a result until the statistics are merged, and note whether its silo waits for them."""
        if result.update.kind == "statistics":
            # The trained model is checked when it arrives in the update.
            update, server = replace(result.update, silo=result.silo), self.tasks.state.server
            if self.chain.arrived(update, lasting(result.kept), server, self.tasks.federated)[1] is None:
                self.waiting.add(result.silo)
                self.uplink_bytes += result.update.size_bytes()
        return replace(result, kept=self.spool.store(result.kept), update=self.spool.store_message(result.update))

    def _finish(self, result: SiloResult) -> SiloTask:
        state = self.tasks.state
        sent = self.tasks.federated.broadcast(state.server, result.silo, round=state.round)
        return SiloTask("finish", result.silo, replace(sent, extras={**sent.extras, **self.extras}), result.kept)

    def _weigh(self, result: SiloResult) -> SiloTask:
        """Return the task to announce a silo's weights, without the trained model, which they do not depend on."""
        task = self._finish(result)
        return replace(task, kind="weigh", kept=lasting(task.kept))


@dataclass
class Tasks:
    """The tasks of a round, which are made one after the other, and the bytes that silos receive with them."""

    kind: TaskKind
    silos: Sequence[int]
    state: RunState
    federated: FederatedMethod
    downlink_bytes: int = 0
    _reference: dict[int, Arrays] = field(default_factory=dict)

    def __iter__(self) -> Iterator[SiloTask]:
        """Yield one task per silo, holding the next round's message and the state the silo kept."""
        for silo in self.silos:
            broadcast = self.federated.broadcast(self.state.server, silo, round=self.state.round)
            kept, best = (silos.get(silo, {}) for silos in (self.state.silos, self.state.best_silos))
            yield SiloTask(self.kind, silo, broadcast, kept=kept, best=best)
            self.downlink_bytes += broadcast.size_bytes()

    def reference(self, silo: int) -> Arrays:
        """Return the parameters from which a silo's update is measured."""
        key = 0 if self.federated.traits.uniform_broadcast else silo
        if key not in self._reference:
            sent = self.federated.broadcast(self.state.server, silo, round=self.state.round)
            self._reference = {key: reference(self.federated, sent)}
        return self._reference[key]

    def to_weigh(self) -> Iterator[SiloTask]:
        """Yield one task per silo to announce its weights."""
        empty = Message(kind="broadcast", sender="server", round=self.state.round)
        yield from (SiloTask("weigh", silo, empty) for silo in self.silos)
