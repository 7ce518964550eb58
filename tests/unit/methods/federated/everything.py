"""A method that overrides all nine hooks, with an auxiliary network, private layers, statistics and two phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from silohash.base.types import Arrays, MethodCard, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated.base import Adapter, FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.local.base import outputs_of
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import install, params_of
from silohash.models.towers import hash_layers

CARD = MethodCard("everything", "All hooks", "Tests", "none", 2026, "", "Override every hook.", supervised=True)
PRIVATE = "hash"
"""The layer that stays with a silo."""
CALLS: list[tuple[str, int]] = []
SEEN: dict[str, list[object]] = {}


def note(hook: str, silo: int = -1, **seen: object) -> None:
    CALLS.append((hook, silo))
    for name, value in seen.items():
        SEEN.setdefault(name, []).append(value)


class Adapting(Adapter):
    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, torch.Tensor]) -> Outputs:
        memory = extras["memory"]
        return replace(outputs, code={name: code + memory for name, code in outputs.code.items()})

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        note("auxiliary_step", context.silo, rows=batch.row.tolist())
        (code,) = outputs.code.values()
        return {"critic": (1.0, (context.auxiliary["critic"](code.detach()) - 1).square().mean())}


class Everything(FederatedMethod):
    traits = Traits(
        needs_labels=True, min_modalities=2, uniform_broadcast=False, personalized=True, codes_comparable=False,
        shares="body", encode_extras=("memory",), weights_known="with update",
        means=(SharedMean("total", "count", like="memory"),),
    )  # fmt: skip
    adapter = Adapting()

    def init_server(self, model: torch.nn.Module, info: FederationInfo) -> ServerState:
        note("init_server")
        extras = {"memory": np.zeros(info.bits, np.float32)}
        return ServerState(params=params_of(model), extras=extras, private={"rounds": np.asarray(0)})

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002
        note("broadcast", silo)
        message = super().broadcast(server, silo, round=round)
        return replace(message, extras={**message.extras, "for": np.asarray(silo)})

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        note("begin_round", context.silo, sent_to=int(context.payload.extras["for"]))
        install(context.model, {**context.payload.params, **context.kept("private")})
        visits = context.kept("own").get("visits", np.zeros(()))
        context.keep("own", {"visits": torch.as_tensor(visits + 1)})
        critic = torch.nn.Linear(context.payload.extras["memory"].shape[0], 1, bias=False)
        with torch.no_grad():
            critic.weight.zero_()
        context.auxiliary["critic"] = critic
        half = np.arange(len(context.data) // 2)
        return [
            Phase("private", context.model, epochs=1, rows=half),
            Phase("shared", context.model, epochs=context.epochs),
        ]

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        note("terms", context.silo)
        (code,) = outputs.code.values()
        return {"pull": (0.5, code.square().mean())}

    def statistics(self, context: SiloContext) -> Arrays:
        codes = outputs_of(context.model, context.data)["image"]
        note("statistics", context.silo, critic=float(context.auxiliary["critic"].weight.detach().abs().sum()))
        return {"total": codes.sum(0).numpy(), "count": np.asarray(float(len(codes)), np.float32)}

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002
        message = super().template(server, kind=kind, round=round)
        if kind == "statistics":
            return message
        return replace(message, sums={"n": np.asarray(1.0)}, records={"loss": np.asarray(0.0)})

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        note("merge_statistics", sums=sums)
        return {"memory": (0.01 * sums["total"] / sums["count"]).astype(np.float32)}

    def update(self, context: SiloContext) -> Message:
        note("update", context.silo, steps=dict(context.steps_taken), loss=context.mean_loss)
        note("update_state", context.silo, memory=context.payload.extras["memory"])
        state = context.model.state_dict()
        context.keep("private", {name: state[name] for name in hash_layers(state)})
        update = super().update(context)
        return replace(update, sums={"n": np.asarray(1.0)}, records={"loss": np.asarray(context.mean_loss)})

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        note("aggregate", updates=[update.sender for update in updates], merged=server.extras["memory"])
        after = super().aggregate(server, updates)
        return replace(after, private={"rounds": server.private["rounds"] + 1})

    def weight(self, context: SiloContext, group: str) -> float:
        note("weight", context.silo)
        return super().weight(context, group)

    def personalize(self, context: SiloContext) -> None:
        note("personalize", context.silo)
        install(context.model, {**context.payload.params, **context.kept("private")})
