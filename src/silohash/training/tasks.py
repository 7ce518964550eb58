"""The tasks of a round, one per silo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from silohash.base.types import Arrays
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.message import Message
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import SiloTask, TaskKind
from silohash.training.updates.compressed import reference


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
        for silo in self.silos:
            yield SiloTask("weigh", silo, empty)
