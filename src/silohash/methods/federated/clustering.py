"""K-means from given seeds, by cosine or by Euclidean distance, and comparisons of its clusters."""

from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

Distance: TypeAlias = Literal["cosine", "euclidean"]
"""What k-means minimizes: the angle to unit centroids, or the distance to means."""


def nearest(values: Tensor, centers: Tensor, distance: Distance = "cosine") -> Tensor:
    """Return the index of the centroid ``(M, p)`` that is nearest to each value ``(n, p)``, ``(n,)`` int64.

    For ``cosine``, centroids have length 1. Zero rows are never chosen.
    """
    closeness = values @ centers.T
    if distance == "euclidean":
        closeness = closeness - centers.square().sum(1) / 2
    return closeness.masked_fill(centers.abs().sum(1) == 0, -torch.inf).argmax(1)


def cluster_sizes(values: Tensor, centers: Tensor, distance: Distance = "cosine") -> Tensor:
    """Return the number of values ``(n, p)`` that are `nearest` to each centroid ``(M, p)``, ``(M,)`` int64."""
    if not len(values):
        return torch.zeros(len(centers), dtype=torch.long, device=centers.device)
    return nearest(values, centers, distance).bincount(minlength=len(centers))


def kmeans(values: Tensor, seeds: Tensor, *, distance: Distance, steps: int = 10) -> Tensor:
    """Cluster vectors ``(n, p)`` by Lloyd iterations of spherical (``cosine``) or plain k-means (``euclidean``).

    Returns:
        ``(M, p)``, unit rows for ``cosine`` and means of the clusters for ``euclidean``. Row c develops from row c of the
        seeds ``(M, p)``. A cluster without items keeps its seed, and a zero row takes no items.
    """
    cosine = distance == "cosine"
    points, centers = (F.normalize(values, dim=1), F.normalize(seeds, dim=1)) if cosine else (values, seeds)
    if not len(values) or not centers.abs().sum() > 0:
        return centers
    for _ in range(steps):
        members = F.one_hot(nearest(points, centers, distance), len(centers)).to(values.dtype)
        sums = members.T @ points
        means = F.normalize(sums, dim=1) if cosine else sums / members.sum(0).clamp(min=1.0).unsqueeze(1)
        centers = torch.where((sums.abs().sum(1) > 0).unsqueeze(1), means, centers)
    return centers


def shared_clusters(rows: Tensor, common: Tensor, *, distance: Distance = "cosine", steps: int = 10) -> Tensor:
    """Return which rows ``(n, p)`` share a cluster with which common rows ``(M, p)``, ``(n, M)`` of 0 and 1.

    All rows are clustered together, by `kmeans` from the common ones. Zero rows belong to no cluster.
    """
    centers = kmeans(torch.cat([common, rows]), common, distance=distance, steps=steps)
    own, theirs = nearest(rows, centers, distance), nearest(common, centers, distance)
    return ((own.unsqueeze(1) == theirs) & (centers.abs().sum(1) > 0)).to(rows.dtype)


def aligned(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Reorder rows ``(M, p)`` to match the previous ones, one to one, with the highest total cosine.

    If the previous rows are all zero (before the first round), the order does not change.

    Source: Hungarian assignment (Kuhn), as implemented by scipy.
    """
    from scipy.optimize import linear_sum_assignment

    if not before.any():
        return rows
    places, chosen = linear_sum_assignment(-_unit(before) @ _unit(rows).T)
    return np.asarray(rows[chosen[places.argsort()]])


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
