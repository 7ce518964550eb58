"""The server's side of encrypted sums: it adds what it cannot read, and keeps a state that it cannot read.

What the server does in a round without encryption, it asks a silo to do: to compute the method's next state from the sums
over all silos (`silohash.training.updates.sealed_silo`). It passes the result on, which only silos can open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from silohash.base.types import Arrays, ReadArrays, UserError
from silohash.methods.federated.base import FederatedMethod, ServerState, entries_under
from silohash.methods.federated.statistics import sum_statistics
from silohash.methods.message import Message
from silohash.training.engines.port import WAIT_FOR_ALL, Absence, Engine, Limits, SiloTask
from silohash.training.privacy.budget import KEY
from silohash.training.updates.compression import DamagedUpdateError
from silohash.training.updates.encryption import SCHEMES, EncryptedSum, Scheme, public_context, read_blocks

INITIAL = "initial state"
"""Name of the state before the first round, which is not secret: it follows from the config."""

SEALED = "state"
"""Name of the server's state under the silos' key."""

MERGED = "merged statistics"
"""Name of the merged statistics under the silos' key."""

WANTED = "wanted"
"""Name of the note on what a silo is asked to compute."""

LAYOUTS = "layouts"
"""Name of the note on the values in encrypted vectors."""

REFUSED = "refused"
"""Name of the note that tells why a silo does not send its update."""

Layout: TypeAlias = list[tuple[str, tuple[int, ...], str]]
"""Name, shape and type of each array in a vector, in order."""


@cache
def server_context(scheme: Scheme) -> Any:  # noqa: ANN401  a context of tenseal, which has no types
    """Return the server's context, which has no key."""
    return public_context(scheme)


def layout_of(arrays: ReadArrays) -> str:
    """Return the layout of a vector of these arrays as JSON."""
    return json.dumps([[name, list(arrays[name].shape), str(arrays[name].dtype)] for name in sorted(arrays)])


def read_layout(text: str) -> Layout:
    """Return the layout that `layout_of` wrote.

    Raises:
        DamagedUpdateError: If it is damaged.
    """
    try:
        return [
            (str(name), tuple(int(size) for size in shape), str(np.dtype(kind)))
            for name, shape, kind in json.loads(text)
        ]
    except (ValueError, TypeError) as error:
        raise DamagedUpdateError(f"the layout of its encrypted values is damaged ({error})") from error


def vector_of(arrays: ReadArrays) -> np.ndarray:
    """Return the values of arrays in the order of their layout, ``(n,)`` float64."""
    parts = [np.asarray(arrays[name], np.float64).reshape(-1) for name in sorted(arrays)]
    return np.concatenate([np.zeros(0), *parts])


def arrays_of(values: np.ndarray, layout: Layout) -> Arrays:
    """Return the arrays of a vector. Whole numbers are rounded."""
    found: Arrays = {}
    start = 0
    for name, shape, kind in layout:
        part = values[start : start + math.prod(shape)].reshape(shape)
        start += part.size
        found[name] = (part if np.issubdtype(kind, np.floating) else np.rint(part)).astype(kind)
    return found


def length_of(layout: Layout) -> int:
    """Return the number of values of a vector."""
    return sum(math.prod(shape) for _, shape, _ in layout)


def unreadable(update: Message, federated: FederatedMethod) -> str | None:
    """Return why an update cannot be added to others because of its encryption, or the lack of it; None if it can.

    Args:
        update: The message of a silo.
        federated: The method as the server sees it.
    """
    if not isinstance(federated, SealedMethod):
        return "its values are encrypted, and those of this run are not" if update.encrypted else None
    if REFUSED in update.notes:
        return update.notes[REFUSED]
    try:
        for scheme, layout, vector in vectors_in(update):
            read_blocks(server_context(scheme), vector, length_of(read_layout(layout)))
    except DamagedUpdateError as error:
        return str(error)
    return None


def vectors_in(update: Message) -> list[tuple[Scheme, str, Arrays]]:
    """Return the encrypted vectors of a silo, each with its scheme and the text of its layout.

    Raises:
        DamagedUpdateError: If there are none, or their layouts are missing.
    """
    try:
        layouts = json.loads(update.notes[LAYOUTS])
        return [(s, str(layouts[s.name]), entries_under(s.name, update.encrypted)) for s in SCHEMES]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedUpdateError("its values are not encrypted, as those of this run must be") from error


@dataclass
class EncryptedTotals:
    """The sums of the encrypted updates of a round, one per layout."""

    sums: dict[tuple[Scheme, str], EncryptedSum] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    round: int = 0
    number: int = 0

    def add(self, update: Message) -> None:
        """Add an update."""
        for scheme, layout, vector in vectors_in(update):
            if (scheme, layout) not in self.sums:
                self.sums[scheme, layout] = EncryptedSum(server_context(scheme), length_of(read_layout(layout)))
            self.sums[scheme, layout].add(vector)
        self.number, self.round = self.number + 1, update.round
        for name, count in update.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def updates(self) -> Sequence[Message]:
        """Return one message that stands for all updates; no message if there was none."""
        if not self.number:
            return []
        encrypted: Arrays = {}
        for number, total in enumerate(self.sums.values()):
            encrypted |= {f"{number}/{part}": array for part, array in total.vector().items()}
        return [
            Message(
                kind="update", sender="silos", round=self.round, counts=self.counts, encrypted=encrypted,
                notes={LAYOUTS: json.dumps([[scheme.name, layout] for scheme, layout in self.sums])},
            )
        ]  # fmt: skip


class SealedMethod(FederatedMethod):
    """A federated method as the server sees it: the hooks of the server, without anything that it could read.

    Args:
        method: The method of the run.
        engine: Reaches the silos.
        silos: Number of silos.
        limits: How long to wait for the silo that computes the next state.

    Attributes:
        uplink_bytes: Number of bytes that silos sent for this.
        downlink_bytes: Number of bytes that they received for this.
    """

    def __init__(self, method: FederatedMethod, engine: Engine, silos: int, limits: Limits = WAIT_FOR_ALL) -> None:
        super().__init__(method.params)
        self.traits = replace(self.traits, personalized=method.traits.personalized)
        self.engine, self.silos = engine, silos
        self.limits = replace(limits, quorum=0)
        self.uplink_bytes = self.downlink_bytes = 0

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Send the server's state, from which the silo makes the method's broadcast."""
        return Message(kind="broadcast", sender="server", round=round, encrypted=state_of(server))

    def merged(self, server: ServerState, messages: Sequence[Message]) -> Arrays:
        """Return the merged statistics, sealed.

        Args:
            server: The state of the server.
            messages: Encrypted statistics of the silos.
        """
        totals = EncryptedTotals()
        for message in messages:
            totals.add(message)
        return {MERGED: self._asked(server, totals.updates()[0], MERGED).encrypted[MERGED]}

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Return the next state, sealed, which a silo computes from the encrypted sums."""
        answer = self._asked(server, updates[0], SEALED)
        final = np.asarray(bool(answer.counts.get("final", 0)))
        return ServerState(params={}, private={SEALED: answer.encrypted[SEALED], "final": final})

    def _asked(self, server: ServerState, total: Message, wanted: str) -> Message:
        """Return the answer of the first silo that computes what is wanted: `SEALED` or `MERGED`.

        Raises:
            UserError: If none does.
        """
        message = replace(
            total, kind="broadcast", sender="server", encrypted={**total.encrypted, **state_of(server)},
            extras={name: server.extras[name] for name in server.extras if name == MERGED},
            notes={**total.notes, WANTED: wanted},
        )  # fmt: skip
        reason = "no silo is live"
        for silo in self.engine.live(range(self.silos)):
            for answer in self.engine.send([SiloTask("merge", silo, message)], self.limits):
                self.downlink_bytes += message.size_bytes()
                if isinstance(answer, Absence):
                    reason = f"silo {silo} {answer.reason}"
                    continue
                self.uplink_bytes += answer.update.size_bytes()
                if wanted in answer.update.encrypted:
                    return answer.update
                reason = f"silo {silo} did not send the {wanted}"
        raise UserError(
            f"No silo could decrypt the sums of the round ({reason}). Start the silos, then resume the run."
        )

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that silos sent and received since the last call."""
        found = self.uplink_bytes, self.downlink_bytes
        self.uplink_bytes = self.downlink_bytes = 0
        return found


def traffic(federated: FederatedMethod) -> tuple[int, int]:
    """Return the bytes that silos sent and received since the last call because the server cannot read their updates."""
    return federated.traffic() if isinstance(federated, SealedMethod) else (0, 0)


def broadcast_of(federated: FederatedMethod, server: ServerState, silo: int, round: int) -> Message:  # noqa: A002
    """Return the message to a silo before a round, for a state that may be sealed."""
    if SEALED in server.private:
        return Message(kind="broadcast", sender="server", round=round, encrypted=state_of(server))
    return federated.broadcast(server, silo, round=round)


def state_of(server: ServerState) -> ReadArrays:
    """Return the server's state as silos receive it: sealed, or before the first round as it is.

    The secret by which the server draws the silos of a round stays there.
    """
    if SEALED in server.private:
        return {SEALED: server.private[SEALED]}
    extras = {name: array for name, array in server.extras.items() if name != MERGED}
    private = {name: array for name, array in server.private.items() if name != KEY}
    return {INITIAL: np.frombuffer(state_bytes(replace(server, extras=extras, private=private)), np.uint8)}


def state_bytes(server: ServerState) -> bytes:
    """Return a state of the server as bytes."""
    return Message(
        kind="server", sender="server", round=0, params=server.params, extras=server.extras, state=server.private
    ).encode()


def state_from(content: bytes) -> ServerState:
    """Return the state that `state_bytes` wrote."""
    message = Message.decode(content)
    return ServerState(params=dict(message.params), extras=dict(message.extras), private=dict(message.state))


def merged_statistics(federated: FederatedMethod, server: ServerState, messages: Sequence[Message]) -> Arrays:
    """Return the merged statistics of silos, which a server without the key asks a silo for."""
    if isinstance(federated, SealedMethod):
        return federated.merged(server, messages)
    return federated.merge_statistics(server, sum_statistics(messages))
