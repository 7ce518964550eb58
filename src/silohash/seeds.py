"""The only source of randomness: a generator for (seed, purpose, silo, round).

Every draw is a function of those four, never of what was drawn before: so a resumed run draws what an uninterrupted one
would have, and a silo draws the same numbers whichever worker trains it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> int:  # noqa: A002  the field's word
    """Returns a 63-bit seed for one purpose.

    Example:
        >>> derive(0, "batches", silo=1) == derive(0, "batches", silo=1)
        True
        >>> derive(0, "batches", silo=1) == derive(0, "batches", silo=2)
        False
    """
    key = f"{seed}/{purpose}/{silo}/{round}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def numpy_generator(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> np.random.Generator:  # noqa: A002
    """Returns numpy's generator for one purpose."""
    return np.random.default_rng(derive(seed, purpose, silo=silo, round=round))


def published_permutation(seed: int, count: int) -> np.ndarray:
    """Returns the order of ``numpy.random.seed(seed)`` and one permutation, as some published splits are made.

    Returns:
        ``(count,)`` int64.

    Example:
        >>> published_permutation(6, 5).tolist()
        [3, 4, 0, 1, 2]
    """
    return np.random.RandomState(seed).permutation(count)


def torch_generator(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> torch.Generator:  # noqa: A002
    """Returns torch's generator (on the CPU) for one purpose."""
    import torch

    generator = torch.Generator()
    generator.manual_seed(derive(seed, purpose, silo=silo, round=round))
    return generator


@contextmanager
def torch_globally(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> Iterator[None]:  # noqa: A002
    """Seeds torch's global generator inside a ``with`` block and restores it after.

    For code that takes no generator: the layers' initial weights, dropout.
    """
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, purpose, silo=silo, round=round))
        yield
