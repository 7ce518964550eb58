"""Each silo alone: the lower bound that a federation must beat.

Every silo trains its own model from the common initial one, on the same schedule as under federated averaging, and nothing
travels. Codes of different silos come from different models and may not be ranked together.

Differs from the paper: no paper; this is the baseline "Local" or "Standalone" of all five.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import nn

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.models.parameters import install
from silohash.types import MethodCard, Phase

CARD = MethodCard(
    key="local",
    title="Each silo alone",
    authors="",
    venue="baseline",
    year=2017,
    link="",
    summary="Every silo trains on its own from the common start; nothing travels.",
    supervised=False,
    keeps=("the whole model",),
)


class Local(FederatedMethod):
    """Every silo trains a model of its own."""

    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {"silo_update": {}}
    shares_parameters: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    personalized: ClassVar[bool] = True
    codes_comparable: ClassVar[bool] = False

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Nothing travels."""
        return []

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Sends nothing: every silo makes the common initial model for itself."""
        return Message(kind="broadcast", sender="server", round=round)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Goes on with the silo's own model; the common initial one in its first round."""
        install(context.model, context.kept("model") or context.initial)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def silo_update(self, context: SiloContext) -> Message:
        """Keeps the model and sends nothing but the number of items."""
        context.keep("model", context.model.state_dict())
        return super().silo_update(context)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Leaves the server as it was."""
        return server

    def personalize(self, context: SiloContext) -> None:
        """Takes the silo's own model."""
        install(context.model, context.kept("model") or context.initial)
