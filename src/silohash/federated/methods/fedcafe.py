"""FedCAFE: Federated Cross-Modal Hashing with Adaptive Feature Enhancement. ACM Multimedia 2024.

The server keeps a memory of one code direction a class. Every tower also predicts an item's classes, draws the directions
of those classes from the memory, and adds them to its own output, bit by bit as strongly as the output itself is sure. The
memory is part of the encoder: codes of another memory are codes of another model.

==========  =================================  =====================================================
paper       code                               meaning
==========  =================================  =====================================================
P_g         ``extras["memory"]``               the common memory, ``(C, K)``
P_k         ``records["memory"]``              a silo's memory
O           ``outputs.logit``                  the plain output
V_E         `enhanced`                         the enhanced output, of which the signs are the code
L_E         ``enhance_weight`` (alpha)         keeps the enhanced output near the plain one
L_C         ``consistency_weight`` (eta)       keeps it near the global model's
L_P         ``class_weight`` (gamma)           teaches the class prediction
Sim_k       `memory_likelihood`                a memory's distance from the common one
alpha_k     `silo_weights`, `self_weight`       weights that grow with it
==========  =================================  =====================================================

Equations (3) and (4) are `enhanced`, (5) and (6) `silohash.federated.contrastive_losses.cosine_gap`, (7) `class_loss`,
(9) and (10) stand in `silohash.federated.class_memory`.

Differs from the paper: rows of the memory are seeded with class means, so that row c is class c as the equations assume. The
divergence of (7) is infinite where a label is zero; its other direction is taken. Weights are likelihoods divided by their
sum, since their softmax overflows, and no weight exceeds three times the mean. ``memory = "class_mean"`` needs only sums of
all silos, each of which weighs itself. Class rows leave a silo under the rules of release, free clusters only of as many
items; the cluster that grew from a class's mean may have fewer than the class. Preset ``reference`` follows the authors'
code: memories are clustered freely, rows match that share a cluster, the local method learns on plain outputs, an item
counts once for each of its labels, and the local method's loss is divided by the number of silos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.exchange.message import Message
from silohash.federated.base import Adapted, FederatedMethod, FederationInfo, ServerState, SiloContext, received_extra
from silohash.federated.class_memory import common_memory, memories_of, memory_likelihood, self_weight, silo_weights
from silohash.federated.clustering import aligned, cluster_sizes, shared_clusters, spherical_kmeans
from silohash.federated.contrastive_losses import cosine_gap
from silohash.federated.statistics import ClassStatistics, ReleaseParams, class_statistics, mean_over_modalities
from silohash.local.base import MethodParams, outputs_of
from silohash.types import Arrays, MethodCard, Modality, Outputs, PairBatch, Terms

CARD = MethodCard(
    key="fedcafe",
    title="FedCAFE: Federated Cross-Modal Hashing with Adaptive Feature Enhancement",
    authors="",
    venue="ACM Multimedia",
    year=2024,
    link="https://doi.org/10.1145/3664647.3681319",
    summary="Outputs are enhanced by a common memory of class directions, which is part of the encoder.",
    supervised=True,
    sends=("parameters", "number of items", "a direction a class, or sums and counts a class"),
    differs_from_paper=(
        "memory rows are seeded with class means, so that row c is class c",
        "the class loss takes the finite direction of the divergence",
        "weights are likelihoods divided by their sum, at most three times the mean",
    ),
)


class FedCAFEParams(ReleaseParams):
    """Parameters of FedCAFE."""

    enhance_weight: float = Field(default=0.1, ge=0)
    """alpha, of L_E: keeps the enhanced output near the plain one."""
    consistency_weight: float = Field(default=0.1, ge=0)
    """eta, of L_C: keeps the enhanced output near the global model's."""
    class_weight: float = Field(default=1.0, ge=0)
    """gamma, of L_P: teaches the class prediction."""
    enhance: bool = True
    """Whether outputs are enhanced; without it the memory plays no part (an ablation)."""
    memory: Literal["kmeans", "class_mean", "reference"] = "kmeans"
    """How memories are made: k-means seeded with class means, class means alone, or free k-means as in the code."""
    align: bool = True
    """Whether freely clustered rows are matched to the rows before."""
    matching: Literal["class", "cluster"] = "class"
    """S of (9), which rows of a silo's memory match which common ones: those of the same class, or of the same cluster of
    k-means over all memories, as in the code; a silo that weighs itself clusters its own with the common one."""
    weighting: Literal["memory", "examples"] = "memory"
    """`memory`: by how far a silo's memory is from the common one; `examples`: by the number of items."""
    sharpness: float = Field(default=1.0, gt=0)
    """T_w: the weights are likelihoods to the power 1 / T_w."""
    likelihood_cap: float = Field(default=3.0, ge=1)
    """No silo weighs more than so many times the mean; one that weighs itself, than so many times a silo of rows unlike any
    other, whose likelihood is ln 2."""
    hash_on: Literal["enhanced", "raw"] = "enhanced"
    """What the local method learns on: the enhanced output, or the plain one as in the code. What it remembers of an item,
    enhanced in the code throughout, is then so until a step renews it."""
    label_shares: bool = True
    """Whether an item's labels add up to 1 in L_P; in the code each of them counts 1."""
    reduction: Literal["mean", "batchmean"] = "mean"
    """`mean`: L_P is divided by the number of classes, as in the code; `batchmean`: it is not, which makes it C times as
    large."""
    times_silos: bool = False
    """Whether alpha, eta and gamma are multiplied by the number of silos: for Adam the same as to divide the local method's
    loss by it, as the code does; for plain gradient steps the learning rate has to be divided too."""
    detach_target: bool = False
    """Whether L_E moves the enhanced output only."""
    kmeans_steps: int = Field(default=10, ge=0)
    """Steps of k-means."""


def enhanced(logit: Tensor, class_logit: Tensor, memory: Tensor) -> Tensor:
    """Returns the outputs with what they draw from the memory, ``(B, K)``; the plain outputs where the memory is zero.

    Where no entry of the memory is beyond 1, as with unit rows, every output keeps its sign, since tanh is never larger than
    its argument: the memory then shapes what is learnt, and no code.

    Args:
        logit: ``(B, K)``.
        class_logit: ``(B, C)``.
        memory: ``(C, K)``.

    Source: FedCAFE, equations (3) and (4).
    """
    return logit + torch.tanh(logit) * (torch.softmax(class_logit, dim=1) @ memory)


def class_loss(
    class_logit: Tensor, labels: Tensor, *, shared: bool = True, reduction: Literal["mean", "batchmean"] = "mean"
) -> Tensor:
    """Returns the cross-entropy between an item's labels, evenly weighted, and its prediction, ``(B,)``.

    Args:
        class_logit: ``(B, C)``.
        labels: ``(B, C)`` multi-hot; a row without labels gives 0.
        shared: whether an item's labels add up to 1, or count 1 each.
        reduction: ``mean`` over the classes, or ``batchmean``, their sum.

    Source: FedCAFE, equation (7), in the direction that is finite.
    """
    shares = F.normalize(labels, p=1.0, dim=1) if shared else labels
    losses = -(shares * F.log_softmax(class_logit, dim=1).clamp(min=-18.42))
    return losses.mean(1) if reduction == "mean" else losses.sum(1)


class Enhanced(Adapted):
    """A model of which the hash layer's outputs are V_E: enhanced, and not yet squashed where towers end in a tanh."""

    method: FedCAFE

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Runs the model and enhances the hash layer's outputs."""
        outputs: Outputs = self.model(batch, modalities)
        return replace(outputs, logit=self.method.enhanced_outputs(outputs, self.extras["memory"]))


class FedCAFE(FederatedMethod):
    """Federated averaging with outputs enhanced by a common memory."""

    Params: ClassVar[type[MethodParams]] = FedCAFEParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {"reduction": "batchmean", "min_count": 1, "max_labels": 1000, "likelihood_cap": 1e9},
        "authors_code": {
            "hash_on": "raw", "label_shares": False, "times_silos": True,
            "memory": "reference", "align": False, "matching": "cluster", "min_count": 1, "likelihood_cap": 1e9,
        },
    }  # fmt: skip
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "weight": {"weighting": "examples"},
        "silo_update": {"weighting": "examples"},
        "aggregate": {"weighting": "examples"},
    }
    needs_labels: ClassVar[bool] = True
    class_head: ClassVar[bool] = True
    uplink: ClassVar[Literal["sum", "records"]] = "records"
    encode_extras: ClassVar[tuple[str, ...]] = ("memory",)

    def __init__(self, params: FedCAFEParams) -> None:
        super().__init__(params)
        if params.memory == "class_mean":
            vars(self)["uplink"] = "sum"  # the other memories are made of each silo's own

    @property
    def adapts_training(self) -> bool:
        """Whether the local method learns on enhanced outputs."""
        return bool(self.params.hash_on == "enhanced")

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Starts with an empty memory, which enhances nothing."""
        extras: Arrays = {"memory": np.zeros((info.classes, info.bits), np.float32)}
        if self.params.times_silos:
            extras["silos"] = np.asarray(info.silos, np.float32)
        return replace(super().init_server(model, info), extras=extras)

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Enhances every modality's output. Source: equations (3) and (4)."""
        if not self.params.enhance:
            return outputs
        values = self.enhanced_outputs(outputs, extras["memory"])
        squashed = {modality: outputs.code[modality] is not logit for modality, logit in outputs.logit.items()}
        return replace(outputs, code={m: torch.tanh(v) if squashed[m] else v for m, v in values.items()})

    def enhanced_outputs(self, outputs: Outputs, memory: Tensor) -> Mapping[Modality, Tensor]:
        """Returns V_E of every modality, ``(B, K)``; the plain outputs where nothing is enhanced."""
        if not self.params.enhance:
            return outputs.logit
        return {m: enhanced(logit, outputs.class_logit[m], memory) for m, logit in outputs.logit.items()}

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns L_E, L_C and L_P of the step's modalities. Source: equations (5) to (8)."""
        assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
        memory = received_extra(context, "memory")
        frozen = self._frozen(context) if self.params.consistency_weight else {}
        parts: dict[str, list[Tensor]] = {"enhance": [], "consistency": [], "class": []}
        for modality, logit in outputs.logit.items():
            held = batch.rows_with(modality)
            logit, predicted = logit[held], outputs.class_logit[modality][held]
            if not len(logit):
                continue
            values = enhanced(logit, predicted, memory) if self.params.enhance else logit
            target = logit.detach() if self.params.detach_target else logit
            parts["enhance"].append(cosine_gap(values, target).mean())
            shared, reduction = self.params.label_shares, self.params.reduction
            parts["class"].append(class_loss(predicted, batch.labels[held], shared=shared, reduction=reduction).mean())
            gaps = [
                cosine_gap(values, other[batch.row[held]])[there].mean()
                for name, other in frozen.items()
                if (there := batch.has(name)[held]).any()
            ]
            if gaps:
                parts["consistency"].append(torch.stack(gaps).mean())
        times = float(context.payload.extras["silos"]) if self.params.times_silos else 1.0
        weights = {
            "enhance": times * self.params.enhance_weight if self.params.enhance and bool(memory.any()) else 0.0,
            "consistency": times * self.params.consistency_weight,
            "class": times * self.params.class_weight,
        }
        return {
            name: (weights[name], torch.stack(found).sum()) for name, found in parts.items() if found and weights[name]
        }

    def _frozen(self, context: SiloContext) -> dict[Any, Tensor]:
        """Returns the global model's V_E of all own items."""
        return context.frozen_outputs(
            "global, enhanced", lambda: Enhanced(context.global_model, self, context.payload.extras)
        )

    def _statistics(self, context: SiloContext) -> tuple[Tensor, ClassStatistics]:
        """Returns unit directions of the items' V_E ``(n, K)``, and what may leave of them a class.

        Items of which the model can see nothing are left out.
        """
        assert context.data.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
        values = outputs_of(Enhanced(context.model, self, context.payload.extras), context.data, part="logit")
        has = {modality: context.data.has(modality) for modality in values}
        held = torch.stack(list(has.values())).any(0)
        directions = F.normalize(mean_over_modalities(values, has)[held], dim=1)
        return directions, class_statistics(directions, context.data.labels[held], self.params)

    def _local_memory(self, context: SiloContext) -> tuple[Tensor, Tensor]:
        """Returns the silo's memory ``(C, K)`` and which rows there are ``(C,)``."""
        directions, statistics = self._statistics(context)
        seeds = F.normalize(statistics.means(), dim=1)
        if self.params.memory != "reference":
            return spherical_kmeans(directions, seeds, steps=self.params.kmeans_steps), statistics.present()
        drawn = torch.randperm(len(directions), generator=context.generator)[: len(seeds)]
        rows = spherical_kmeans(directions, directions[drawn], steps=self.params.kmeans_steps)
        released = cluster_sizes(directions, rows) >= self.params.min_count
        memory = torch.zeros_like(seeds)
        memory[: len(rows)][released] = rows[released]
        return memory, memory.abs().sum(1) > 0

    def silo_statistics(self, context: SiloContext) -> Arrays:
        """Returns class sums and counts, where the memory is made of them alone."""
        if self.params.memory != "class_mean" or not len(context.data):
            return {}
        _, statistics = self._statistics(context)
        context.keep("class", {"sum": statistics.sums, "count": statistics.counts})
        return {"sum": statistics.sums.cpu().numpy(), "count": statistics.counts.cpu().numpy()}

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Returns the common memory of all silos' sums; classes that nobody released keep their row."""
        rows = ClassStatistics(torch.from_numpy(np.array(sums["sum"])), torch.from_numpy(np.array(sums["count"])))
        return {"memory": common_memory(F.normalize(rows.means(), dim=1).numpy(), server.extras["memory"])}

    def silo_update(self, context: SiloContext) -> Message:
        """Sends the silo's memory; where it was summed already, only parameters, weighted by the silo itself."""
        update = super().silo_update(context)
        if not len(context.data):
            return update
        if self.params.memory != "class_mean":
            memory, present = self._local_memory(context)
            return replace(update, records={"memory": memory.cpu().numpy(), "mask": present.cpu().numpy()})
        kept = context.kept("class")
        context.forget("class")
        if self.params.weighting == "examples":
            return update
        statistics = ClassStatistics(torch.from_numpy(kept["sum"]), torch.from_numpy(kept["count"]))
        own = F.normalize(statistics.means(), dim=1)
        (likelihood,) = self._likelihoods(received_extra(context, "memory").cpu(), [own], [statistics.present()])
        share = self_weight(likelihood, sharpness=self.params.sharpness, cap=self.params.likelihood_cap)
        return replace(update, weights={group: share * (weight > 0) for group, weight in update.weights.items()})

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Makes the common memory, then averages by the silos' distance from it. Source: equations (9) and (10)."""
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
        """Returns each memory's mean negative log-likelihood; clusters are those of the common and all given rows."""
        same: Sequence[Tensor | None] = [None] * len(memories)
        if self.params.matching == "cluster":
            rows = [memory[mask] for memory, mask in zip(memories, masks, strict=True)]
            joined = shared_clusters(torch.cat(rows), common, steps=self.params.kmeans_steps)
            same = torch.split_with_sizes(joined, [len(own) for own in rows])
        given = zip(memories, masks, same, strict=True)
        return [float(memory_likelihood(memory, common, mask, own)) for memory, mask, own in given]

    def _merged(self, before: np.ndarray, updates: Sequence[Message]) -> np.ndarray:
        """Returns the common memory of the silos' memories."""
        memories, masks = memories_of(updates)
        rows = torch.cat([memory[mask] for memory, mask in zip(memories, masks, strict=True)])
        if not len(rows):
            return before
        if self.params.memory == "reference":
            drawn = rows[torch.linspace(0, len(rows) - 1, len(before)).long()]
            clustered = spherical_kmeans(rows, drawn, steps=self.params.kmeans_steps).numpy()
            return aligned(clustered, before) if self.params.align else clustered
        stacked, there = torch.stack(memories), torch.stack(masks).to(rows.dtype).unsqueeze(2)
        seeds = F.normalize((stacked * there).sum(0), dim=1)
        return common_memory(spherical_kmeans(rows, seeds, steps=self.params.kmeans_steps).numpy(), before)
