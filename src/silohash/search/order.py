"""The order among items at the same distance: pseudo-random, the same everywhere, and nobody's to choose.

Hamming distances of short codes tie in great numbers. Listing one silo before another among equals would favour it in
every search, so equals are ordered by a keyed hash of (silo, id). It has two stages: a BLAKE2 digest of (silo, id),
which no question changes and a silo may keep, and a keyed mixing of that digest, vectorised, so that a tie of ten
thousand items costs microseconds. The key changes with the question, so no item wins every tie.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Digests = npt.NDArray[np.uint64]

_PERSON = b"silohash ties"
_SHIFT = np.uint64(32)
_FACTORS = (np.uint64(0xBEA225F9EB34556D), np.uint64(0x9E3779B97F4A7C15))


def item_digests(silos: Iterable[str], ids: Iterable[str]) -> Digests:
    """Returns a digest of each (silo, id), ``(n,)`` uint64.

    The silo's length stands before it, so that ("a", "bc") and ("ab", "c") differ.
    """
    digests = [
        int.from_bytes(
            hashlib.blake2b(f"{len(silo)}:{silo}{item}".encode(), digest_size=8, person=_PERSON).digest(), "little"
        )
        for silo, item in zip(silos, ids, strict=True)
    ]
    return np.array(digests, np.uint64)


def keyed_order(digests: Digests, key: bytes) -> Digests:
    """Mixes digests with a key; smaller comes first.

    Args:
        digests: ``(n,)`` uint64 of `item_digests`.
        key: any bytes.

    Returns:
        ``(n,)`` uint64; for one key different digests stay different.
    """
    halves = np.frombuffer(hashlib.blake2b(key, digest_size=16, person=_PERSON).digest(), "<u8")
    mixed = np.array(digests, np.uint64)
    for half in halves:
        mixed ^= half
        for factor in _FACTORS:
            mixed ^= mixed >> _SHIFT
            mixed *= factor
        mixed ^= mixed >> _SHIFT
    return mixed


def tie_order(silos: Sequence[str], ids: Sequence[str], key: bytes) -> Digests:
    """Returns each item's place value among items at the same distance, ``(n,)`` uint64; smaller comes first.

    Example:
        >>> first, second = tie_order(["north", "south"], ["1", "1"], b"key")
        >>> bool(first == second)
        False
    """
    return keyed_order(item_digests(silos, ids), key)


def question_key(secret: bytes, words: Iterable[npt.NDArray[np.unsignedinteger]]) -> bytes:
    """Returns the key of one question: the same for all its pages, another for another question.

    Args:
        secret: the hub's own key, so that nobody can foresee the order.
        words: the query's packed codes, in a settled order.
    """
    hasher = hashlib.blake2b(key=hashlib.blake2b(secret, digest_size=32).digest(), digest_size=16, person=_PERSON)
    for part in words:
        hasher.update(np.ascontiguousarray(part).tobytes())
    return hasher.digest()
