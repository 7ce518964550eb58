"""The order among items at the same distance: pseudo-random, the same everywhere, and beyond any silo's control.

Hamming distances of short codes have many ties. Listing one silo before another among equals would favor it in every
search, so equals are ordered by a keyed hash of (silo, id). The hash has two stages. A BLAKE2 digest of (silo, id) does
not depend on the query, so an index stores it (`index.digests`). A vectorized mixing of that digest with a key costs
microseconds for ten thousand items. The key depends on the query, so no item wins every tie.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from silohash.index.digests import PERSON, Digests, item_digests

_SHIFT = np.uint64(32)
_FACTORS = (np.uint64(0xBEA225F9EB34556D), np.uint64(0x9E3779B97F4A7C15))


def keyed_order(digests: Digests, key: bytes) -> Digests:
    """Mix digests with a key. Smaller values come first.

    Args:
        digests: ``(n,)`` uint64, from `index.digests.item_digests`.
        key: Any bytes.

    Returns:
        ``(n,)`` uint64. With the same key, different digests give different values.
    """
    halves = np.frombuffer(hashlib.blake2b(key, digest_size=16, person=PERSON).digest(), "<u8")
    mixed = np.array(digests, np.uint64)
    high = np.empty_like(mixed)
    for half in halves:
        mixed ^= half
        for factor in _FACTORS:
            np.right_shift(mixed, _SHIFT, out=high)
            mixed ^= high
            mixed *= factor
        np.right_shift(mixed, _SHIFT, out=high)
        mixed ^= high
    return mixed


def tie_order(silos: Sequence[str], ids: Sequence[str], key: bytes) -> Digests:
    """Return the sort value of each item among items at the same distance, ``(n,)`` uint64. Smaller values come first.

    Example:
        >>> first, second = tie_order(["north", "south"], ["1", "1"], b"key")
        >>> bool(first == second)
        False
    """
    return keyed_order(item_digests(silos, ids), key)


def question_key(secret: bytes, words: Iterable[npt.NDArray[np.unsignedinteger]]) -> bytes:
    """Return the key of one query: the same for all its pages, and different for queries of other packed codes.

    The secret of the hub makes the order unpredictable for others.
    """
    hasher = hashlib.blake2b(key=hashlib.blake2b(secret, digest_size=32).digest(), digest_size=16, person=PERSON)
    for part in words:
        hasher.update(np.ascontiguousarray(part).tobytes())
    return hasher.digest()
