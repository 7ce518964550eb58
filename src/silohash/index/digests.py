"""The 64-bit digest of (silo, id) by which a search identifies an item and orders items at the same distance.

A digest does not depend on the query. An index file therefore stores the digests of its items beside their codes, so that
a search does not have to read and hash the ids of items that tie.
"""

import hashlib
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Digests: TypeAlias = npt.NDArray[np.uint64]
"""Digests of items, ``(n,)``."""

PERSON = b"silohash ties"
"""Personalization of BLAKE2, which separates these digests from other uses of the same function."""


def item_digests(silos: Iterable[str], ids: Iterable[str]) -> Digests:
    """Return a digest of each (silo, id), ``(n,)`` uint64.

    The length of the silo's name is hashed first, so that ("a", "bc") and ("ab", "c") differ.
    """
    begun: dict[str, hashlib.blake2b] = {}
    digests = bytearray()
    for silo, item in zip(silos, ids, strict=True):
        if silo not in begun:
            begun[silo] = hashlib.blake2b(f"{len(silo)}:{silo}".encode(), digest_size=8, person=PERSON)
        hasher = begun[silo].copy()
        hasher.update(item.encode())
        digests += hasher.digest()
    return np.frombuffer(bytes(digests), "<u8").astype(np.uint64, copy=False)
