"""A link of the chain that updates pass on their way (`silohash.training.updates.chain`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TypeAlias

from torch import nn

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.averaging import Screened
from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.folding import Collection
from silohash.methods.federated.server_values import with_solution
from silohash.methods.message import Message
from silohash.run.privacy_record import PrivacyRecord
from silohash.training.engines.port import Engine, Limits, SiloResult, SiloTask

CarryOut: TypeAlias = Callable[..., SiloResult]
"""A function that carries out a task at a silo."""


class DamagedUpdateError(ValueError):
    """An update cannot be restored. The message follows the name of the silo."""


class Link:
    """One thing that happens to updates, with a side at the silos and a side at the server. By default, nothing happens."""

    def prepare(self, model: nn.Module) -> None:
        """Silo: change the model before its initial parameters are noted."""

    def received(self, task: SiloTask) -> SiloTask:
        """Silo: return a task with the broadcast that the federated method made."""
        return task

    def do(self, task: SiloTask, carry_out: CarryOut) -> SiloResult:
        """Silo: let a task be carried out by the links before this one, and return what leaves the silo."""
        return carry_out(task)

    def start(self, server: ServerState) -> ServerState:
        """Server: return the state before the first round."""
        return server

    def method(self, federated: FederatedMethod, engine: Engine, limits: Limits) -> FederatedMethod:
        """Server: return the federated method as the server can compute it."""
        return federated

    def restored(self, update: Message, reference: Callable[[], ReadArrays]) -> Message:
        """Server: return an update as the links before this one sent it.

        Args:
            update: The message of a silo.
            reference: Returns the parameters from which the silo's update is measured.

        Raises:
            DamagedUpdateError: If that is impossible.
        """
        return update

    def objection(self, update: Message) -> str | None:
        """Server: return why a restored update cannot be used, or None if it can."""
        return None

    def collection(self) -> Collection | None:
        """Server: return the form in which the updates of a round must be added up, or None for any."""
        return None

    def merged(self, server: ServerState, messages: Sequence[Message]) -> Arrays | None:
        """Server: return the merged statistics of silos, or None if the federated method merges them."""
        return None

    def screened(self, current: Arrays | None, messages: Sequence[Message], rejected: int) -> Screened:
        """Server: return the messages to use, possibly changed, and a remark per affected silo.

        Args:
            current: Current parameters if the messages are updates; None if they are statistics.
            messages: Messages that were not rejected.
            rejected: Number of silos of the round whose messages were rejected.
        """
        return list(messages), {}

    def released(
        self, before: ReadArrays, asked: Sequence[int], used: Sequence[int]
    ) -> tuple[Arrays, PrivacyRecord | None]:
        """Server: return what to store about the data that the silos have released, and the record of it.

        Args:
            before: The server's private arrays before the round.
            asked: Numbers of the silos that were asked to train.
            used: Numbers of the silos whose updates were used.
        """
        return {}, None

    def traffic(self) -> tuple[int, int]:
        """Server: return the bytes that silos sent and received for this link alone, since the last call."""
        return 0, 0


def next_server(
    server: ServerState, updates: Sequence[Message], federated: FederatedMethod, buffers: Set[str] = frozenset()
) -> ServerState:
    """Return the server's next state.

    Args:
        server: The current state.
        updates: The updates to aggregate, at least one.
        federated: The federated method.
        buffers: The names of the model's buffers, which a server-side optimizer leaves as averaged.
    """
    after = federated.aggregate(server, updates)
    if federated.server_optimizer is not None:
        after = federated.server_optimizer.step(server, after, buffers)
    return with_solution(after, updates, federated)
