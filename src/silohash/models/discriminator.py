"""A small network that judges whether a code is a genuine code of a given class."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PairJudge(nn.Module):
    """Two layers that map a code and a class, ``(B, K)`` and ``(B, C)``, to a logit ``(B,)``, positive for genuine codes."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))

    def forward(self, codes: Tensor, classes: Tensor) -> Tensor:
        """Return one logit per code, ``(B,)``, for codes ``(B, K)`` of one-hot classes ``(B, C)``."""
        judged: Tensor = self.layers(torch.cat([codes, classes.to(codes.dtype)], dim=1))
        return judged.squeeze(1)
