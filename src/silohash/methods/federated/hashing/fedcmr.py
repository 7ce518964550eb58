"""Federated cross-modal retrieval in which silos share only each tower's hash layer.

The hash layer takes the place of the paper's layer that forms the common space. The server weights silos by their data
and their training loss. A silo adds a part of its previous update to the layer it receives, and afterwards improves its
own model on held-out pairs. The phase that trains the shared layer does not use these pairs in any way, so the local
method does not compare a batch with them either.

===========  ==============================  ===================================================
paper        code                            meaning
===========  ==============================  ===================================================
W            `Traits.shares`                 shared layer
S^k          `data_share`                    share of the items times share of the classes
V^k          `loss_term`                     decreases with the loss relative to the mean loss
alpha        ``loss_factor``                 weight of V^k
gamma        ``residual``                    part of the previous update that is added
===========  ==============================  ===================================================

The weight of a silo is `FedCMR.weight`; the layer with the residual is installed by `FedCMR.begin_round`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from silohash.base.types import Arrays, MethodCard, Phase
from silohash.methods.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.local.base import MethodParams
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import install, params_of

CARD = MethodCard(
    key="fedcmr",
    title="FedCMR: Federated Cross-Modal Retrieval",
    authors="Linlin Zong, Qiujie Xie, Jiahui Zhou, Peiran Wu, Xianchao Zhang, Bo Xu",
    venue="SIGIR",
    year=2021,
    link="https://doi.org/10.1145/3404835.3462989",
    summary="Share only the hash layers, weighted by size, classes and loss. Each silo then fine-tunes its model.",
    supervised=True,
    sends=("parameters of the hash layers", "numbers of items and classes", "training loss"),
    keeps=("all parameters before the hash layers",),
    differs_from_paper=(
        "The equations follow a published summary and the authors' code, because the paper itself was not available.",
        "The hash layers are the shared layers.",
        "Losses are means, so that large silos are not at a disadvantage. The authors' code sums them over batches.",
        "The residual is added, as in the paper. The authors' code subtracts it and weights losses by a factor of 100.",
        "Weights are computed from sums over the silos, which are exchanged first.",
        "A silo without a training step has no loss and no weight, unless all weights are equal.",
    ),
)


class FedCMRParams(MethodParams):
    """Parameters of FedCMR."""

    without_effect: ClassVar = MethodParams.switched_off("loss_factor", "loss_reduction", weighting=("uniform",))

    weighting: Literal["additive", "softmax", "uniform"] = "additive"
    """`additive`: exp(S) + loss_factor V. `softmax`: exp(S / sum S + loss_factor V), as in the authors' code.
    `uniform`: equal weights."""
    loss_factor: float = Field(default=1.0, ge=0, le=100)
    """Weight of the loss term V (alpha in the paper), between 0 and 100. At 0 the loss has no influence."""
    loss_reduction: Literal["mean", "sum"] = "mean"
    """Reduction of the losses over batches: `mean`, or `sum` as in the authors' code, which puts silos with many
    batches at a disadvantage."""
    residual: float = Field(default=0.5, ge=-1, le=1)
    """Fraction of the silo's previous update that is added to the shared layer (gamma in the paper), between -1 and 1.
    At 0 none is added."""
    enhance_fraction: float = Field(default=0.2, ge=0, lt=1)
    """Share of the silo's pairs held out to improve the silo's own model after its update, from 0 to below 1. The update
    itself does not use these pairs. At 0 this phase is skipped."""
    share: Literal["hash", "all"] = "hash"
    """Shared parameters: the hash layers (`hash`) or all parameters (`all`)."""


def data_share(items: float, classes: float, *, all_items: float, all_classes: float) -> float:
    """Return S: the silo's share of all items times its share of all classes, at most 1.

    It can only exceed 1 if the sums over the silos are wrong, or replaced by medians under a robust rule.
    """
    return min(1.0, items / max(all_items, 1.0) * classes / max(all_classes, 1.0))


def loss_term(loss: float, mean_loss: float) -> float:
    """Return V, ``exp(-exp(loss / mean_loss))``. It decreases as the silo's loss grows."""
    return math.exp(-math.exp(min(loss / mean_loss, 50.0))) if mean_loss > 0 else math.exp(-math.e)


class FedCMR(FederatedMethod[FedCMRParams]):
    """Sharing of the hash layers, with weights from sizes, classes and losses."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {},
        "authors_code": {"weighting": "softmax", "loss_factor": 100.0, "loss_reduction": "sum", "residual": -0.5},
    }
    traits = Traits(
        needs_labels=True, personalized=True, codes_comparable=False, weights_known="with update", weighting="weighting",
        means=(
            *(SharedMean(name, "silos", low=0.0, most=1.0) for name in ("items", "classes", "items_classes")),
            SharedMean("loss", "silos", most=1.0),
        ),
    )  # fmt: skip

    def chosen_traits(self) -> Traits:
        """State which layers silos share, and the largest weight: no silo has more than all items, and V is at most 1."""
        additive = math.e + self.params.loss_factor
        largest = {"additive": additive, "softmax": math.exp(1.0 + self.params.loss_factor), "uniform": 1.0}
        return replace(self.traits, shares=self.params.share, largest_weight=largest[self.params.weighting])

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install private parameters and shared ones with the residual, and return a phase before and after the update."""
        own, start, end = (context.kept(name) for name in ("model", "start", "end"))
        shared = dict(context.payload.params)
        for name in shared.keys() & start.keys() & end.keys():
            if np.issubdtype(shared[name].dtype, np.floating):
                change = self.params.residual * (end[name] - start[name])
                shared[name] = (shared[name] + change).astype(shared[name].dtype)
        install(context.model, {**(own or context.initial), **shared})
        context.forget("end")
        context.keep("start", {name: context.model.state_dict()[name] for name in context.payload.params})
        order = torch.randperm(len(context.data), generator=context.generator).numpy()
        held = round(self.params.enhance_fraction * len(order)) if len(order) > 1 else 0
        phase = partial(Phase, model=context.model, epochs=context.epochs)
        phases = [phase(name="train", rows=np.sort(order[held:]), hides_other_rows=held > 0)]
        if held:
            begin = partial(self._remember, context)
            phases.append(phase(name="enhance", rows=np.sort(order[:held]), begin=begin))
        return phases

    def _remember(self, context: SiloContext) -> None:
        state = context.model.state_dict()
        context.keep("end", {name: state[name] for name in context.payload.params})
        context.forget("loss")
        if math.isfinite(context.mean_loss):
            steps = sum(context.steps_taken.values()) if self.params.loss_reduction == "sum" else 1
            context.keep("loss", {"value": torch.tensor(context.mean_loss * steps)})

    def statistics(self, context: SiloContext) -> Arrays:
        """Return the quantities from which weights are computed, and keep the improved model."""
        if not context.kept("end"):
            self._remember(context)
        context.keep("model", context.model.state_dict())
        return {name: np.asarray(value) for name, value in self._facts(context).items()}

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Return the sums over the silos."""
        return {f"all_{name}": array for name, array in sums.items()}

    def _facts(self, context: SiloContext) -> dict[str, float]:
        """Return the numbers of items and classes, the loss of the update, and 1 silo; zeros without a finite loss."""
        loss = context.kept("loss")
        if not loss:
            return dict.fromkeys(("items", "classes", "items_classes", "loss", "silos"), 0.0)
        items, classes = float(len(context.data)), float((context.data.class_counts() > 0).sum())
        facts = {"items": items, "classes": classes, "items_classes": items * classes}
        return {**facts, "loss": float(loss["value"]), "silos": 1.0}

    def weight(self, context: SiloContext, group: str) -> float:
        """Return the silo's weight q, not yet normalized; 0 without the group's modality or a finite loss."""
        if not super().weight(context, group):
            return 0.0
        if self.params.weighting == "uniform":
            return 1.0
        own = self._facts(context)
        if not own["silos"]:
            return 0.0
        extras = context.payload.extras.items()
        total = {name.removeprefix("all_"): float(array) for name, array in extras if name.startswith("all_")}
        easy = self.params.loss_factor * loss_term(own["loss"], total["loss"] / total["silos"])
        if self.params.weighting == "softmax":
            return math.exp(min(1.0, own["items_classes"] / max(total["items_classes"], 1.0)) + easy)
        share = data_share(own["items"], own["classes"], all_items=total["items"], all_classes=total["classes"])
        return float(math.exp(share) + easy)

    def update(self, context: SiloContext) -> Message:
        """Send the shared layers as they were before the silo improved its own model."""
        improved = params_of(context.model)
        install(context.model, context.kept("end"))
        update = super().update(context)
        # the update shares the memory of the model, into which the improved parameters are put back
        update = replace(update, params={name: array.copy() for name, array in update.params.items()})
        install(context.model, improved)
        return update

    def personalize(self, context: SiloContext) -> None:
        """Install the improved model of the silo's last round."""
        install(context.model, context.kept("model") or {**context.initial, **context.payload.params})
