"""Spherical k-means from given seeds: the memory of FedCAFE and the centroids of PT-FUCH."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor


def nearest(values: Tensor, centres: Tensor) -> Tensor:
    """Returns which centre is nearest by cosine, ``(n,)`` int64.

    Args:
        values: ``(n, p)``.
        centres: ``(M, p)``, unit rows; to a zero row nothing is near.
    """
    return (values @ centres.T).masked_fill(centres.abs().sum(1) == 0, -torch.inf).argmax(1)


def cluster_sizes(values: Tensor, centres: Tensor) -> Tensor:
    """Returns of how many values a centre is the nearest, ``(M,)`` int64.

    Args:
        values: ``(n, p)``.
        centres: ``(M, p)``, unit rows or zero.
    """
    if not len(values):
        return torch.zeros(len(centres), dtype=torch.long, device=centres.device)
    return nearest(values, centres).bincount(minlength=len(centres))


def spherical_kmeans(values: Tensor, seeds: Tensor, *, steps: int = 10) -> Tensor:
    """Clusters directions by cosine, from given seeds, so that row ``c`` of the result grew from row ``c`` of the seeds.

    Args:
        values: ``(n, p)``; only their directions count.
        seeds: ``(M, p)``; a zero row takes no items and stays zero.
        steps: Lloyd steps.

    Returns:
        ``(M, p)`` unit rows; a cluster that no item is nearest to keeps its seed.
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
    """Tells which rows fall into one cluster with which common rows, when both are clustered together.

    Args:
        rows: ``(n, p)``, of one silo or of several.
        common: ``(M, p)``, from which the M clusters grow; zero rows are in no cluster.
        steps: Lloyd steps.

    Returns:
        ``(n, M)`` of 0 and 1.
    """
    centres = spherical_kmeans(torch.cat([common, rows]), common, steps=steps)
    own, theirs = nearest(rows, centres), nearest(common, centres)
    return ((own.unsqueeze(1) == theirs) & (centres.abs().sum(1) > 0)).to(rows.dtype)


def aligned(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Returns the rows in the order in which they lie nearest, by cosine and one to one, to the rows before.

    Args:
        rows: ``(M, p)`` unit rows.
        before: ``(M, p)``; all zero before the first round, which leaves the order as it is.

    Source: Kuhn's Hungarian assignment, by scipy.
    """
    from scipy.optimize import linear_sum_assignment

    if not before.any():
        return rows
    places, chosen = linear_sum_assignment(-before @ rows.T)
    matched: np.ndarray = rows[chosen[places.argsort()]]
    return matched
