"""A control for federated methods: every silo uses a method's loss alone, as a federation of one silo.

It separates what a method gains by its loss from what it gains by the federation. Prototypes, for example, are those of
the silo's own items. The other two controls need no method of their own: with ``partition.silos = 1``, every method is
trained on the pooled data, and `silohash.methods.federated.general.local` is this control for FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from pydantic import Field
from torch import nn

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import MethodCard, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated import base
from silohash.methods.federated.compose import CombiningParams, MemberConfig, build_member, overrides, prefixed
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import install

CARD = MethodCard(
    key="separate",
    title="Separate training with the loss of a federated method",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Train each silo alone with the loss of a federated method, as a federation of one silo. Nothing is sent.",
    keeps=("its model", "what the server of the method would keep"),
    differs_from_paper=(),
)

MODEL = "model"
EXTRAS = "extras"
"""Prefixes of the parameters and of the other arrays that the server of the method would keep."""

UNSUPPORTED: Mapping[str, str] = {
    "adapt_outputs": "has its own adapt_outputs",
    "statistics": "has its own statistics",
    "shares": "does not share whole models",
    "broadcast": "has its own broadcast",
    "personalize": "has its own personalize",
    "reveals": "sends sums that reveal items",
}
"""What a federation of one silo cannot serve, with the reason: models or messages that are more than an average."""


class SeparateParams(CombiningParams):
    """Parameters of separate training."""

    methods: tuple[MemberConfig, ...] = Field(
        default=({"name": "fedavg"},), min_length=1, max_length=1, validate_default=True
    )
    """The federated method whose loss each silo uses, with its name, preset and parameters. Exactly one."""


class SeparateNetworks(base.Adapter):
    """The auxiliary networks of the method, which each silo trains for itself."""

    def __init__(self, separate: Separate) -> None:
        self.separate = separate
        self.learning_rate = separate.method.adapter.learning_rate

    def auxiliary_step(self, context: base.SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the losses of the method's auxiliary networks."""
        one = self.separate
        return prefixed({one.label: one.method.adapter.auxiliary_step(one.alone(context), batch, outputs)})


class Separate(base.FederatedMethod[SeparateParams]):
    """Each silo is the only silo of a federation of its own."""

    traits = Traits(shares="none", averages=False, personalized=True, codes_comparable=False)

    def __init__(self, params: SeparateParams, run: base.RunFacts = base.NO_RUN) -> None:
        super().__init__(params, run)
        config = params.methods[0]
        self.label, self.method = config.name, build_member(config, run)
        self.members = {self.label: self.method}
        inner = self.method.traits
        reasons = ["pools all data"] if inner.pooled else []
        reasons += [why for part, why in UNSUPPORTED.items() if overrides(self.method, part)]
        if reasons:
            raise UnsuitableMethod(
                f'federated.methods: "{self.label}" {reasons[0]}, so it cannot be used by a silo alone. Choose a method '
                "that averages whole models, such as fedhap, fedproc or fedprox."
            )
        self.traits = replace(
            self.traits, needs_labels=inner.needs_labels, min_modalities=inner.min_modalities,
            class_head=inner.class_head, remarks=inner.remarks,
        )  # fmt: skip
        self.adapter = SeparateNetworks(self)

    def init_server(self, model: nn.Module, info: base.FederationInfo) -> base.ServerState:
        """Return the arrays with which the method starts, which are the same for every silo."""
        start = self.method.init_server(model, replace(info, silos=1))
        return base.ServerState(params={}, extras=prefixed({self.label: start.extras}))

    def begin_round(self, context: base.SiloContext) -> Sequence[Phase]:
        """Continue with what the silo keeps, or with the common start in its first round."""
        alone = self.alone(context)
        phases = self.method.begin_round(alone)
        context.auxiliary |= prefixed({self.label: alone.auxiliary})
        return phases

    def alone(self, context: base.SiloContext) -> base.SiloContext:
        """Return the context in which the method sees the silo's round, with a broadcast made of what the silo keeps."""
        alone = context.member(self.label)
        if alone.whole is not None:
            kept = context.kept(EXTRAS)
            alone.payload = Message(
                kind="broadcast", sender="server", round=context.round,
                params=context.kept(MODEL) or context.initial, extras=kept or alone.payload.extras,
            )  # fmt: skip
            # the global model is the silo's own, which the message of the whole round does not hold
            alone.whole = None
        return alone

    def terms(self, context: base.SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the terms of the method."""
        return prefixed({self.label: self.method.terms(self.alone(context), batch, outputs)})

    def update(self, context: base.SiloContext) -> Message:
        """Let the method aggregate the silo's own update, keep the result, and send only the number of items."""
        alone = self.alone(context)
        before = base.ServerState(dict(alone.payload.params), dict(alone.payload.extras))
        message = self.method.update(alone)
        after = self.method.aggregate(before, [message])
        for prefix, arrays in ((MODEL, after.params), (EXTRAS, after.extras)):
            context.keep(prefix, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
        return super().update(context)

    def personalize(self, context: base.SiloContext) -> None:
        """Install the silo's own model."""
        install(context.model, context.kept(MODEL) or context.initial)
