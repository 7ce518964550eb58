"""Losses that compare a model's outputs with those of frozen models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor


def model_contrast(values: Tensor, positive: Tensor, negatives: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the cross-entropy of identifying the positive among the negatives by cosine, ``(B,)``.

    Args:
        values: ``(B, p)``, outputs of the model in training.
        positive: ``(B, p)``, outputs of the model to stay close to.
        negatives: ``(B, p)`` each, outputs of the models to move away from.
        temperature: Divides the cosines; positive.

    Source: MOON, equation (3).
    """
    logits = torch.stack([F.cosine_similarity(values, other, dim=1) for other in (positive, *negatives)], dim=1)
    return -F.log_softmax(logits / temperature, dim=1)[:, 0]


def cosine_gap(values: Tensor, others: Tensor) -> Tensor:
    """Return one minus the cosine between corresponding rows, ``(B,)``. Source: FedCAFE, equations (5) and (6)."""
    return 1.0 - F.cosine_similarity(values, others, dim=1)
