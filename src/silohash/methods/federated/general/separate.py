"""A control for federated methods: every silo uses a method's loss alone, as a federation of one silo.

It separates what a method gains by its loss from what it gains by the federation. Prototypes, for example, are those of
the silo's own items. The other two controls need no method of their own: with ``partition.silos = 1``, every method is
trained on the pooled data, and `silohash.methods.federated.general.local` is this control for FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import nn

from silohash.base.types import MethodCard, Outputs, PairBatch, Phase, Terms, UserError
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.methods.federated.compose import MemberConfig, build_member, prefixed
from silohash.methods.federated.composition_rules import overrides
from silohash.methods.local.base import MethodParams
from silohash.methods.message import Message
from silohash.models.parameters import install

CARD = MethodCard(
    key="separate",
    title="Separate training with the loss of a federated method",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Train each silo alone with the loss of a federated method, as a federation of one silo. Nothing is sent.",
    supervised=False,
    keeps=("its model", "what the server of the method would keep"),
    differs_from_paper=(),
)

MODEL = "model"
EXTRAS = "extras"
"""Prefixes of the parameters and of the other arrays that the server of the method would keep."""

UNSUPPORTED = ("adapt_outputs", "silo_statistics", "shared_parameters", "broadcast", "personalize", "check_exchange")
"""Hooks of methods that a federation of one silo cannot serve: their models or messages are more than an average."""


class SeparateParams(MethodParams):
    """Parameters of separate training."""

    methods: tuple[MemberConfig, ...] = Field(
        default=({"name": "fedavg"},), min_length=1, max_length=1, validate_default=True
    )
    """The federated method whose loss each silo uses, with its name, preset and parameters. Exactly one."""


class Separate(FederatedMethod):
    """Each silo is the only silo of a federation of its own."""

    Params: ClassVar[type[MethodParams]] = SeparateParams
    shares_parameters: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    personalized: ClassVar[bool] = True
    codes_comparable: ClassVar[bool] = False

    def __init__(self, params: SeparateParams) -> None:
        super().__init__(params)
        config = params.methods[0]
        self.label, self.method = config.name, build_member(config)
        self.members = {self.label: self.method}
        hooks = [hook for hook in UNSUPPORTED if overrides(self.method, hook)]
        if hooks or self.method.pooled:
            why = "pools all data" if self.method.pooled else f"has its own {hooks[0]}"
            raise UserError(
                f'federated.methods: "{self.label}" {why}, so it cannot be used by a silo alone. Choose a method that '
                "averages whole models, such as fedhap, fedproc or fedprox."
            )
        vars(self).update(
            needs_labels=self.method.needs_labels, min_modalities=self.method.min_modalities,
            class_head=self.method.class_head,
        )  # fmt: skip

    @property
    def auxiliary_learning_rate(self) -> float | None:
        """Learning rate of the method's auxiliary networks."""
        return self.method.auxiliary_learning_rate

    def check_steps(self, *, optimizer: str, learning_rate: float, momentum: float) -> list[str]:
        """Check the optimizer for the method."""
        return self.method.check_steps(optimizer=optimizer, learning_rate=learning_rate, momentum=momentum)

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Return no names: nothing is sent."""
        return []

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Return the arrays with which the method starts, which are the same for every silo."""
        start = self.method.init_server(model, replace(info, silos=1))
        return ServerState(params={}, extras=prefixed({self.label: start.extras}))

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Continue with what the silo keeps, or with the common start in its first round."""
        alone = self._alone(context)
        if not context.kept(self.label):
            self.method.init_silo(alone)
        phases = self.method.begin_round(alone)
        context.auxiliary |= prefixed({self.label: alone.auxiliary})
        return phases

    def _alone(self, context: SiloContext) -> SiloContext:
        """Return the context in which the method sees the silo's round, with a broadcast made of what the silo keeps."""
        alone = context.member(self.label)
        if alone.whole is not None:
            kept = context.kept(EXTRAS)
            alone.payload = Message(
                kind="broadcast", sender="server", round=context.round,
                params=context.kept(MODEL) or context.initial, extras=kept or alone.payload.extras,
            )  # fmt: skip
            alone.whole = None  # the global model is the silo's own, which the message of the whole round does not hold
        return alone

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the terms of the method."""
        return prefixed({self.label: self.method.regularizer(self._alone(context), batch, outputs)})

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the losses of the method's auxiliary networks."""
        return prefixed({self.label: self.method.auxiliary_step(self._alone(context), batch, outputs)})

    def silo_update(self, context: SiloContext) -> Message:
        """Let the method aggregate the silo's own update, keep the result, and send only the number of items."""
        alone = self._alone(context)
        before = ServerState(dict(alone.payload.params), dict(alone.payload.extras))
        message = self.method.silo_update(alone)
        after = self.method.aggregate(before, [message])
        context.keep(MODEL, {name: torch.from_numpy(np.array(array)) for name, array in after.params.items()})
        context.keep(EXTRAS, {name: torch.from_numpy(np.array(array)) for name, array in after.extras.items()})
        return super().silo_update(context)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Return the server state unchanged."""
        return server

    def personalize(self, context: SiloContext) -> None:
        """Install the silo's own model."""
        install(context.model, context.kept(MODEL) or context.initial)
