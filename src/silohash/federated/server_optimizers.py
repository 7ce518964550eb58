"""Adaptive Federated Optimization. Sashank J. Reddi et al., ICLR 2021; and federated averaging with server momentum.

The server takes the averaged move of a round as a gradient, and steps by it with momentum, Adam or Yogi, for any federated
method that averages parameters.

=========  ==========================  =======================================
paper      code                        meaning
=========  ==========================  =======================================
Delta_t    ``after - before``          the round's averaged move
m_t        ``private["server/mean"]``  its running mean
v_t        ``private["server/..."]``   running mean of its squares
eta        ``learning_rate``           the server's learning rate
tau        ``floor``                   keeps the division finite
=========  ==========================  =======================================

Algorithm 2 of the paper is `ServerOptimizer`; server momentum is Hsu et al., "Measuring the Effects of Non-Identical Data
Distribution for Federated Visual Classification", 2019.

Differs from the paper: nothing; whole-number buffers are taken as averaged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from silohash.federated.base import ServerState
from silohash.types import Arrays

MEAN, SQUARE = "server/mean/", "server/square/"


@dataclass(frozen=True)
class ServerOptimizer:
    """Steps of the server's own, between what rounds average.

    Attributes:
        optimizer: momentum, Adam or Yogi.
        learning_rate: eta; None for 1 with momentum, 0.01 with Adam and Yogi.
        momentum: beta_1, of the running mean.
        square_decay: beta_2, of the running mean of squares.
        floor: tau.
    """

    optimizer: Literal["fedavgm", "fedadam", "fedyogi"]
    learning_rate: float | None = None
    momentum: float = 0.9
    square_decay: float = 0.99
    floor: float = 1e-3

    def step(self, before: ServerState, after: ServerState) -> ServerState:
        """Returns the state after the server's own step towards what was averaged. Source: algorithm 2."""
        params: Arrays = {}
        private = dict(after.private)
        for name, averaged in after.params.items():
            if not np.issubdtype(averaged.dtype, np.floating):
                params[name] = averaged
                continue
            move = averaged - before.params[name]
            params[name] = (before.params[name] + self._scaled(name, move, private)).astype(averaged.dtype)
        return replace(after, params=params, private=private)

    def _scaled(self, name: str, move: np.ndarray, private: Arrays) -> np.ndarray:
        """Returns the server's move, and keeps the running means."""
        rate = self.learning_rate or (1.0 if self.optimizer == "fedavgm" else 0.01)
        last = private.get(MEAN + name, np.zeros_like(move))
        if self.optimizer == "fedavgm":
            mean = self.momentum * last + move
            private[MEAN + name] = mean.astype(move.dtype)
            return np.asarray(rate * mean)
        mean = self.momentum * last + (1 - self.momentum) * move
        square = private.get(SQUARE + name, np.full_like(move, self.floor**2))
        if self.optimizer == "fedadam":
            square = self.square_decay * square + (1 - self.square_decay) * move**2
        else:
            square = square - (1 - self.square_decay) * move**2 * np.sign(square - move**2)
        private[MEAN + name], private[SQUARE + name] = mean.astype(move.dtype), square.astype(move.dtype)
        return np.asarray(rate * mean / (np.sqrt(square) + self.floor))
