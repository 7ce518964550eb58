"""A method that overrides all twelve hooks, with an auxiliary network, private layers, statistics and two phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from silohash.base.types import Arrays, MethodCard, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.local.base import outputs_of
from silohash.methods.message import Message
from silohash.models.parameters import install, params_of

CARD = MethodCard("everything", "All hooks", "Tests", "none", 2026, "", "Override every hook.", supervised=True)
PRIVATE = "text.backbone"
CALLS: list[tuple[str, int]] = []
SEEN: dict[str, list[object]] = {}


def note(hook: str, silo: int = -1, **seen: object) -> None:
    CALLS.append((hook, silo))
    for name, value in seen.items():
        SEEN.setdefault(name, []).append(value)


class Everything(FederatedMethod):
    needs_labels: ClassVar[bool] = True
    min_modalities: ClassVar[int] = 2
    uniform_broadcast: ClassVar[bool] = False
    personalized: ClassVar[bool] = True
    codes_comparable: ClassVar[bool] = False
    encode_extras: ClassVar[tuple[str, ...]] = ("memory",)
    means: ClassVar[tuple[SharedMean, ...]] = (SharedMean("total", "count", like="memory"),)

    def shared_parameters(self, model: torch.nn.Module) -> list[str]:
        note("shared_parameters")
        return [name for name in model.state_dict() if not name.startswith(PRIVATE)]

    def init_server(self, model: torch.nn.Module, info: FederationInfo) -> ServerState:
        note("init_server")
        extras = {"memory": np.zeros(info.bits, np.float32)}
        return ServerState(params=params_of(model), extras=extras, private={"rounds": np.asarray(0)})

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002
        note("broadcast", silo)
        message = super().broadcast(server, silo, round=round)
        return replace(message, extras={**message.extras, "for": np.asarray(silo)})

    def init_silo(self, context: SiloContext) -> None:
        note("init_silo", context.silo)
        context.keep("own", {"visits": torch.zeros(())})

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        note("begin_round", context.silo, sent_to=int(context.payload.extras["for"]))
        install(context.model, {**context.payload.params, **context.kept("private")})
        visits = context.kept("own")["visits"]
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

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, torch.Tensor]) -> Outputs:
        memory = extras["memory"]
        return replace(outputs, code={name: code + memory for name, code in outputs.code.items()})

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        note("auxiliary_step", context.silo, rows=batch.row.tolist())
        (code,) = outputs.code.values()
        return {"critic": (1.0, (context.auxiliary["critic"](code.detach()) - 1).square().mean())}

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        note("regularizer", context.silo)
        (code,) = outputs.code.values()
        return {"pull": (0.5, code.square().mean())}

    def silo_statistics(self, context: SiloContext) -> Arrays:
        codes = outputs_of(context.model, context.data)["image"]
        note("silo_statistics", context.silo, critic=float(context.auxiliary["critic"].weight.detach().abs().sum()))
        return {"total": codes.sum(0).numpy(), "count": np.asarray(float(len(codes)), np.float32)}

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002
        message = super().template(server, kind=kind, round=round)
        if kind == "statistics":
            return message
        return replace(message, sums={"n": np.asarray(1.0)}, records={"loss": np.asarray(0.0)})

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        note("merge_statistics", sums=sums)
        return {"memory": (0.01 * sums["total"] / sums["count"]).astype(np.float32)}

    def silo_update(self, context: SiloContext) -> Message:
        note("silo_update", context.silo, steps=dict(context.steps_taken), loss=context.mean_loss)
        note("silo_update_state", context.silo, memory=context.payload.extras["memory"])
        own = {name: t for name, t in context.model.state_dict().items() if name.startswith(PRIVATE)}
        context.keep("private", own)
        update = super().silo_update(context)
        return replace(update, sums={"n": np.asarray(1.0)}, records={"loss": np.asarray(context.mean_loss)})

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        note("aggregate", updates=[update.sender for update in updates], merged=server.extras["memory"])
        after = super().aggregate(server, updates)
        return replace(after, private={"rounds": server.private["rounds"] + 1})

    def personalize(self, context: SiloContext) -> None:
        note("personalize", context.silo)
        install(context.model, {**context.payload.params, **context.kept("private")})
