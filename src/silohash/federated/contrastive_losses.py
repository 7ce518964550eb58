"""Comparisons of a model with frozen others: the blocks of MOON, FedUCH and FedCAFE."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor


def model_contrast(values: Tensor, positive: Tensor, negatives: Sequence[Tensor], temperature: float) -> Tensor:
    """Returns how poorly each item's positive stands out among the negatives, ``(B,)``.

    The cross-entropy of picking the positive by cosine over ``temperature``.

    Args:
        values: ``(B, p)`` of the model that learns.
        positive: ``(B, p)`` of the model to stay near.
        negatives: ``(B, p)`` each, of the models to leave.
        temperature: by which cosines are divided.

    Source: Li et al., "Model-Contrastive Federated Learning", equation (3).
    """
    logits = torch.stack([F.cosine_similarity(values, other, dim=1) for other in (positive, *negatives)], dim=1)
    return -F.log_softmax(logits / temperature, dim=1)[:, 0]


def cosine_gap(values: Tensor, others: Tensor) -> Tensor:
    """Returns one minus the cosine of each pair of rows, ``(B,)``. Source: FedCAFE, equations (6) and (7)."""
    return 1.0 - F.cosine_similarity(values, others, dim=1)
