"""The silos' side of encrypted sums.

A silo encrypts what it sends, and opens what it receives. In each round one silo also does what the server cannot: it
decrypts the sums over all silos, computes the server's next state from them, and seals that state for all silos.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from silohash.base.files import digest_json
from silohash.base.types import Arrays, UserError
from silohash.methods.federated.base import FederatedMethod, ServerState, entries_under
from silohash.methods.federated.refusal import refusal
from silohash.methods.federated.statistics import add_sums
from silohash.methods.message import Message
from silohash.models.towers import group_of
from silohash.run.config.sections import RunConfig
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.updates.encryption import PARAMETERS, SCHEMES, SUMS, SiloKey
from silohash.training.updates.sealed_server import (
    INITIAL,
    LAYOUTS,
    MERGED,
    REFUSED,
    SEALED,
    WANTED,
    arrays_of,
    layout_of,
    length_of,
    read_layout,
    state_bytes,
    state_from,
    vector_of,
)
from silohash.training.updates.server_step import next_server

WEIGHTS, VALUES = "weights", "values"
"""Prefixes of a silo's weights and of its other sums in an encrypted vector."""


@dataclass(frozen=True)
class SealedSilo:
    """What silos with the key do with tasks and results.

    Attributes:
        key: The key of the silos; None if it is not there, so that no task can be carried out.
        federated: The federated method.
        run: Digest of the run, so that nothing of another run can be taken for something of this one.
        names: Names of all silos, in order.
        buffers: Names of the model's buffers.
    """

    key: SiloKey | None
    federated: FederatedMethod
    run: str
    names: tuple[str, ...]
    buffers: frozenset[str]

    def do(self, task: SiloTask, carry_out: Callable[[SiloTask], SiloResult]) -> SiloResult:
        """Open a task, let it be carried out, and encrypt what the silo sends.

        The model that a silo deploys is not encrypted: a silo on another machine stores it and does not send it.

        Raises:
            UserError: If there is no key, the server asks for something that it could read, or the task was not made with
                the silos' key.
        """
        if task.kind == "merge":
            return self._merge(task)
        if task.kind == "weigh":
            raise UserError(
                "The server asked for the weights of a silo, and this run encrypts them. Install the same version of "
                "silohash everywhere."
            )
        server = self._server(task.broadcast)
        result = carry_out(self._received(task, server))
        return self._encrypted(result, server) if task.kind in ("train", "finish") else result

    def received(self, task: SiloTask) -> SiloTask:
        """Return a task with the broadcast that the federated method makes from the server's state."""
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
            raise UserError(
                "The server sent a task for silos that do not encrypt what they send, and this run encrypts it. Install the "
                "same version of silohash everywhere."
            )
        state = ServerState(params={}, private={SEALED: message.encrypted[SEALED]})
        return opened_state(self._key, self.run, state, message.round)

    @property
    def _key(self) -> SiloKey:
        if self.key is None:
            raise UserError("exchange.encryption needs the key that all silos share, and this silo has none.")
        return self.key

    def _merged(self, message: Message) -> Arrays:
        """Return the merged statistics that a message holds, if there are any."""
        if MERGED not in message.extras:
            return {}
        content = self._key.opened(message.extras[MERGED], label_of(MERGED, message.round, self.run))
        return dict(Message.decode(content).extras)

    def _encrypted(self, result: SiloResult, server: ServerState) -> SiloResult:
        """Return a result whose update only silos can read. The silo inspects it in place of the server.

        Integer parameters are left out, because the server cannot compare them.
        """
        update = result.update
        message = Message(kind=update.kind, sender=update.sender, round=update.round, counts=update.counts)
        reason = refusal(update, result.kept, server, self.federated)
        if reason is not None:
            return replace(result, update=replace(message, notes={REFUSED: reason}))
        floats = {name: array for name, array in update.params.items() if np.issubdtype(array.dtype, np.floating)}
        weighted = {n: np.float64(update.weights.get(group_of(n), 0.0)) * array for n, array in floats.items()}
        sums = {f"{VALUES}/{name}": array for name, array in update.sums.items()}
        sums |= {f"{WEIGHTS}/{group}": np.asarray(float(weight)) for group, weight in update.weights.items()}
        encrypted: Arrays = {}
        for scheme, arrays in ((PARAMETERS, weighted), (SUMS, sums)):
            vector = self._key.encrypted(scheme, vector_of(arrays), len(self.names))
            encrypted |= {f"{scheme.name}/{part}": array for part, array in vector.items()}
        layouts = {PARAMETERS.name: layout_of(weighted), SUMS.name: layout_of(sums)}
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
            after, _ = next_server(server, [total], self.federated, buffers=self.buffers)
            name, number, content = SEALED, message.round + 1, state_bytes(after)
            final = after.final
        sealed = {name: self._key.sealed(content, label_of(name, number, self.run))}
        answer = Message("merged", sender, message.round, encrypted=sealed, counts={"final": int(final)})
        return SiloResult(task.silo, answer, kept={}, loss=math.nan, terms={}, seconds=0.0)

    def _total(self, message: Message, server: ServerState) -> Message:
        """Return the message that stands for the updates of all silos: the means of their parameters, and their sums."""
        totals: dict[str, Arrays] = {scheme.name: {} for scheme in SCHEMES}
        schemes = {scheme.name: scheme for scheme in SCHEMES}
        for number, (name, text) in enumerate(json.loads(message.notes[LAYOUTS])):
            layout = read_layout(text)
            vector = entries_under(str(number), message.encrypted)
            values = self._key.decrypted(schemes[name], vector, length_of(layout))
            add_sums(totals[name], arrays_of(values, layout))
        weights = {group: float(total) for group, total in entries_under(WEIGHTS, totals[SUMS.name]).items()}
        means = {
            name: (total / weights[group_of(name)]).astype(server.params[name].dtype)
            for name, total in totals[PARAMETERS.name].items()
            if weights.get(group_of(name), 0.0) > 0
        }
        return Message(
            kind="update", sender="silos", round=message.round, weights=weights, counts=message.counts,
            sums=entries_under(VALUES, totals[SUMS.name]), params=means,
        )  # fmt: skip


def run_digest(config: RunConfig) -> str:
    """Return a digest of what the configs of all silos of a run have in common, 12 hexadecimal digits.

    Silos on different machines have tables of their own for their data and machines.
    """
    value = config.to_json()
    return digest_json({name: value[name] for name in ("seed", "model", "local", "federated", "exchange")})[:12]


def label_of(what: str, round: int, run: str) -> str:  # noqa: A002  the field's word
    """Return the label under which something of a round is sealed."""
    return f"the {what} of round {round + 1} of run {run}"


def opened_state(key: SiloKey | None, run: str, server: ServerState, round: int) -> ServerState:  # noqa: A002
    """Return the server's state before a round as the federated method knows it.

    Args:
        key: The key of the silos.
        run: Digest of the run.
        server: The state as the server keeps it, sealed or not.
        round: Number of the round, from 0.

    Raises:
        UserError: If it was not sealed with this key.
    """
    if SEALED not in server.private or key is None:
        return server
    return state_from(key.opened(server.private[SEALED], label_of(SEALED, round, run)))
