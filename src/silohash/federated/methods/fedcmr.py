"""FedCMR: Federated Cross-Modal Retrieval. Linlin Zong et al., SIGIR 2021.

Silos share only the layer that makes the common space, here each tower's hash layer; everything before it stays. The server
weights silos by how much they have and how well they learn; a silo adds a part of its own last move to what it is sent, and
improves its own model once more on pairs that it held back.

===========  ==============================  ===================================================
paper        code                            meaning
===========  ==============================  ===================================================
W            `hash_layers`                   the shared layer
S^k          `data_share`               the silo's share of items times its share of classes
V^k          `ease`                          falls with the silo's loss against the mean loss
alpha        ``loss_factor``                 weight of V^k
gamma        ``residual``                    part of the own move that is added
===========  ==============================  ===================================================

Differs from the paper: its own text was not at hand; equations follow a published reading of it and the authors' code.
Losses are means, not sums over batches, which made large silos look bad. The weights need sums over silos only: these are
added up first, and each silo then weights itself. A silo that took no step has no loss: it is not in the sums and weighs
nothing, unless all weigh alike. Preset ``reference`` has the code's signs, factors and summed losses (the last epoch's mean,
times the steps of all epochs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.local.base import MethodParams
from silohash.models.parameters import install, params_of
from silohash.models.towers import hash_layers
from silohash.types import Arrays, MethodCard, Phase

CARD = MethodCard(
    key="fedcmr",
    title="FedCMR: Federated Cross-Modal Retrieval",
    authors="Linlin Zong, Qiujie Xie, Jiahui Zhou, Peiran Wu, Xianchao Zhang, Bo Xu",
    venue="SIGIR",
    year=2021,
    link="https://doi.org/10.1145/3404835.3462989",
    summary="Only hash layers travel, weighted by size, classes and loss; each silo improves its model once more.",
    supervised=True,
    sends=("parameters of the hash layers", "number of items and of classes", "training loss"),
    keeps=("everything before the hash layers",),
    differs_from_paper=(
        "the hash layers are the shared layer",
        "losses are means; the residual is added, as the paper says, where the code subtracts it",
        "weights come of sums over silos",
    ),
)


class FedCMRParams(MethodParams):
    """Parameters of FedCMR."""

    weighting: Literal["additive", "softmax", "uniform"] = "additive"
    """`additive`: exp(S) + loss_factor V; `softmax`: exp(S / sum S + loss_factor V), as the code; or every silo alike."""
    loss_factor: float = Field(default=1.0, ge=0, le=100)
    """alpha: weight of the loss among the weights."""
    loss_reduction: Literal["mean", "sum"] = "mean"
    """Over batches, of the loss that weights go by: the sum, as in the code, makes silos of many batches look bad."""
    residual: float = Field(default=0.5, ge=-1, le=1)
    """gamma: part of the own last move that is added to the layer that comes down."""
    enhance_fraction: float = Field(default=0.2, ge=0, lt=1)
    """Share of the own pairs on which the model is improved after the update was made; 0 for no such phase."""
    share: Literal["hash", "all"] = "hash"
    """What travels: the hash layers, or all parameters."""


def data_share(items: float, classes: float, *, all_items: float, all_classes: float) -> float:
    """Returns S: the silo's share of the items times its share of the classes."""
    return items / max(all_items, 1.0) * classes / max(all_classes, 1.0)


def loss_term(loss: float, mean_loss: float) -> float:
    """Returns V, ``exp(-exp(loss / mean_loss))``: the larger, the better the silo learns."""
    return math.exp(-math.exp(min(loss / mean_loss, 50.0))) if mean_loss > 0 else math.exp(-math.e)


class FedCMR(FederatedMethod):
    """Sharing of the hash layers, with weights by size, classes and loss."""

    Params: ClassVar[type[MethodParams]] = FedCMRParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {},
        "authors_code": {"weighting": "softmax", "loss_factor": 100.0, "loss_reduction": "sum", "residual": -0.5},
    }
    needs_labels: ClassVar[bool] = True
    personalized: ClassVar[bool] = True
    codes_comparable: ClassVar[bool] = False

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """The hash layers, unless all is shared."""
        names = list(model.state_dict())
        return hash_layers(names) if self.params.share == "hash" else names

    def init_server(self, model: nn.Module, info: Any) -> ServerState:  # noqa: ANN401  as the base has it
        """Knows the shared parameters only."""
        params = params_of(model)
        return ServerState(params={name: params[name] for name in self.shared_parameters(model)})

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Installs the own private layers and the shared ones with the residual; a phase to share, a phase to keep."""
        self._install(context)
        context.forget("end")
        context.keep("start", {name: context.model.state_dict()[name] for name in context.payload.params})
        order = torch.randperm(len(context.data), generator=context.generator).numpy()
        held = round(self.params.enhance_fraction * len(order)) if len(order) > 1 else 0
        phases = [Phase(name="train", model=context.model, epochs=context.epochs, rows=np.sort(order[held:]))]
        if held:
            phases.append(
                Phase(
                    name="enhance",
                    model=context.model,
                    epochs=context.epochs,
                    rows=np.sort(order[:held]),
                    begin=lambda: self._remember(context),
                )
            )
        return phases

    def _install(self, context: SiloContext) -> None:
        own, start, end = (context.kept(name) for name in ("model", "start", "end"))
        shared = dict(context.payload.params)
        for name in shared.keys() & start.keys() & end.keys():
            if np.issubdtype(shared[name].dtype, np.floating):
                move = self.params.residual * (end[name] - start[name])
                shared[name] = (shared[name] + move).astype(shared[name].dtype)
        install(context.model, {**(own or context.initial), **shared})

    def _remember(self, context: SiloContext) -> None:
        """Keeps the shared layers and the loss as they are when they leave, before the model is improved for itself."""
        state = context.model.state_dict()
        context.keep("end", {name: state[name] for name in context.payload.params})
        context.forget("loss")
        if math.isfinite(context.mean_loss):
            steps = sum(context.steps_taken.values()) if self.params.loss_reduction == "sum" else 1
            context.keep("loss", {"value": torch.tensor(context.mean_loss * steps)})

    def silo_statistics(self, context: SiloContext) -> Arrays:
        """Returns what the weights need to know of all silos together; also keeps the improved model."""
        if not context.kept("end"):
            self._remember(context)
        context.keep("model", context.model.state_dict())
        items, classes, loss, silos = self._facts(context) or (0.0, 0.0, 0.0, 0.0)
        facts = {"items": items, "classes": classes, "items_classes": items * classes, "loss": loss, "silos": silos}
        return {name: np.asarray(value) for name, value in facts.items()}

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Sends the sums back."""
        return {f"all_{name}": array for name, array in sums.items()}

    def _facts(self, context: SiloContext) -> tuple[float, float, float, float] | None:
        """Returns the number of items, of classes, the loss with which the update was made, and 1; None without a loss."""
        loss = context.kept("loss")
        if not loss:
            return None
        classes = float((context.data.class_counts() > 0).sum())
        return float(len(context.data)), classes, float(loss["value"]), 1.0

    def weight(self, context: SiloContext, group: str) -> float:
        """Returns the silo's weight q, not yet divided by the sum over silos; 0 without the group's modality or a loss."""
        if not super().weight(context, group):
            return 0.0
        if self.params.weighting == "uniform":
            return 1.0
        facts = self._facts(context)
        if facts is None:
            return 0.0
        items, classes, loss, _ = facts
        total = {name: float(context.payload.extras[f"all_{name}"]) for name in ("items", "classes", "loss", "silos")}
        share = data_share(items, classes, all_items=total["items"], all_classes=total["classes"])
        easy = loss_term(loss, total["loss"] / total["silos"])
        if self.params.weighting == "additive":
            return float(math.exp(share) + self.params.loss_factor * easy)
        products = float(context.payload.extras["all_items_classes"])
        return math.exp(items * classes / max(products, 1.0) + self.params.loss_factor * easy)

    def silo_update(self, context: SiloContext) -> Message:
        """Sends the shared layers as they were before the model was improved for itself."""
        improved = params_of(context.model)
        install(context.model, context.kept("end"))
        update = super().silo_update(context)
        install(context.model, improved)
        return update

    def personalize(self, context: SiloContext) -> None:
        """Takes the improved model of the silo's last round."""
        install(context.model, context.kept("model") or {**context.initial, **context.payload.params})
