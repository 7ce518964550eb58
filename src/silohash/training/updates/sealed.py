"""Encryption as a link: the server adds up what it cannot read, and keeps a state that it cannot read.

A silo encrypts what it sends, and opens what it receives. What the server does in a round without encryption, it asks a silo
to do: to decrypt the sums over all silos, to compute the method's next state from them, and to seal that state. It passes
the result on, which only silos can open.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from torch import nn
from typing_extensions import override

from silohash.base.errors import OtherVersion, TooFewSilos, UnusableSecret
from silohash.base.files import digest_json
from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.base import FederatedMethod, ServerState, entries_under
from silohash.methods.federated.screening import refusal
from silohash.methods.federated.statistics import add_sums
from silohash.methods.message import Message
from silohash.models.parameters import buffers_of
from silohash.models.towers import group_of
from silohash.run.config.sections import RunConfig
from silohash.training.engines.port import Absence, Engine, Limits, SiloResult, SiloTask
from silohash.training.privacy.budget import KEY
from silohash.training.updates import encryption
from silohash.training.updates.chain import CarryOut, DamagedUpdateError, Link, next_server

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

WEIGHTS, VALUES = "weights", "values"
"""Prefixes of a silo's weights and of its other sums in an encrypted vector."""


def layout_of(arrays: ReadArrays) -> str:
    """Return the layout of a vector of these arrays as JSON."""
    return json.dumps([[name, list(arrays[name].shape), str(arrays[name].dtype)] for name in sorted(arrays)])


def read_layout(text: str) -> Layout:
    """Return the layout that `layout_of` wrote; raise `DamagedUpdateError` if it is damaged."""
    try:
        return [(str(name), tuple(map(int, shape)), str(np.dtype(kind))) for name, shape, kind in json.loads(text)]
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


def vectors_in(update: Message) -> list[tuple[encryption.Scheme, str, Arrays]]:
    """Return the encrypted vectors of a silo, each with its scheme and layout; raise `DamagedUpdateError` without any."""
    try:
        layouts = json.loads(update.notes[LAYOUTS])
        return [(s, str(layouts[s.name]), entries_under(s.name, update.encrypted)) for s in encryption.SCHEMES]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedUpdateError("its values are not encrypted, as those of this run must be") from error


@dataclass
class EncryptedTotals:
    """The sums of the encrypted updates of a round, one per layout."""

    sums: dict[tuple[encryption.Scheme, str], encryption.EncryptedSum] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    round: int = 0
    number: int = 0

    def add(self, update: Message) -> None:
        """Add an update."""
        for scheme, layout, vector in vectors_in(update):
            if (scheme, layout) not in self.sums:
                self.sums[scheme, layout] = encryption.EncryptedSum(
                    encryption.public_context(scheme), length_of(read_layout(layout))
                )
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
    """A federated method as the server sees it: the hooks of the server, without anything that it could read."""

    def __init__(self, method: FederatedMethod, engine: Engine, silos: int, limits: Limits) -> None:
        super().__init__(method.params)
        self.traits = replace(self.traits, personalized=method.traits.personalized)
        self.engine, self.silos = engine, silos
        self.limits = replace(limits, quorum=0)
        self.uplink_bytes = self.downlink_bytes = 0

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Send the server's state, from which the silo makes the method's broadcast."""
        return Message(kind="broadcast", sender="server", round=round, encrypted=state_of(server))

    def merged(self, server: ServerState, messages: Sequence[Message]) -> Arrays:
        """Return the merged statistics, sealed."""
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
        """Return the answer of the first silo that computes what is wanted: `SEALED` or `MERGED`."""
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
        raise TooFewSilos(f"No silo could decrypt the sums ({reason}). Start the silos, then resume the run.")

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that silos sent and received since the last call."""
        found = self.uplink_bytes, self.downlink_bytes
        self.uplink_bytes = self.downlink_bytes = 0
        return found


@dataclass
class Encryption(Link):
    """The encryption of a run.

    Attributes:
        key: The key of the silos; None if it is not there, so that no silo can carry out a task.
        run: Digest of the run, so that nothing of another run can be taken for something of this one.
        buffers: Names of the model's buffers, once the model is known.
        sealed: The method as the server sees it; None at a silo.
    """

    key: encryption.SiloKey | None
    federated: FederatedMethod
    run: str
    names: tuple[str, ...]
    buffers: frozenset[str] = frozenset()
    sealed: SealedMethod | None = None

    @override
    def prepare(self, model: nn.Module) -> None:
        """Note the buffers of the model."""
        self.buffers = buffers_of(model)

    @override
    def do(self, task: SiloTask, carry_out: CarryOut) -> SiloResult:
        """Open a task, let it be carried out, and encrypt what the silo sends.

        The model that a silo deploys is not encrypted: a silo on another machine stores it and does not send it.

        Raises:
            UserError: If there is no key, the server asks for something that it could read, or the task was not made with
                the silos' key.
        """
        if task.kind == "merge":
            return self._merge(task)
        if task.kind == "weigh":
            raise OtherVersion(
                "The server asked for the weights of a silo, and this run encrypts them. Install the same version of "
                "silohash everywhere."
            )
        server = self._server(task.broadcast)
        result = carry_out(self._received(task, server))
        return self._encrypted(result, server) if task.kind in ("train", "finish") else result

    @override
    def received(self, task: SiloTask) -> SiloTask:
        """Open the server's state, and make the federated method's broadcast from it."""
        return self._received(task, self._server(task.broadcast))

    def _received(self, task: SiloTask, server: ServerState) -> SiloTask:
        sent = self.federated.broadcast(server, task.silo, round=task.broadcast.round)
        extras = {**sent.extras, **self._merged(task.broadcast)}
        return replace(task, broadcast=replace(sent, extras=extras, notes=task.broadcast.notes))

    def _server(self, message: Message) -> ServerState:
        """Return the server's state that a message holds. Only that before the first round may come as it is."""
        if message.round == 0 and INITIAL in message.encrypted:
            return state_from(message.encrypted[INITIAL].tobytes())
        if SEALED not in message.encrypted:
            raise OtherVersion(
                "The server sent a task for silos that do not encrypt what they send, and this run encrypts it. Install the "
                "same version of silohash everywhere."
            )
        state = ServerState(params={}, private={SEALED: message.encrypted[SEALED]})
        return opened_state(self._key, self.run, state, message.round)

    @property
    def _key(self) -> encryption.SiloKey:
        if self.key is None:
            raise UnusableSecret("exchange.encryption needs the key that all silos share, and this silo has none.")
        return self.key

    def _merged(self, message: Message) -> Arrays:
        """Return the merged statistics that a message holds, if there are any."""
        if MERGED not in message.extras:
            return {}
        content = self._key.opened(message.extras[MERGED], label_of(MERGED, message.round, self.run))
        return dict(Message.decode(content).extras)

    def _encrypted(self, result: SiloResult, server: ServerState) -> SiloResult:
        """Return a result whose update only silos can read, after inspecting it in place of the server."""
        update = result.update
        message = Message(kind=update.kind, sender=update.sender, round=update.round, counts=update.counts)
        if (reason := refusal(update, result.kept, server, self.federated)) is not None:
            return replace(result, update=replace(message, notes={REFUSED: reason}))
        # The server cannot compare integer parameters, so they are left out.
        floats = {name: array for name, array in update.params.items() if np.issubdtype(array.dtype, np.floating)}
        weighted = {n: np.float64(update.weights.get(group_of(n), 0.0)) * array for n, array in floats.items()}
        sums = {f"{VALUES}/{name}": array for name, array in update.sums.items()}
        sums |= {f"{WEIGHTS}/{group}": np.asarray(float(weight)) for group, weight in update.weights.items()}
        encrypted: Arrays = {}
        for scheme, arrays in ((encryption.PARAMETERS, weighted), (encryption.SUMS, sums)):
            vector = self._key.encrypted(scheme, vector_of(arrays), len(self.names))
            encrypted |= {f"{scheme.name}/{part}": array for part, array in vector.items()}
        layouts = {encryption.PARAMETERS.name: layout_of(weighted), encryption.SUMS.name: layout_of(sums)}
        return replace(result, update=replace(message, encrypted=encrypted, notes={LAYOUTS: json.dumps(layouts)}))

    def _merge(self, task: SiloTask) -> SiloResult:
        """Return what the server would compute from the sums over all silos, sealed for the silos."""
        message, sender = task.broadcast, self.names[task.silo]
        server = self._server(message)
        total = self._total(message, server)
        final = False
        if message.notes[WANTED] == MERGED:
            extras = self.federated.merge_statistics(server, dict(total.sums))
            name, number = MERGED, message.round
            content = Message(kind="statistics", sender=sender, round=number, extras=extras).encode()
        else:
            server = replace(server, extras={**server.extras, **self._merged(message)})
            after = next_server(server, [total], self.federated, self.buffers)
            name, number, content = SEALED, message.round + 1, state_bytes(after)
            final = after.final
        sealed = {name: self._key.sealed(content, label_of(name, number, self.run))}
        answer = Message("merged", sender, message.round, encrypted=sealed, counts={"final": int(final)})
        return SiloResult(task.silo, answer)

    def _total(self, message: Message, server: ServerState) -> Message:
        """Return the message that stands for the updates of all silos: the means of their parameters, and their sums."""
        totals: dict[str, Arrays] = {scheme.name: {} for scheme in encryption.SCHEMES}
        schemes = {scheme.name: scheme for scheme in encryption.SCHEMES}
        for number, (name, text) in enumerate(json.loads(message.notes[LAYOUTS])):
            layout = read_layout(text)
            vector = entries_under(str(number), message.encrypted)
            values = self._key.decrypted(schemes[name], vector, length_of(layout))
            add_sums(totals[name], arrays_of(values, layout))
        weights = {group: float(total) for group, total in entries_under(WEIGHTS, totals[encryption.SUMS.name]).items()}
        means = {
            name: (total / weights[group_of(name)]).astype(server.params[name].dtype)
            for name, total in totals[encryption.PARAMETERS.name].items()
            if weights.get(group_of(name), 0.0) > 0
        }
        return Message(
            kind="update", sender="silos", round=message.round, weights=weights, counts=message.counts,
            sums=entries_under(VALUES, totals[encryption.SUMS.name]), params=means,
        )  # fmt: skip

    @override
    def method(self, federated: FederatedMethod, engine: Engine, limits: Limits) -> FederatedMethod:
        """Return the method as a server without the key can compute it."""
        self.sealed = SealedMethod(federated, engine, len(self.names), limits)
        return self.sealed

    @override
    def objection(self, update: Message) -> str | None:
        """Object to an update that is not encrypted as those of the run, or that its silo has refused."""
        if REFUSED in update.notes:
            return update.notes[REFUSED]
        try:
            for scheme, layout, vector in vectors_in(update):
                encryption.read_blocks(encryption.public_context(scheme), vector, length_of(read_layout(layout)))
        except DamagedUpdateError as error:
            return str(error)
        return None

    @override
    def collection(self) -> EncryptedTotals:
        """Add up what cannot be read."""
        return EncryptedTotals()

    @override
    def merged(self, server: ServerState, messages: Sequence[Message]) -> Arrays | None:
        """Ask a silo to merge the statistics."""
        return None if self.sealed is None else self.sealed.merged(server, messages)

    @override
    def traffic(self) -> tuple[int, int]:
        """Return the bytes of what silos were asked to compute."""
        return (0, 0) if self.sealed is None else self.sealed.traffic()


def run_digest(config: RunConfig) -> str:
    """Return a digest of what the configs of all silos of a run have in common, 12 hexadecimal digits.

    Silos on different machines have tables of their own for their data and machines.
    """
    value = config.to_json()
    return digest_json({name: value[name] for name in ("seed", "model", "local", "federated", "exchange")})[:12]


def label_of(what: str, round: int, run: str) -> str:  # noqa: A002  the field's word
    """Return the label under which something of a round is sealed."""
    return f"the {what} of round {round + 1} of run {run}"


def opened_state(key: encryption.SiloKey | None, run: str, server: ServerState, round: int) -> ServerState:  # noqa: A002
    """Return the server's state before a round as the federated method knows it.

    Raises:
        UserError: If it was not sealed with this key.
    """
    if SEALED not in server.private or key is None:
        return server
    return state_from(key.opened(server.private[SEALED], label_of(SEALED, round, run)))


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
    return Message("server", "server", 0, params=server.params, extras=server.extras, state=server.private).encode()


def state_from(content: bytes) -> ServerState:
    """Return the state that `state_bytes` wrote."""
    message = Message.decode(content)
    return ServerState(params=dict(message.params), extras=dict(message.extras), private=dict(message.state))
