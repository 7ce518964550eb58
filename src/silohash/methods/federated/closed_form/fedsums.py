"""Exact training from sums: the server solves a local method without gradient steps from the sums of all silos.

In every round, each silo sends sums over its items, and the server computes the next step from their totals. The totals do
not depend on the partition of the items, so after the last exchange the codes equal those of pooled training. No silo
sends items or parameters.

===========  ==================================  ===========================================================
symbol       code                                meaning
===========  ==================================  ===========================================================
t            ``context.round``                   number of the exchange
s_k          `FromSums.sums`                     sums over the items of silo k
S            `sum_statistics`                    their total
–            `FromSums.solve`                    the server's step from S
===========  ==================================  ===========================================================
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from silohash.base.types import Arrays, MethodCard, Phase
from silohash.methods.federated import base
from silohash.methods.federated.statistics import RevealParams, sum_statistics
from silohash.methods.local.closed_form.base import FromSums, Solution, no_views, views_of
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import install, params_of

CARD = MethodCard(
    key="fedsums",
    title="Exact training from sums over silos",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Solve a local method without gradient steps from the sums of all silos, as if their items were pooled.",
    sends=(
        "number of items, and the sums over items that the local method needs, such as second moments of the vectors",
    ),
    differs_from_paper=(),
)

CLASSES, SOLUTION = "classes", "solution"
"""Name of the number of classes, and prefix of the arrays of the local method, which stay on the server."""


class FedSumsParams(RevealParams):
    """Parameters of exact training from sums."""


class FedSums(base.FederatedMethod[FedSumsParams]):
    """Rounds in which silos send sums and the server solves."""

    traits = Traits(closed_form="sums", shares="none", averages=False, reveals="sums that reveal")

    @property
    def method(self) -> FromSums:
        """The local method."""
        local: object = self.run.local
        assert isinstance(local, FromSums)  # noqa: S101  checked when the methods are put together
        return local

    def init_server(self, model: nn.Module, info: base.FederationInfo) -> base.ServerState:
        """Return the state before the first exchange."""
        start = _state(self.method.begin(params_of(model)), self.method.exchanges(info.bits))
        return replace(start, private={**start.private, CLASSES: np.asarray(info.classes)})

    def broadcast(self, server: base.ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Send what the next sums are computed with, or the finished parameters."""
        message = super().broadcast(server, silo, round=round)
        return replace(message, params=server.params, extras={}) if server.final else message

    def begin_round(self, context: base.SiloContext) -> Sequence[Phase]:
        """Return no phases: the silo does not train."""
        self.personalize(context)
        return []

    def update(self, context: base.SiloContext) -> Message:
        """Send the silo's sums, or nothing once the model is finished."""
        sums: Arrays = {}
        if not context.payload.params:
            views = views_of(context.model, context.data)
            sums = self.method.sums(views, context.payload.extras, context.round)
        return base.sums_alone(context, sums)

    def aggregate(self, server: base.ServerState, updates: Sequence[Message]) -> base.ServerState:
        """Solve from the totals. Nothing changes once the model is finished."""
        if server.final:
            return server
        solution = Solution(server.params, server.extras, base.entries_under(SOLUTION, server.private))
        solved = self.method.solve(solution, sum_statistics(updates), updates[0].round)
        after = _state(solved, int(server.private["remaining"]) - 1)
        return replace(after, private={**after.private, CLASSES: server.private[CLASSES]})

    def template(self, server: base.ServerState, *, kind: str, round: int) -> Message:  # noqa: A002  the field's word
        """Return the sums of a silo without pairs."""
        message = super().template(server, kind=kind, round=round)
        if server.final or kind != "update":
            return message
        views = no_views(server.params, int(server.private[CLASSES]))
        return replace(message, sums=self.method.sums(views, server.extras, round))

    def personalize(self, context: base.SiloContext) -> None:
        """Install the finished parameters, or the initial ones."""
        install(context.model, context.payload.params or context.initial)


def _state(solution: Solution, remaining: int) -> base.ServerState:
    private = {f"{SOLUTION}/{name}": array for name, array in solution.private.items()}
    return base.ServerState(
        params=dict(solution.params),
        extras=dict(solution.sent),
        private={**private, "remaining": np.asarray(remaining), "final": np.asarray(remaining == 0)},
    )
