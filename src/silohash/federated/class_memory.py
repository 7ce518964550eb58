"""The memory of FedCAFE: unit rows, one a class or a cluster, and how much a silo weighs by its own.

Differs from the paper: likelihoods are means, so that silos of few classes are compared with those of many; see
`silohash.federated.methods.fedcafe`.
"""

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
"""The likelihood of rows that are orthogonal to all others: what a silo's is near, whatever it holds."""


def memory_likelihood(memory: Tensor, common: Tensor, mask: Tensor, same: Tensor | None = None) -> Tensor:
    """Returns the mean negative log-likelihood that a silo's rows match those common rows only that they should match.

    Args:
        memory: ``(C, K)`` of the silo, unit rows.
        common: ``(C, K)``, unit rows.
        mask: ``(C,)`` bool, which of the silo's rows there are.
        same: ``(n, C)`` of 0 and 1, which common rows each of those should match; None for that of the same class.

    Returns:
        A scalar above 0; ln 2 where there are no rows.

    Source: FedCAFE, equation (9).
    """
    if not mask.any():
        return torch.full((), UNRELATED)
    theta = 0.5 * memory[mask] @ common.T
    if same is None:
        same = torch.eye(len(memory), dtype=theta.dtype, device=theta.device)[mask]
    return (F.softplus(theta) - same * theta).mean()


def powers(likelihoods: Sequence[float], reference: float, sharpness: float) -> np.ndarray:
    """Returns ``(likelihood / reference) ** (1 / sharpness)``, float64; within e^-600 and e^600, so never 0."""
    logs = np.log(np.maximum(likelihoods, 1e-30)) - math.log(max(reference, 1e-30))
    return np.exp(np.clip(logs / sharpness, -600.0, 600.0))


def silo_weights(likelihoods: Sequence[float], *, sharpness: float, cap: float) -> np.ndarray:
    """Returns the silos' weights: the softmax of ``log(likelihood) / sharpness``, none above ``cap`` times the mean.

    Source: FedCAFE, equation (10), of which the exponentials overflow, in the form of the authors' code.
    """
    total = powers(likelihoods, max(likelihoods), sharpness)
    return capped_weights(total / total.sum(), min(1.0, cap / len(total)))


def self_weight(likelihood: float, *, sharpness: float, cap: float) -> float:
    """Returns the weight that a silo gives itself, which knows no other's: in units of what unrelated rows weigh.

    Divided by their sum such weights are those of `silo_weights` wherever no cap is reached.
    """
    return min(float(powers([likelihood], UNRELATED, sharpness)[0]), cap)


def memories_of(updates: Sequence[Message]) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the silos' memories ``(C, K)`` and which of their rows there are ``(C,)``."""
    memories, masks = ([torch.from_numpy(u.records[name]) for u in updates] for name in ("memory", "mask"))
    return memories, masks


def common_memory(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Returns unit rows ``(C, K)`` float32; a row of zeros, a class that no silo showed, keeps what it was."""
    return np.where(rows.any(axis=1, keepdims=True), rows, before).astype(np.float32)
