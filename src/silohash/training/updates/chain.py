"""What happens to updates on their way from silos to the server, as a chain of links.

At a silo, updates pass the links in order: noise, compression, encryption. At the server, they pass them in the opposite
order, and are screened in the end. The loop and the worker run the chain and know none of its links, which
`silohash.training.prepared.Prepared.chain` makes.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TypeAlias

from torch import nn
from typing_extensions import override

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.averaging import Screened
from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.folding import Collection
from silohash.methods.federated.screening import refusal
from silohash.methods.federated.server_values import with_solution
from silohash.methods.federated.statistics import sum_statistics
from silohash.methods.message import Message
from silohash.run.events import PrivacyRecord
from silohash.training.engines.port import Engine, Limits, SiloResult, SiloTask

CarryOut: TypeAlias = Callable[..., SiloResult]
"""A function that carries out a task at a silo."""

Released: TypeAlias = tuple[Arrays, PrivacyRecord | None]
"""What to store about the data that the silos have released, and the record of it."""


class DamagedUpdateError(ValueError):
    """An update cannot be restored. The message follows the name of the silo."""


class Link:
    """One thing that happens to updates, with a side at the silos and a side at the server. By default, nothing happens."""

    def prepare(self, model: nn.Module) -> None:
        """Silo: get to know the model, and freeze what silos do not send."""

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
        """Server: return an update as the links before this one sent it, or raise `DamagedUpdateError`.

        ``reference`` returns the parameters from which the silo's update is measured.
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

    def compares(self) -> bool:
        """Server: return whether `refused` needs the update of each silo."""
        return False

    def refused(self, current: Arrays, updates: Sequence[Message]) -> Mapping[int, str]:
        """Server: return which silos' updates a comparison with those of the others rejects, each with the reason."""
        return {}

    def screened(self, current: Arrays | None, messages: Sequence[Message], rejected: int) -> Screened:
        """Server: return the messages to use, possibly changed, and a remark per affected silo.

        The current parameters are None if the messages are statistics. ``rejected`` is the number of rejected messages.
        """
        return list(messages), {}

    def released(self, before: ReadArrays, asked: Sequence[int], used: Sequence[int]) -> Released:
        """Server: return what silos released, from the private arrays before the round, and the silos asked and used."""
        return {}, None

    def traffic(self) -> tuple[int, int]:
        """Server: return the bytes that silos sent and received for this link alone, since the last call."""
        return 0, 0


@dataclass(frozen=True)
class Chain:
    """The links of a run, from the first at the silo to the last. See `Link` for what each method does."""

    links: tuple[Link, ...] = ()

    def prepare(self, model: nn.Module) -> None:
        """Show the model of the silos to the links, which freeze what silos do not send."""
        for link in self.links:
            link.prepare(model)

    def received(self, task: SiloTask) -> SiloTask:
        """Return a task of a silo with the broadcast that the federated method made."""
        return reduce(lambda task, link: link.received(task), reversed(self.links), task)

    def do(self, task: SiloTask, carry_out: CarryOut) -> SiloResult:
        """Let a task of a silo be carried out, and return what leaves the silo."""
        for link in self.links:
            carry_out = partial(link.do, carry_out=carry_out)
        return carry_out(task)

    def start(self, server: ServerState) -> ServerState:
        """Return the server's state before the first round."""
        return reduce(lambda server, link: link.start(server), self.links, server)

    def method(self, federated: FederatedMethod, engine: Engine, limits: Limits) -> FederatedMethod:
        """Return the federated method as the server can compute it."""
        return reduce(lambda method, link: link.method(method, engine, limits), self.links, federated)

    def arrived(
        self,
        update: Message,
        kept: ReadArrays,
        server: ServerState,
        federated: FederatedMethod,
        reference: Callable[[], ReadArrays] = dict,
    ) -> tuple[Message, str | None]:
        """Return a silo's update or statistics as the server uses them, and why they are rejected; None if they are used."""
        try:
            for link in reversed(self.links):
                update = link.restored(update, reference)
        except DamagedUpdateError as error:
            return update, str(error)
        if update.compressed:
            return update, "its parameters are compressed, and those of this run are not"
        refused = refusal(update, kept, server, federated)
        for link in reversed(self.links):
            refused = refused or link.objection(update)
        if update.encrypted and self.collection() is None:
            refused = refused or "its values are encrypted, and those of this run are not"
        return update, refused

    def collection(self) -> Collection | None:
        """Return the form in which the updates of a round must be added up, or None for any."""
        return next((found for link in self.links if (found := link.collection()) is not None), None)

    def merged(self, server: ServerState, messages: Sequence[Message], federated: FederatedMethod) -> Arrays:
        """Return the merged statistics of silos."""
        for link in reversed(self.links):
            if (found := link.merged(server, messages)) is not None:
                return found
        return federated.merge_statistics(server, sum_statistics(messages))

    def compares(self) -> bool:
        """Return whether the updates of single silos are compared. See `Link.compares`."""
        return any(link.compares() for link in self.links)

    def refused(self, current: Arrays, updates: Sequence[Message]) -> Mapping[int, str]:
        """Return which silos' updates are rejected, each with the reason. See `Link.refused`."""
        return {silo: reason for link in self.links for silo, reason in link.refused(current, updates).items()}

    def screened(self, current: Arrays | None, messages: Sequence[Message], rejected: int) -> Screened:
        """Return the updates or statistics to use, and a remark per affected silo. See `Link.screened`."""
        remarks: dict[str, str] = {}
        for link in reversed(self.links):
            messages, found = link.screened(current, messages, rejected)
            remarks |= found
        return list(messages), remarks

    def released(
        self, server: ServerState, before: ServerState, asked: Sequence[int], used: Sequence[int]
    ) -> tuple[ServerState, PrivacyRecord | None]:
        """Return the server's state with what the silos have released, and the record of it. See `Link.released`."""
        record = None
        for link in self.links:
            counts, found = link.released(before.private, asked, used)
            server, record = replace(server, private={**server.private, **counts}), found or record
        return server, record

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that silos sent and received for single links, since the last call."""
        sent, received = zip((0, 0), *(link.traffic() for link in self.links), strict=True)
        return sum(sent), sum(received)


DIRECT = Chain()
"""The chain without links."""


@dataclass(frozen=True)
class Screening(Link):
    """The robust rule of a run: limit the influence of faulty silos on the server's state."""

    federated: FederatedMethod

    @override
    def screened(self, current: Arrays | None, messages: Sequence[Message], rejected: int) -> Screened:
        """Apply the rule to updates, and its protection to statistics."""
        if current is None:
            return self.federated.aggregation.protection(messages, rejected)
        return self.federated.aggregation.screened(current, messages, rejected)


def next_server(
    server: ServerState, updates: Sequence[Message], federated: FederatedMethod, buffers: Set[str] = frozenset()
) -> ServerState:
    """Return the server's next state. A server-side optimizer leaves the model's buffers as averaged."""
    after = federated.aggregate(server, updates)
    if federated.run.server_optimizer is not None:
        after = federated.run.server_optimizer.step(server, after, buffers)
    return with_solution(after, updates, federated)
