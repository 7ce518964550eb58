"""The class memory of FedCAFE: one row per class or cluster, and the silo weights derived from the rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

from silohash.methods.federated.averaging import capped_weights
from silohash.methods.federated.clustering import Distance, aligned, cluster_sizes, kmeans, shared_clusters
from silohash.methods.message import Message

UNRELATED = math.log(2.0)
"""Likelihood of rows that are orthogonal to all common rows, and of a silo without rows."""


@dataclass(frozen=True)
class MemoryRows:
    """How the rows of memories are computed from enhanced outputs.

    Attributes:
        scale: ``unit`` for rows of length 1, clustered by cosine, or ``mean`` for means of outputs, clustered by
            Euclidean distance.
        steps: Number of k-means iterations.
    """

    scale: Literal["unit", "mean"] = "unit"
    steps: int = 10

    @property
    def distance(self) -> Distance:
        """Distance by which rows are clustered."""
        return "cosine" if self.scale == "unit" else "euclidean"

    def scaled(self, values: Tensor) -> Tensor:
        """Return vectors ``(n, K)`` scaled to length 1, or as they are. Zero vectors remain zero."""
        return F.normalize(values, dim=1) if self.scale == "unit" else values

    def clustered(self, values: Tensor, seeds: Tensor) -> Tensor:
        """Return the rows of k-means over values ``(n, K)``, ``(C, K)``, each developed from its seed."""
        return kmeans(values, seeds, distance=self.distance, steps=self.steps)

    def free(self, values: Tensor, classes: int, *, least: int, generator: torch.Generator) -> Tensor:
        """Return the rows of k-means from random values, ``(C, K)``; zeros for clusters of fewer than ``least`` values."""
        drawn = torch.randperm(len(values), generator=generator)[:classes]
        rows = self.clustered(values, values[drawn])
        released = cluster_sizes(values, rows, self.distance) >= least
        memory = values.new_zeros(classes, values.shape[1])
        memory[: len(rows)][released] = rows[released]
        return memory

    def seeds(self, memories: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
        """Return the mean of each row over the silos that have it, scaled, ``(C, K)``. Rows of no silo are zero."""
        held = torch.stack(list(masks)).to(memories[0].dtype).unsqueeze(2)
        sums = (torch.stack(list(memories)) * held).sum(0)
        return self.scaled(sums) if self.scale == "unit" else sums / held.sum(0).clamp(min=1.0)

    def merged(self, memories: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
        """Return the common memory: k-means over the rows of all silos, ``(C, K)``. Row c belongs to class c."""
        return self.clustered(_existing(memories, masks), self.seeds(memories, masks))

    def merged_freely(
        self, memories: Sequence[Tensor], masks: Sequence[Tensor], before: np.ndarray, *, align: bool
    ) -> np.ndarray:
        """Return the common memory by k-means from rows of the silos, ``(C, K)``, in the order of before if ``align``."""
        rows = _existing(memories, masks)
        drawn = rows[torch.linspace(0, len(rows) - 1, len(before)).long()]
        clustered = self.clustered(rows, drawn).numpy()
        return aligned(clustered, before) if align else clustered

    def likelihoods(
        self, common: Tensor, memories: Sequence[Tensor], masks: Sequence[Tensor], *, by_cluster: bool
    ) -> list[float]:
        """Return the `memory_likelihood` of each memory ``(C, K)`` with its mask of existing rows ``(C,)``.

        Rows should match the common row ``(C, K)`` of their class, or if ``by_cluster`` the common rows of their cluster.
        Clusters are then computed over the common rows and all given rows.
        """
        same: Sequence[Tensor | None] = [None] * len(memories)
        if by_cluster:
            joined = shared_clusters(_existing(memories, masks), common, distance=self.distance, steps=self.steps)
            same = torch.split_with_sizes(joined, [int(mask.sum()) for mask in masks])
        given = zip(memories, masks, same, strict=True)
        return [float(memory_likelihood(memory, common, mask, own)) for memory, mask, own in given]


def _existing(memories: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    return torch.cat([memory[mask] for memory, mask in zip(memories, masks, strict=True)])


def memory_likelihood(memory: Tensor, common: Tensor, mask: Tensor, same: Tensor | None = None) -> Tensor:
    """Return the mean negative log-likelihood that a silo's rows match exactly the common rows that they should match.

    It is a mean rather than a sum, so that silos with few classes are comparable with those with many. It is a positive
    scalar, and ln 2 if the silo has no rows. The rows of both memories are ``(C, K)``, of which the silo has those of the
    mask ``(C,)``. Each should match the common rows in ``same`` ``(n, C)``, 0 or 1; by default that of its class.

    Source: FedCAFE, equation (9).
    """
    if not mask.any():
        return torch.full((), UNRELATED)
    theta = 0.5 * memory[mask] @ common.T
    if same is None:
        same = torch.eye(len(memory), dtype=theta.dtype, device=theta.device)[mask]
    return (F.softplus(theta) - same * theta).mean()


def powers(likelihoods: Sequence[float], reference: float, sharpness: float) -> np.ndarray:
    """Return ``(likelihood / reference) ** (1 / sharpness)``, float64, within [e^-600, e^600] and thus never 0."""
    logs = np.log(np.maximum(likelihoods, 1e-30)) - math.log(max(reference, 1e-30))
    return np.exp(np.clip(logs / sharpness, -600.0, 600.0))


def silo_weights(likelihoods: Sequence[float], *, sharpness: float, cap: float) -> np.ndarray:
    """Return the silos' weights: the softmax of ``log(likelihood) / sharpness``, each at most ``cap`` times the mean.

    Source: FedCAFE, equation (10). The exponentials of the printed form overflow, so the form of the authors' code is
    used.
    """
    total = powers(likelihoods, max(likelihoods), sharpness)
    return capped_weights(total / total.sum(), min(1.0, cap / len(total)))


def self_weight(likelihood: float, *, sharpness: float, cap: float) -> float:
    """Return the weight that a silo gives itself; without a cap, these divided by their sum are the `silo_weights`."""
    return min(float(powers([likelihood], UNRELATED, sharpness)[0]), cap)


def memories_of(updates: Sequence[Message]) -> tuple[list[Tensor], list[Tensor]]:
    """Return each silo's memory ``(C, K)`` and the mask of its existing rows ``(C,)`` bool."""
    memories, masks = ([torch.from_numpy(u.records[name]) for u in updates] for name in ("memory", "mask"))
    return memories, masks


def common_memory(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return rows ``(C, K)`` float32, with zero rows (classes that no silo released) replaced by the previous ones."""
    return np.where(rows.any(axis=1, keepdims=True), rows, before).astype(np.float32)
