"""The class memory of FedCAFE: unit rows, one per class or cluster, and the silo weights derived from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

from silohash.exchange.message import Message
from silohash.federated.averaging import capped_weights

UNRELATED = math.log(2.0)
"""Likelihood of rows that are orthogonal to all common rows, and of a silo without rows."""


def memory_likelihood(memory: Tensor, common: Tensor, mask: Tensor, same: Tensor | None = None) -> Tensor:
    """Return the mean negative log-likelihood that a silo's rows match exactly the common rows that they should match.

    It is a mean rather than a sum, so that silos with few classes are comparable with those with many.

    Args:
        memory: ``(C, K)`` unit rows of the silo.
        common: ``(C, K)`` unit rows of the common memory.
        mask: ``(C,)`` bool, the rows that the silo has.
        same: ``(n, C)`` of 0 and 1, the common rows that each existing row should match. If None, that of the same
            class.

    Returns:
        A positive scalar; ln 2 if the silo has no rows.

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
    """Return the weight that a silo computes for itself, relative to that of unrelated rows.

    If no cap applies, dividing these weights by their sum gives those of `silo_weights`.
    """
    return min(float(powers([likelihood], UNRELATED, sharpness)[0]), cap)


def memories_of(updates: Sequence[Message]) -> tuple[list[Tensor], list[Tensor]]:
    """Return each silo's memory ``(C, K)`` and the mask of its existing rows ``(C,)`` bool."""
    memories, masks = ([torch.from_numpy(u.records[name]) for u in updates] for name in ("memory", "mask"))
    return memories, masks


def common_memory(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return rows ``(C, K)`` float32, with zero rows (classes that no silo released) replaced by the previous ones."""
    return np.where(rows.any(axis=1, keepdims=True), rows, before).astype(np.float32)
