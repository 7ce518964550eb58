"""The server's next state, from the updates of a round."""

from __future__ import annotations

from collections.abc import Sequence, Set

from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.server_values import with_solution
from silohash.methods.message import Message


def next_server(
    server: ServerState,
    updates: Sequence[Message],
    federated: FederatedMethod,
    *,
    rejected: int = 0,
    buffers: Set[str] = frozenset(),
) -> tuple[ServerState, dict[str, str]]:
    """Return the next server state, and the remarks of the robust rule.

    If the robust rule does not keep any update, the state does not change, and a remark gives the reason.

    Args:
        server: The current state.
        updates: The updates that were not rejected.
        federated: The federated method.
        rejected: The number of silos of the round whose updates were rejected.
        buffers: The names of the model's buffers.
    """
    kept, remarks = federated.aggregation.screened(federated.origin(server), updates, rejected)
    if not kept:
        return server, remarks
    after = federated.aggregate(server, kept)
    if federated.run.server_optimizer is not None:
        after = federated.run.server_optimizer.step(server, after, buffers)
    return with_solution(after, kept, federated), remarks
