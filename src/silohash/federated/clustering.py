"""Spherical k-means from given seeds, and comparisons of its clusters."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor


def nearest(values: Tensor, centres: Tensor) -> Tensor:
    """Return the index of the centroid with the highest cosine, ``(n,)`` int64.

    Args:
        values: ``(n, p)``.
        centres: ``(M, p)`` unit rows. Zero rows are never chosen.
    """
    return (values @ centres.T).masked_fill(centres.abs().sum(1) == 0, -torch.inf).argmax(1)


def cluster_sizes(values: Tensor, centres: Tensor) -> Tensor:
    """Return the number of values assigned to each centroid, ``(M,)`` int64.

    Args:
        values: ``(n, p)``.
        centres: ``(M, p)``, unit or zero rows.
    """
    if not len(values):
        return torch.zeros(len(centres), dtype=torch.long, device=centres.device)
    return nearest(values, centres).bincount(minlength=len(centres))


def spherical_kmeans(values: Tensor, seeds: Tensor, *, steps: int = 10) -> Tensor:
    """Cluster vectors by cosine, starting from given seeds.

    Row ``c`` of the result develops from row ``c`` of the seeds.

    Args:
        values: ``(n, p)``; only their directions matter.
        seeds: ``(M, p)``; a zero row takes no items and remains zero.
        steps: Number of Lloyd iterations.

    Returns:
        ``(M, p)`` unit rows. A cluster without items keeps its seed.
    """
    directions = F.normalize(values, dim=1)
    centres = F.normalize(seeds, dim=1)
    if not len(values) or not centres.abs().sum() > 0:
        return centres
    for _ in range(steps):
        members = F.one_hot(nearest(directions, centres), len(centres)).to(values.dtype)
        sums = members.T @ directions
        moved = sums.abs().sum(1) > 0
        centres = torch.where(moved.unsqueeze(1), F.normalize(sums, dim=1), centres)
    return centres


def shared_clusters(rows: Tensor, common: Tensor, *, steps: int = 10) -> Tensor:
    """Cluster rows together with common rows, and return which rows share a cluster with which common rows.

    Args:
        rows: ``(n, p)``, of one silo or of several.
        common: ``(M, p)``, the seeds of the M clusters; zero rows belong to no cluster.
        steps: Number of Lloyd iterations.

    Returns:
        ``(n, M)`` of 0 and 1.
    """
    centres = spherical_kmeans(torch.cat([common, rows]), common, steps=steps)
    own, theirs = nearest(rows, centres), nearest(common, centres)
    return ((own.unsqueeze(1) == theirs) & (centres.abs().sum(1) > 0)).to(rows.dtype)


def aligned(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Reorder rows to match the previous rows, one to one, with the highest total cosine.

    Args:
        rows: ``(M, p)`` unit rows.
        before: ``(M, p)``; if all zero (before the first round), the order does not change.

    Source: Hungarian assignment (Kuhn), as implemented by scipy.
    """
    from scipy.optimize import linear_sum_assignment

    if not before.any():
        return rows
    places, chosen = linear_sum_assignment(-before @ rows.T)
    matched: np.ndarray = rows[chosen[places.argsort()]]
    return matched
