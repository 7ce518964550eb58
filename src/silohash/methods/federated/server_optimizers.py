"""Server-side optimizers: momentum, Adam and Yogi applied to the averaged update of a round.

The server treats the averaged update as a gradient. Any federated method that averages parameters can be combined with
them.

=========  ==========================  =======================================
paper      code                        meaning
=========  ==========================  =======================================
Delta_t    ``after - before``          averaged update of the round
m_t        ``private["server/mean"]``  running mean of the updates
v_t        ``private["server/..."]``   running mean of their squares
eta        ``learning_rate``           server learning rate
tau        ``floor``                   keeps the division finite
=========  ==========================  =======================================

Algorithm 2 of Reddi et al., "Adaptive Federated Optimization" (2021), is `ServerOptimizer`. Server momentum follows Hsu
et al., "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification" (2019). Buffers,
such as the running statistics of BatchNorm, are not trained by gradients. They remain as averaged: a step beyond the
average could make a variance negative.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from silohash.base.types import Arrays
from silohash.methods.federated.base import ServerState

MEAN, SQUARE = "server/mean/", "server/square/"


@dataclass(frozen=True)
class ServerOptimizer:
    """A server-side optimizer, applied to the averaged update of each round.

    Attributes:
        learning_rate: Server learning rate. If None, 1 for momentum, and 0.01 for Adam and Yogi.
        momentum: Decay of the running mean, in [0, 1).
        square_decay: Decay of the running mean of squares, in [0, 1).
        floor: Added to the square root of the running mean of squares; positive.
    """

    optimizer: Literal["fedavgm", "fedadam", "fedyogi"]
    learning_rate: float | None = None
    momentum: float = 0.9
    square_decay: float = 0.99
    floor: float = 1e-3

    def step(self, before: ServerState, after: ServerState, buffers: Set[str] = frozenset()) -> ServerState:
        """Return the state after a server step from the parameters before the round along the averaged update.

        Buffers, whose names are given, remain as averaged, like all integer arrays. Source: algorithm 2.
        """
        params, private = dict(after.params), dict(after.private)
        for name, averaged in after.params.items():
            if name not in buffers and np.issubdtype(averaged.dtype, np.floating):
                start = before.params[name]
                params[name] = (start + self._scaled(name, averaged - start, private)).astype(averaged.dtype)
        return replace(after, params=params, private=private)

    def _scaled(self, name: str, update: np.ndarray, private: Arrays) -> np.ndarray:
        """Return the change of one parameter array, and store its running means in ``private``."""
        rate = self.learning_rate or (1.0 if self.optimizer == "fedavgm" else 0.01)
        last = private.get(MEAN + name, np.zeros_like(update))
        if self.optimizer == "fedavgm":
            mean = self.momentum * last + update
            private[MEAN + name] = mean.astype(update.dtype)
            return np.asarray(rate * mean)
        mean = self.momentum * last + (1 - self.momentum) * update
        square = private.get(SQUARE + name, np.full_like(update, self.floor**2))
        if self.optimizer == "fedadam":
            square = self.square_decay * square + (1 - self.square_decay) * update**2
        else:
            square = square - (1 - self.square_decay) * update**2 * np.sign(square - update**2)
        private[MEAN + name], private[SQUARE + name] = mean.astype(update.dtype), square.astype(update.dtype)
        return np.asarray(rate * mean / (np.sqrt(square) + self.floor))
