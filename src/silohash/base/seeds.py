"""The only source of randomness: one generator per (seed, purpose, silo, round).

Each generator depends on these four values alone, never on earlier random numbers. A resumed run therefore draws the same
numbers as an uninterrupted one, and a silo draws the same numbers in every worker.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> int:  # noqa: A002  the field's word
    """Return a 63-bit seed for one purpose.

    Example:
        >>> derive(0, "batches", silo=1) == derive(0, "batches", silo=1)
        True
        >>> derive(0, "batches", silo=1) == derive(0, "batches", silo=2)
        False
    """
    key = f"{seed}/{purpose}/{silo}/{round}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def numpy_generator(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> np.random.Generator:  # noqa: A002
    """Return a NumPy generator for one purpose."""
    return np.random.default_rng(derive(seed, purpose, silo=silo, round=round))


def secret() -> bytes:
    """Return 32 random bytes of the operating system, which no seed determines."""
    return secrets.token_bytes(32)


def secret_generator(key: bytes, purpose: str, *, round: int = -1) -> np.random.Generator:  # noqa: A002
    """Return a NumPy generator whose numbers only those can predict who know the key of 32 random bytes.

    NumPy's generators are not made for cryptography. Nobody sees their outputs here, only sums of them and of other values.

    Example:
        >>> first, again, other = (int(secret_generator(key, "noise").integers(1 << 62)) for key in (b"a", b"a", b"b"))
        >>> first == again, first == other
        (True, False)
    """
    digest = hashlib.blake2b(f"{purpose}/{round}".encode(), key=key, digest_size=32).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def published_permutation(seed: int, count: int) -> np.ndarray:
    """Return the permutation ``(count,)`` int64 that NumPy's legacy generator draws first, as some published splits use it.

    Example:
        >>> published_permutation(6, 5).tolist()
        [3, 4, 0, 1, 2]
    """
    return np.random.RandomState(seed).permutation(count)


def torch_generator(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> torch.Generator:  # noqa: A002
    """Return a torch generator on the CPU for one purpose."""
    import torch

    generator = torch.Generator()
    generator.manual_seed(derive(seed, purpose, silo=silo, round=round))
    return generator


@contextmanager
def torch_globally(seed: int, purpose: str, *, silo: int = -1, round: int = -1) -> Iterator[None]:  # noqa: A002
    """Seed torch's global generator inside a ``with`` block, and restore its state afterwards.

    Use it for code that does not accept a generator: the initial weights of layers, and dropout.
    """
    import torch

    value = derive(seed, purpose, silo=silo, round=round)
    if torch.cuda.is_available():
        with torch.random.fork_rng():
            torch.manual_seed(value)
            yield
        return
    # Without a GPU, torch.manual_seed and fork_rng take longer than a step on a few items.
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(value)
    try:
        yield
    finally:
        torch.set_rng_state(state)
