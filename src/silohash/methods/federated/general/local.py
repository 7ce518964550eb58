"""The lower bound that a federation must beat: every silo trains alone, and nothing is sent.

Every silo trains its own model from the common initial parameters, on the same schedule as under federated averaging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import nn

from silohash.base.types import MethodCard, Phase
from silohash.methods.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.methods.message import Message
from silohash.models.parameters import install

CARD = MethodCard(
    key="local",
    title="Separate training",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Train one model per silo, from common initial parameters. Nothing is sent.",
    supervised=False,
    keeps=("its model",),
    differs_from_paper=(),
)


class Local(FederatedMethod):
    """Separate training of one model per silo."""

    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {"silo_update": {}}
    closed_form: ClassVar[Literal["none", "silos", "sums"]] = "silos"
    shares_parameters: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    personalized: ClassVar[bool] = True
    codes_comparable: ClassVar[bool] = False
    trains_scores: ClassVar[bool] = True

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Return no names: nothing is sent."""
        return []

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Send an empty message. Every silo derives the common initial parameters itself."""
        return Message(kind="broadcast", sender="server", round=round)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Continue with the silo's model, or the common initial parameters in its first round."""
        install(context.model, context.kept("model") or context.initial)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def silo_update(self, context: SiloContext) -> Message:
        """Keep the model and send only the number of items."""
        context.keep("model", context.model.state_dict())
        return super().silo_update(context)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Return the server state unchanged."""
        return server

    def personalize(self, context: SiloContext) -> None:
        """Install the silo's own model."""
        install(context.model, context.kept("model") or context.initial)
