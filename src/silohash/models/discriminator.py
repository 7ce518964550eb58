"""A small network that judges whether a code, said to be of a class, is genuine."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PairJudge(nn.Module):
    """Two layers over a code and a class, ``(B, K), (B, C) -> (B,)`` logits: positive for genuine.

    Args:
        inputs: K + C.
        hidden: width of the first layer.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))

    def forward(self, codes: Tensor, classes: Tensor) -> Tensor:
        """Judges codes ``(B, K)`` of classes ``(B, C)`` one-hot."""
        judged: Tensor = self.layers(torch.cat([codes, classes.to(codes.dtype)], dim=1))
        return judged.squeeze(1)
