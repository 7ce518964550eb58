"""Federated averaging with outputs enhanced by a shared memory that holds one code direction per class.

Every tower also predicts an item's classes, retrieves their directions from the memory, and adds them to its output,
scaled per bit by the confidence of the output. The memory is part of the encoder: a different memory makes a different
model.

==========  =================================  =====================================================
paper       code                               meaning
==========  =================================  =====================================================
P_g         ``extras["memory"]``               common memory, ``(C, K)``
P_k         ``records["memory"]``              memory of a silo, ``(C, K)``
O           ``outputs.logit``                  plain output
V_E         `enhanced`                         enhanced output, whose signs are the code
L_E         ``enhance_weight`` (alpha)         keeps the enhanced output close to the plain one
L_C         ``consistency_weight`` (eta)       keeps it close to that of the global model
L_P         ``class_weight`` (gamma)           trains the class prediction
Sim_k       `memory_likelihood`                distance of a memory from the common one
alpha_k     `silo_weights`, `self_weight`      aggregation weight, which grows with the distance
==========  =================================  =====================================================

Equations (3) and (4) are `enhanced`, (5) and (6) are `cosine_gap`, (7) is `class_loss`, and (9) and (10) are in
`silohash.methods.federated.class_memory`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import Arrays, MethodCard, Modality, Outputs, PairBatch, Terms
from silohash.methods.federated import base
from silohash.methods.federated.class_memory import MemoryRows, common_memory, memories_of, self_weight, silo_weights
from silohash.methods.federated.shared_means import class_mean
from silohash.methods.federated.statistics import (
    ClassStatistics,
    ReleaseParams,
    class_statistics,
    mean_over_modalities,
    released,
    with_release,
)
from silohash.methods.local.base import labels_of, outputs_of
from silohash.methods.message import Message
from silohash.methods.traits import Traits, WeightsKnown
from silohash.models.towers import Adapted

CARD = MethodCard(
    key="fedcafe",
    title="FedCAFE: Federated Cross-Modal Hashing with Adaptive Feature Enhancement",
    authors="not stated (anonymous submission)",
    venue="ACM Multimedia",
    year=2024,
    link="https://doi.org/10.1145/3664647.3681319",
    summary="Add a shared memory of class directions to every encoder output, at training and at search time.",
    supervised=True,
    sends=("parameters", "number of items", "one direction or mean per class, or per-class sums and counts"),
    differs_from_paper=(
        "Memory rows are seeded with class means, so that row c belongs to class c, as the equations assume.",
        "Memory rows have length 1, as in the authors' code, except in the preset paper.",
        "A silo clusters the mean of an item's modalities. The paper clusters each modality and then both memories.",
        "The class loss uses the finite direction of the divergence, as the authors' code does.",
        "Weights are likelihoods divided by their sum, as in the authors' code; the printed softmax overflows.",
        "No weight exceeds three times the mean, except in the presets paper and authors_code.",
        "The class loss is divided by the number of classes, except in the preset paper.",
        "Only classes with enough items are released, except in the presets paper and authors_code.",
        "The authors' code clusters memories freely, matches rows of one cluster, trains the local method on plain"
        " outputs, counts each label of an item as 1, and divides the local loss by the number of silos. The preset"
        " authors_code multiplies the other losses instead, which is equivalent for AdamW, and for Adam without decay.",
    ),
)


class FedCAFEParams(ReleaseParams):
    """Parameters of FedCAFE."""

    without_effect: ClassVar = {
        **ReleaseParams.switched_off("enhance_weight", "hash_on", enhance=(False,)),
        "detach_target": {"enhance": (False,), "enhance_weight": (0,)},
        "align": {"memory": ("kmeans", "class_mean")},
        **ReleaseParams.switched_off("matching", "sharpness", "likelihood_cap", weighting=("examples",)),
        **ReleaseParams.switched_off("label_shares", "reduction", class_weight=(0,)),
    }

    enhance_weight: float = Field(default=0.1, ge=0)
    """Weight of L_E (alpha in the paper), which keeps the enhanced output close to the plain one, at least 0. At 0
    it is off."""
    consistency_weight: float = Field(default=0.1, ge=0)
    """Weight of L_C (eta in the paper), which keeps the enhanced output close to that of the global model, at least
    0. At 0 it is off."""
    class_weight: float = Field(default=1.0, ge=0)
    """Weight of L_P (gamma in the paper), which trains the class prediction, at least 0. At 0 it is off."""
    enhance: bool = True
    """Enhance outputs by the memory. If false, the memory has no effect on outputs (an ablation)."""
    memory: Literal["kmeans", "class_mean", "reference"] = "kmeans"
    """How memories are computed: `kmeans` (k-means seeded with class means), `class_mean` (class means only, from
    sums over silos), or `reference` (k-means with random seeds, as in the authors' code)."""
    memory_rows: Literal["unit", "mean"] = "unit"
    """`unit`: memory rows have length 1, as in the authors' code, so that enhancement changes no sign of an output.
    `mean`: they are means of enhanced outputs, as in the paper, which does not normalize them. Their values have no
    limit, so a silo's memory cannot be checked for impossible values."""
    align: bool = True
    """Reorder the common rows to match those of the previous round. Used with `memory = "reference"` only."""
    matching: Literal["class", "cluster"] = "class"
    """Which rows of a silo's memory should match which common rows (S in equation 9): those of the same `class`, or
    those in the same `cluster` of k-means over all memories, as in the authors' code. With `memory = "class_mean"` a
    silo clusters its own rows with the common ones."""
    weighting: Literal["memory", "examples"] = "memory"
    """`memory`: weight silos by the distance of their memory from the common one. `examples`: weight them by their
    number of items."""
    sharpness: float = Field(default=1.0, gt=0)
    """Temperature of the memory weights, positive: likelihoods are raised to the power of 1 / sharpness. Lower
    values favor the most different silo."""
    likelihood_cap: float = Field(default=3.0, ge=1)
    """Upper limit on a silo's memory weight, as a multiple of the mean weight, at least 1. With `memory =
    "class_mean"` it is a multiple of the weight of unrelated rows."""
    hash_on: Literal["enhanced", "raw"] = "enhanced"
    """Output that the local method is trained on: `enhanced`, or `raw` (the plain output) as in the authors' code.
    Outputs stored at the start of a round are enhanced until a step replaces them."""
    label_shares: bool = True
    """Normalize an item's labels in L_P to sum to 1. If false, each label counts as 1, as in the authors' code."""
    reduction: Literal["mean", "batchmean"] = "mean"
    """Reduction of L_P over classes: `mean`, as in the authors' code, or `batchmean` (their sum), which is larger by
    a factor of the number of classes."""
    times_silos: bool = False
    """Multiply the weights of L_E, L_C and L_P by the number of silos. The authors' code divides the local loss by
    that number, which gives the same ratio of the losses. The two are equivalent for `adamw`, and for `adam` without
    weight decay. With `sgd`, divide the learning rate by the number of silos, and multiply the weight decay by it. With
    `adam`, multiply the weight decay by it."""
    detach_target: bool = False
    """Let L_E change the enhanced output only, not the plain one."""
    kmeans_steps: int = Field(default=10, ge=0)
    """Number of k-means iterations, at least 0. At 0 the seeds are used."""


def enhanced(logit: Tensor, class_logit: Tensor, memory: Tensor) -> Tensor:
    """Return the outputs plus their part of the memory, ``(B, K)``. With a memory of zeros these are the plain outputs.

    If no entry of the memory ``(C, K)`` exceeds 1 in magnitude, as in unit rows, all outputs keep their signs, because tanh
    does not exceed its argument in magnitude. The memory then influences training but does not change codes. Rows that are
    means of outputs have larger entries, so they can.

    Source: FedCAFE, equations (3) and (4).
    """
    return logit + torch.tanh(logit) * (torch.softmax(class_logit, dim=1) @ memory)


def class_loss(
    class_logit: Tensor, labels: Tensor, *, shared: bool = True, reduction: Literal["mean", "batchmean"] = "mean"
) -> Tensor:
    """Return the cross-entropy between an item's multi-hot labels ``(B, C)`` and its class prediction, ``(B,)``.

    Labels are ``shared`` if they are normalized to sum to 1; otherwise each counts as 1. Losses are reduced to their
    ``mean`` over classes, or their sum (``batchmean``). A row without labels gives 0.

    Source: FedCAFE, equation (7), in the direction of the divergence that is finite.
    """
    shares = F.normalize(labels, p=1.0, dim=1) if shared else labels
    losses = -(shares * F.log_softmax(class_logit, dim=1).clamp(min=-18.42))
    return losses.mean(1) if reduction == "mean" else losses.sum(1)


def cosine_gap(values: Tensor, others: Tensor) -> Tensor:
    """Return one minus the cosine between corresponding rows, ``(B,)``. Source: FedCAFE, equations (5) and (6)."""
    return 1.0 - F.cosine_similarity(values, others, dim=1)


class Enhancement(base.Adapter):
    """The addition of the memory to the outputs of the towers."""

    def __init__(self, params: FedCAFEParams) -> None:
        self.enhances = params.enhance
        self.adapts_training = params.hash_on == "enhanced"

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Enhance the outputs of every modality. Source: equations (3) and (4)."""
        if not self.enhances:
            return outputs
        values = self.enhanced_outputs(outputs, extras["memory"])
        squashed = {modality: outputs.code[modality] is not logit for modality, logit in outputs.logit.items()}
        return replace(outputs, code={m: torch.tanh(v) if squashed[m] else v for m, v in values.items()})

    def enhanced_outputs(self, outputs: Outputs, memory: Tensor) -> Mapping[Modality, Tensor]:
        """Return V_E per modality, ``(B, K)``; the plain outputs if enhancement is off."""
        if not self.enhances:
            return outputs.logit
        return {m: enhanced(logit, outputs.class_logit[m], memory) for m, logit in outputs.logit.items()}


class Enhanced(Adapted):
    """A model that returns the enhanced outputs V_E as logits, before any tanh of the towers."""

    method: Enhancement

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Run the model and enhance the outputs of the hash layer."""
        outputs: Outputs = self.model(batch, modalities)
        return replace(outputs, logit=self.method.enhanced_outputs(outputs, self.extras["memory"]))


class FedCAFE(base.FederatedMethod[FedCAFEParams]):
    """Federated averaging with outputs enhanced by a shared memory."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "memory_rows": "mean", "reduction": "batchmean", "min_count": 1, "max_labels": 1000, "likelihood_cap": 1e9,
        },
        "authors_code": {
            "hash_on": "raw", "label_shares": False, "times_silos": True,
            "memory": "reference", "align": False, "matching": "cluster", "min_count": 1, "likelihood_cap": 1e9,
        },
    }  # fmt: skip
    traits = Traits(
        needs_labels=True, class_head=True, uplink="records", encode_extras=("memory",), weighting="weighting",
        means=(replace(class_mean("memory", "mask", like="memory"), unit=True, section="records"),),
        adds={hook: {"weighting": "examples"} for hook in ("weight", "update", "aggregate")},
    )  # fmt: skip

    def __init__(self, params: FedCAFEParams, run: base.RunFacts = base.NO_RUN) -> None:
        super().__init__(params, run)
        self.rows = MemoryRows(params.memory_rows, params.kmeans_steps)
        self.adapter: Enhancement = Enhancement(params)

    def chosen_traits(self) -> Traits:
        """State what the chosen memory and weights send, and its limits."""
        traits, by_mean = self.traits, self.params.memory == "class_mean"
        # k-means needs the memory of each silo, but class means follow from sums
        if by_mean:
            mean = replace(class_mean("sum", "count", like="memory"), unit=True)
            traits = replace(traits, uplink="sum", means=(mean,))
        # rows of length 1 have limits, but means of outputs have none
        if self.params.memory_rows == "mean":
            means = tuple(replace(m, unit=False, low=-math.inf, high=math.inf) for m in traits.means)
            traits = replace(traits, means=means)
        if self.params.memory == "reference":
            why = (
                'Memories with memory = "reference" have no common order of rows, so they cannot be compared. '
                'Use memory = "kmeans" or "class_mean".'
            )
            traits = replace(traits, unprotected=why)
        if self.params.weighting == "memory":
            known: WeightsKnown = "after statistics" if by_mean else "with update"
            cap = self.params.likelihood_cap if by_mean else None
            traits = replace(traits, weights_known=known, largest_weight=cap)
        return with_release(traits, self.params, by_class=self.params.memory != "reference")

    def init_server(self, model: nn.Module, info: base.FederationInfo) -> base.ServerState:
        """Start with a memory of zeros, which does not change outputs."""
        extras: Arrays = {"memory": np.zeros((info.classes, info.bits), np.float32)}
        if self.params.times_silos:
            extras["silos"] = np.asarray(info.silos, np.float32)
        return replace(super().init_server(model, info), extras=extras)

    def terms(self, context: base.SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return L_E, L_C and L_P of the step's modalities. Source: equations (5) to (8)."""
        memory = base.received_extra(context, "memory")
        frozen: Mapping[Modality, Tensor] = {}
        if self.params.consistency_weight:
            model = partial(Enhanced, context.global_model, self.adapter, context.payload.extras)
            frozen = context.frozen_outputs("global, enhanced", model)
        present = [modality for modality in outputs.logit if bool(batch.has(modality).any())]
        losses = [self._losses(batch, outputs, modality, memory, frozen) for modality in present]
        factor = float(context.payload.extras["silos"]) if self.params.times_silos else 1.0
        weights = {
            # zero without a memory and therefore left out
            "enhance": factor * self.params.enhance_weight if self.params.enhance and bool(memory.any()) else 0.0,
            "consistency": factor * self.params.consistency_weight,
            "class": factor * self.params.class_weight,
        }
        parts = {name: [loss[name] for loss in losses if name in loss] for name in weights}
        return base.summed_terms(weights, parts)

    def _losses(
        self, batch: PairBatch, outputs: Outputs, modality: Modality, memory: Tensor, frozen: Mapping[Modality, Tensor]
    ) -> dict[str, Tensor]:
        """Return the losses of one modality as scalars. L_C needs an item with a modality of the global model."""
        rows = batch.rows_with(modality)
        logit, predicted = outputs.logit[modality][rows], outputs.class_logit[modality][rows]
        values = enhanced(logit, predicted, memory) if self.params.enhance else logit
        target = logit.detach() if self.params.detach_target else logit
        shared, reduction = self.params.label_shares, self.params.reduction
        losses = {
            "enhance": cosine_gap(values, target).mean(),
            "class": class_loss(predicted, labels_of(batch)[rows], shared=shared, reduction=reduction).mean(),
        }
        gaps = [
            cosine_gap(values, other[batch.row[rows]])[has].mean()
            for name, other in frozen.items()
            if (has := batch.has(name)[rows]).any()
        ]
        if gaps:
            losses["consistency"] = torch.stack(gaps).mean()
        return losses

    def _points(self, context: base.SiloContext) -> tuple[Tensor, Tensor]:
        """Return V_E ``(n, K)``, of length 1 for unit rows, and labels ``(n, C)`` of the items that have a modality."""
        values = outputs_of(Enhanced(context.model, self.adapter, context.payload.extras), context.data, part="logit")
        has = {modality: context.data.has(modality) for modality in values}
        held = torch.stack(list(has.values())).any(0)
        return self.rows.scaled(mean_over_modalities(values, has)[held]), labels_of(context.data)[held]

    def _local_memory(self, context: base.SiloContext) -> tuple[Tensor, Tensor]:
        """Return the silo's memory ``(C, K)`` and a mask of its existing rows ``(C,)`` bool."""
        points, labels = self._points(context)
        if self.params.memory == "reference":
            least, classes = self.params.min_count, labels.shape[1]
            memory = self.rows.free(points, classes, least=least, generator=context.generator)
            return memory, memory.abs().sum(1) > 0
        statistics = class_statistics(points, labels, self.params)
        return self.rows.clustered(points, self.rows.scaled(statistics.means())), statistics.present()

    def statistics(self, context: base.SiloContext) -> Arrays:
        """Return class sums and counts if the memory consists of class means only.

        A silo that releases no class sends zeros without running the model.
        """
        labels = context.data.labels
        if self.params.memory != "class_mean" or labels is None or not len(context.data):
            return {}
        statistics = ClassStatistics.none(context.payload.extras["memory"], labels)
        if released(labels, self.params).any():
            statistics = class_statistics(*self._points(context), self.params)
        context.keep("class", {"sum": statistics.sums, "count": statistics.counts})
        return {"sum": statistics.sums.cpu().numpy(), "count": statistics.counts.cpu().numpy()}

    def merge_statistics(self, server: base.ServerState, sums: Arrays) -> Arrays:
        """Return the common memory. Classes that no silo released keep their rows."""
        rows = ClassStatistics(torch.from_numpy(np.array(sums["sum"])), torch.from_numpy(np.array(sums["count"])))
        return {"memory": common_memory(self.rows.scaled(rows.means()).numpy(), server.extras["memory"])}

    def update(self, context: base.SiloContext) -> Message:
        """Send the silo's memory with the parameters; with class means, send self-weighted parameters."""
        update = super().update(context)
        if not len(context.data):
            return update
        if self.params.memory != "class_mean":
            memory, present = self._local_memory(context)
            return replace(update, records={"memory": memory.cpu().numpy(), "mask": present.cpu().numpy()})
        context.forget("class")
        return update

    def weight(self, context: base.SiloContext, group: str) -> float:
        """Return a silo's weight. With class means, it depends on the silo's distance from the common memory."""
        weight, kept = super().weight(context, group), context.kept("class")
        if self.traits.weights_known != "after statistics" or not kept:
            return weight
        statistics = ClassStatistics(torch.from_numpy(kept["sum"]), torch.from_numpy(kept["count"]))
        means = self.rows.scaled(statistics.means())
        (likelihood,) = self._likelihoods(base.received_extra(context, "memory").cpu(), [means], [statistics.present()])
        share = self_weight(likelihood, sharpness=self.params.sharpness, cap=self.params.likelihood_cap)
        return share * (weight > 0)

    def aggregate(self, server: base.ServerState, updates: Sequence[Message]) -> base.ServerState:
        """Compute the common memory and average by the silos' distances from it. Source: equations (9) and (10)."""
        held = [update for update in updates if "memory" in update.records]
        if not held:
            return super().aggregate(server, updates)
        memory = self._merged(server.extras["memory"], held)
        server = replace(server, extras={**server.extras, "memory": memory})
        if self.params.weighting == "examples":
            return super().aggregate(server, updates)
        common = torch.from_numpy(memory)
        likelihoods = self._likelihoods(common, *memories_of(held))
        shares = silo_weights(likelihoods, sharpness=self.params.sharpness, cap=self.params.likelihood_cap)
        weighted = [
            replace(update, weights={group: float(share) * (weight > 0) for group, weight in update.weights.items()})
            for update, share in zip(held, shares, strict=True)
        ]
        return super().aggregate(server, weighted)

    def _likelihoods(self, common: Tensor, memories: Sequence[Tensor], masks: Sequence[Tensor]) -> list[float]:
        return self.rows.likelihoods(common, memories, masks, by_cluster=self.params.matching == "cluster")

    def _merged(self, before: np.ndarray, updates: Sequence[Message]) -> np.ndarray:
        memories, masks = memories_of(updates)
        if not any(mask.any() for mask in masks):
            return before
        if self.params.memory == "reference":
            return self.rows.merged_freely(memories, masks, before, align=self.params.align)
        return common_memory(self.rows.merged(memories, masks).numpy(), before)
