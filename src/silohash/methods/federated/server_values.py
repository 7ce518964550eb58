"""Values of a local method's model that the server computes from sums of silos: `silohash.methods.local.base.ServerSolved`.

Silos add their sums to their updates, whatever the federated method. The sums of all silos are those of the pooled items, so
every federation solves the problem of the pooled data for the silos' outputs.
"""

from collections.abc import Sequence
from dataclasses import replace

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.base import FederatedMethod, ServerState, SiloContext, entries_under
from silohash.methods.federated.statistics import sum_statistics
from silohash.methods.message import Message
from silohash.models.towers import Adapted

PREFIX = "solved"
"""Prefix of the names of the sums in an update."""


def with_sums(update: Message, federated: FederatedMethod, context: SiloContext) -> Message:
    """Return a silo's update with the sums that the local method asks for; unchanged if it asks for none.

    Silos that do not share the values keep those that they started with, and do not send sums.
    """
    if federated.solver is None or not empty_sums(federated, context.payload.params):
        return update
    model = Adapted(context.model, federated.adapter, context.payload.extras)
    sums = {f"{PREFIX}/{name}": array for name, array in federated.solver.silo_sums(model, context.data).items()}
    return replace(update, sums={**update.sums, **sums})


def empty_sums(federated: FederatedMethod, params: ReadArrays) -> Arrays:
    """Return the sums of a silo without items that the local method asks for; nothing if it asks for none."""
    if federated.solver is None or federated.traits.shares == "none":
        return {}
    return {f"{PREFIX}/{name}": array for name, array in federated.solver.empty_sums(params).items()}


def with_solution(server: ServerState, updates: Sequence[Message], federated: FederatedMethod) -> ServerState:
    """Return the state after an aggregation with the values that solve the local method's problem for the updates' sums."""
    sums = entries_under(PREFIX, sum_statistics(updates))
    if federated.solver is None or not sums:
        return server
    return replace(server, params={**server.params, **federated.solver.solve(server.params, sums)})
