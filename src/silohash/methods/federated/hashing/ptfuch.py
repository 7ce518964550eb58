"""Federated averaging with prototypes of clusters, which a private model finds and all silos share. No labels are needed.

Every silo has two models. The private one stays in the silo. It learns clusters of the silo's items, and keeps the
similarities of its codes close to those of the global model. The shared one is averaged over the silos. It assigns both
modalities of an item softly to the prototypes of all silos and to those of the silo, and the assignments should agree.

==========  ================================  ==================================================================
symbol      code                              meaning
==========  ================================  ==================================================================
theta       ``context.model``                 shared model
phi         ``kept("private")``               private model of the silo
o^x, o^y    ``outputs.logit``                 outputs of the hash layers, ``(B, K)``
C, a        `cluster_loss`                    centroids of the latest items, and the centroid of each item
L_clu       `cluster_loss`                    classification of items by their centroid
L_rel       `relation_loss`                   distance of the similarities of codes from those of the global model
P_k         ``kept("prototypes")``            prototypes of the silo: centroids of its items, ``(M, K)``
P_g         ``extras["prototypes"]``          prototypes of all silos, ``(M, K)``
JS(P)       `agreement_loss`                  disagreement of the two assignments of an item to prototypes
t, t_2      ``temperature``,                  divide the cosines of outputs and prototypes, in the assignments
            ``target_temperature``            and in their common target
==========  ================================  ==================================================================

A round has a phase for the private model, whose terms are `PTFUCH._private_terms`, and one for the shared model, whose
terms are `PTFUCH._shared_terms`. Between them, the silo computes P_k.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import Arrays, MethodCard, Modality, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext, received_extra
from silohash.methods.federated.clustering import cluster_sizes, kmeans, nearest
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.federated.statistics import mean_over_modalities
from silohash.methods.local.base import MethodParams, outputs_of
from silohash.methods.message import Message
from silohash.methods.traits import Release, Traits
from silohash.models.parameters import install

CARD = MethodCard(
    key="ptfuch",
    title="Prototype-guided Knowledge Transfer for Federated Unsupervised Cross-modal Hashing",
    authors="Jingzhi Li, Fengling Li, Lei Zhu, Hui Cui, Jingjing Li",
    venue="ACM Multimedia",
    year=2023,
    link="https://doi.org/10.1145/3581783.3613837",
    summary="Align soft assignments to the prototypes of clusters, which each silo finds with a private model.",
    sends=("parameters", "one mean direction per cluster, and which clusters exist"),
    keeps=("a private model",),
    differs_from_paper=(
        "The equations follow the authors' code, because the method section of the paper was not available.",
        "The authors train ucch. Any local method with towers can take its place.",
        "The private model learns the clusters of the items that it saw last. In the authors' code, the store of these items"
        " starts with zeros, which form a cluster of their own in silos with fewer items than it holds.",
        "A silo seeks at most one cluster per min_count items, and shares those with at least that many. The preset paper"
        " shares all clusters.",
        "The relation loss is divided by the cluster loss, as in the authors' code, but without a gradient through the"
        " divisor, which is at least 0.1. With a single cluster there is no cluster loss, and nothing is divided.",
        "The common target of the two assignments has no gradient.",
        "The target is sharper than the assignments, and the two agreement terms have a weight of 0.1, except in the preset"
        " paper. With the authors' values the target is softer than the assignments. The agreement then makes the"
        " assignments even, which works against the loss of the local method.",
        "The prototypes of the silo are computed once, between the two phases, over all of its items. The authors' code"
        " clusters each batch again.",
        "Both models train for the same number of epochs. The authors' code then trains the text network for further epochs"
        " without the terms of the method.",
        "Silos are averaged by their number of items, except in the preset paper.",
        "The private model starts from the initial parameters that all silos share.",
        "If the local method trains each tower in a step of its own, an item's direction and its target are those of that"
        " modality alone.",
        "The server sees the prototypes of each silo.",
    ),
)

SMALLEST_DIVISOR = 0.1
"""Smallest value by which the relation loss is divided."""


class PTFUCHParams(MethodParams):
    """Parameters of PT-FUCH."""

    without_effect: ClassVar = {"queue": {"cluster_weight": (0,)}}

    prototypes: int = Field(default=24, ge=1)
    """Largest number of clusters per silo, and number of common prototypes, at least 1."""
    min_count: int = Field(default=5, ge=1)
    """Minimum number of items a cluster needs before the silo shares its direction, at least 1. A silo seeks at most one
    cluster per this many items. At 1 a shared direction may be that of a single item."""
    queue: int = Field(default=256, ge=1)
    """Number of items, those that the private model saw last, whose clusters it learns, at least 1."""
    cluster_weight: float = Field(default=1.0, ge=0)
    """Weight of the classification by clusters in the private model, at least 0."""
    relation_weight: float = Field(default=1.0, ge=0)
    """Weight of the distance between the similarities of the private and the global model's codes, at least 0. It is
    divided by the loss of the clusters."""
    global_weight: float = Field(default=0.1, ge=0)
    """Weight of the agreement of assignments to the common prototypes, at least 0. At 0, and with a local weight of 0, no
    private model is trained and none is shared, and the method is FedAvg."""
    local_weight: float = Field(default=0.1, ge=0)
    """Weight of the agreement of assignments to the silo's prototypes, at least 0. It starts with the second round."""
    temperature: float = Field(default=0.26, gt=0)
    """Temperature of the assignments (t), positive. Lower values make them sharper."""
    target_temperature: float = Field(default=0.1, gt=0)
    """Temperature of the assignments in their common target (t2), positive. Above the other temperature, items are pulled
    toward all prototypes alike, and below it, toward the nearest ones."""
    weighting: Literal["uniform", "examples"] = "examples"
    """Weights of silos in the average of parameters: `uniform` (equal), or `examples` (by number of items)."""


def directions(logit: Mapping[Modality, Tensor], has: Mapping[Modality, Tensor]) -> Tensor:
    """Return the mean of each item's outputs over its modalities, scaled to length 1, ``(n, K)``. Other items are zero."""
    return F.normalize(mean_over_modalities(logit, has), dim=1)


def random_clusters(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the centroids of k-means by cosine from random points of some ``(n, K)``, ``(count, K)`` of length 1."""
    drawn = torch.randperm(len(points), generator=generator)[:count].to(points.device)
    return kmeans(points, points[drawn], distance="cosine")


def cluster_loss(logit: Mapping[Modality, Tensor], has: Mapping[Modality, Tensor], centroids: Tensor) -> Tensor:
    """Return the mean cross-entropy of an item's centroid given its outputs, summed over the modalities, a scalar.

    An item's centroid, one of ``(M, K)`` of length 1, is the one nearest to the mean of its outputs ``(B, K)``. At least one
    item has each modality.
    """
    assigned = nearest(directions(logit, has).detach(), centroids)
    losses = [F.cross_entropy((logit[m] @ centroids.T)[has[m]], assigned[has[m]]) for m in logit]
    return torch.stack(losses).sum()


def relation_loss(codes: Mapping[Modality, Tensor], teacher: Mapping[Modality, Tensor]) -> Tensor:
    """Return the mean squared difference of the cosines of codes from those of the teacher's codes, a scalar.

    It is summed over all ordered pairs of modalities, which are four for images and texts. The number of items in the
    relaxed codes ``(B, K)`` may differ between modalities.
    """
    made, wanted = ({m: F.normalize(values, dim=1) for m, values in of.items()} for of in (codes, teacher))
    return torch.stack([F.mse_loss(made[m] @ made[o].T, wanted[m] @ wanted[o].T) for m in made for o in made]).sum()


def agreement_loss(
    logit: Mapping[Modality, Tensor],
    has: Mapping[Modality, Tensor],
    prototypes: Tensor,
    *,
    temperature: float,
    target_temperature: float,
) -> Tensor:
    """Return the mean divergence of an item's assignments to prototypes ``(M, K)`` from their common target, a scalar.

    An assignment is the softmax of the cosines, divided by the temperature. The target is the mean of the item's
    assignments over its modalities, divided by a temperature of its own, and has no gradient. The loss is the mean over
    the modalities of the mean over their items. At least one item has each modality.
    """
    centers = F.normalize(prototypes, dim=1)
    cosines = {m: F.normalize(values, dim=1) @ centers.T for m, values in logit.items()}
    shares = {m: F.softmax(values / target_temperature, dim=1) for m, values in cosines.items()}
    target = mean_over_modalities(shares, has).detach()
    logs = {m: F.log_softmax(values / temperature, dim=1) for m, values in cosines.items()}
    losses = [F.kl_div(logs[m][has[m]], target[has[m]], reduction="batchmean") for m in logit]
    return torch.stack(losses).mean()


def common_prototypes(rows: Tensor, count: int) -> Tensor:
    """Return the centroids of all silos' prototypes ``(n, K)``, ``(count, K)`` of length 1, with zero rows beyond n."""
    seeds = rows[torch.linspace(0, len(rows) - 1, min(count, len(rows))).long()]
    common = rows.new_zeros(count, rows.shape[1])
    common[: len(seeds)] = kmeans(rows, seeds, distance="cosine")
    return common


class PTFUCH(FederatedMethod[PTFUCHParams]):
    """Federated averaging with prototypes of clusters from private models."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "min_count": 1, "global_weight": 1.0, "local_weight": 1.0, "target_temperature": 0.81,
            "weighting": "uniform",
        },
    }  # fmt: skip
    traits = Traits(
        uplink="records", weighting="weighting",
        adds={"weight": {"weighting": "examples"}, "update": {}, "aggregate": {}},
        means=(
            SharedMean(
                "prototypes", "mask", like="prototypes", by_row=True, low=-1.0, high=1.0, unit=True, section="records"
            ),
        ),
        unprotected=(
            "The prototypes of silos have no common order, so they cannot be compared. Choose another federated method, or "
            "remove federated.robust."
        ),
    )  # fmt: skip

    def chosen_traits(self) -> Traits:
        """State from which size on clusters are released."""
        return replace(self.traits, release=Release(self.params.min_count))

    @property
    def _aligns(self) -> bool:
        """Whether the shared model is aligned with prototypes. If not, no private model is needed."""
        return bool(self.params.global_weight or self.params.local_weight)

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Start without common prototypes, that is, with rows of zeros."""
        prototypes = np.zeros((self.params.prototypes, info.bits), np.float32)
        return replace(super().init_server(model, info), extras={"prototypes": prototypes})

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the global model, and return a phase for the private model and one for the shared model."""
        phases = super().begin_round(context)
        if not self._aligns:
            return phases
        private = copy.deepcopy(context.model)
        install(private, context.kept("private") or context.initial)
        first = Phase(name="private", model=private, epochs=context.epochs)
        return [first, *(replace(phase, begin=lambda: self._end_private(context, private)) for phase in phases)]

    def _end_private(self, context: SiloContext, private: nn.Module) -> None:
        """Keep the private model, and the prototypes of the silo until the end of the round."""
        context.forget("queue")
        context.keep("private", private.state_dict())
        outputs = outputs_of(private, context.data, part="logit")
        has = {m: context.data.has(m) for m in outputs}
        points = directions(outputs, has)[torch.stack(list(has.values())).any(0)] if outputs else torch.zeros(0, 1)
        count = self._clusters(len(points))
        rows = random_clusters(points, count, context.generator) if count else points
        context.keep("prototypes", {"rows": rows, "sizes": cluster_sizes(points, rows)})

    def _clusters(self, items: int) -> int:
        most: int = max(1, min(self.params.prototypes, items // self.params.min_count))
        return min(items, most)

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the terms of the private or of the shared model, depending on the phase."""
        logit = {m: values for m, values in outputs.logit.items() if bool(batch.has(m).any())}
        if not logit or not self._aligns:
            return {}
        has = {m: batch.has(m) for m in logit}
        own = context.kept_tensors("prototypes")
        if not own:
            return self._private_terms(context, batch, logit, has)
        return self._shared_terms(context, logit, has, own["rows"])

    def _private_terms(
        self, context: SiloContext, batch: PairBatch, logit: Mapping[Modality, Tensor], has: Mapping[Modality, Tensor]
    ) -> Terms:
        """Return L_clu, and L_rel divided by it."""
        terms: Terms = {}
        divisor = torch.ones(())
        points = directions(logit, has).detach()[torch.stack(list(has.values())).any(0)]
        # Those that the private model saw last are among the points that are clustered, ``(n, K)``.
        queue = torch.cat([context.kept_tensors("queue").get("points", points[:0]), points])[-self.params.queue :]
        context.keep("queue", {"points": queue})
        count = self._clusters(len(queue))
        if self.params.cluster_weight and count > 1:
            cluster = cluster_loss(logit, has, random_clusters(queue, count, context.generator))
            terms["cluster"] = (self.params.cluster_weight, cluster)
            divisor = cluster.detach().clamp(min=SMALLEST_DIVISOR)
        if self.params.relation_weight:
            frozen = context.frozen_outputs("global", lambda: context.global_model, "logit")
            made = {m: torch.tanh(values[has[m]]) for m, values in logit.items()}
            wanted = {m: torch.tanh(frozen[m][batch.row][has[m]]) for m in logit}
            terms["relation"] = (self.params.relation_weight, relation_loss(made, wanted) / divisor)
        return terms

    def _shared_terms(
        self, context: SiloContext, logit: Mapping[Modality, Tensor], has: Mapping[Modality, Tensor], own: Tensor
    ) -> Terms:
        """Return JS(P_g) and JS(P_k); empty before there are common prototypes."""
        common = received_extra(context, "prototypes")
        common = common[common.any(1)]
        if not len(common):
            return {}
        weighted = {
            "global_prototypes": (self.params.global_weight, common),
            "local_prototypes": (self.params.local_weight, own),
        }
        given = {"temperature": self.params.temperature, "target_temperature": self.params.target_temperature}
        return {
            name: (weight, agreement_loss(logit, has, prototypes, **given))
            for name, (weight, prototypes) in weighted.items()
            if weight and len(prototypes)
        }

    def update(self, context: SiloContext) -> Message:
        """Send the silo's prototypes whose clusters have enough items, with the parameters."""
        update, own = super().update(context), context.kept("prototypes")
        context.forget("prototypes")
        if not own:
            return update
        prototypes = np.zeros_like(context.payload.extras["prototypes"])
        mask = np.zeros(len(prototypes), bool)
        released = own["sizes"] >= self.params.min_count
        prototypes[: len(released)][released], mask[: len(released)] = own["rows"][released], released
        return replace(update, records={"prototypes": prototypes, "mask": mask})

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Average the parameters, and cluster the prototypes of all silos."""
        after = super().aggregate(server, updates)
        sent = [torch.from_numpy(u.records["prototypes"][u.records["mask"]]) for u in updates if u.records]
        rows = torch.cat(sent) if sent else torch.zeros(0, 1)
        if not len(rows):
            return after
        extras: Arrays = {**after.extras, "prototypes": common_prototypes(rows, self.params.prototypes).numpy()}
        return replace(after, extras=extras)
