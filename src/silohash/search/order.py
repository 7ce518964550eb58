"""The order of hits, the same at every silo and hub: (tier, place, -matched words, order value, keyed hash of silo and id).

The tier tells what a hit has of the words of the query: `EXACT` is the query as its id or its whole caption, `ALL_WORDS` are
all words, and all other hits are `BY_CODE`. The place is the distance, or what replaces it. Without words, every hit is
`BY_CODE` with no matched words.

The order among equals is pseudo-random, and beyond any silo's control.

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

from silohash.base.analysis import UNICODE, words_of
from silohash.index.codes import Magnitudes, Words
from silohash.index.digests import PERSON, Digests, item_digests

EXACT, ALL_WORDS, BY_CODE = range(3)

MOST_WORDS = 31
"""Number of words of a query that are matched, from the first."""

TIER_SIZE = 1 << 31
"""Every distance and rank is smaller."""

VALUE_BITS, WORD_BITS, DISTANCE_BITS = 17, 5, 9
"""Bits of a packed place: an order value is at most 256 magnitudes of 255, and a distance at most 256."""

STEP_BITS = VALUE_BITS + WORD_BITS
"""Lowest bits of a packed place, without which it tells the tier and the distance."""

_BITS_OF_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[None], axis=0, bitorder="little").astype(np.int64)
"""``(8, 256)``, the bits of each value of a byte."""

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


def packed_places(
    distances: npt.NDArray[np.integer], tiers: npt.ArrayLike, words: npt.ArrayLike, values: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Return numbers that order items up to the keyed hash, ``(n,)``; ``words`` are the sums of `search.words.Matches`.

    Example:
        >>> places = packed_places(np.array([3, 3, 9]), [BY_CODE, BY_CODE, EXACT], [0b1, 0b101, 0b111], [0, 7, 0])
        >>> np.argsort(places).tolist()
        [2, 1, 0]
    """
    missing = MOST_WORDS - np.bitwise_count(np.asarray(words, np.int64)).astype(np.int64)
    steps = (np.asarray(tiers, np.int64) << DISTANCE_BITS) | distances.astype(np.int64)
    return np.asarray((((steps << WORD_BITS) | missing) << VALUE_BITS) | np.asarray(values, np.int64))


def place_in_tier(tier: int, place: int) -> int:
    """Return one number for a tier and a place in it, ascending by both; the place itself for `BY_CODE`."""
    return place - (BY_CODE - tier) * TIER_SIZE


def tier_of(place: int) -> int:
    """Return the tier of a number of `place_in_tier`."""
    return BY_CODE + place // TIER_SIZE


def matched_words(text: str, words: int) -> tuple[str, ...]:
    """Return the words of a query that an item has, given as a sum of ``2 ** place`` over their places in the query.

    Example:
        >>> matched_words("Two boats at sea", 0b1010)
        ('boats', 'sea')
    """
    return tuple(word for place, word in enumerate(words_of(text, UNICODE)[:MOST_WORDS]) if words >> place & 1)


def magnitude_sums(words: Words, query: Words, magnitudes: Magnitudes) -> npt.NDArray[np.int64]:
    """Return the sum of the query's magnitudes over the bits in which each code differs from the query's, ``(n,)``.

    Of two items at the same distance, the one with the smaller sum differs in bits of which the model was less sure.

    Args:
        words: ``(n, W)`` packed codes.
        query: ``(W,)`` packed code.
        magnitudes: ``(bits,)`` magnitudes of the query's outputs.

    Example:
        >>> codes = np.array([[0b001], [0b100]], np.uint16)
        >>> magnitude_sums(codes, np.array([0b000], np.uint16), np.array([90, 255, 10, 0, 0, 0, 0, 0], np.uint8))
        array([90, 10])
    """
    differing = np.ascontiguousarray(words ^ query).view(np.uint8)
    weights = np.zeros((differing.shape[1], 8), np.int64)
    weights.reshape(-1)[: len(magnitudes)] = magnitudes
    sums = np.zeros(len(differing), np.int64)
    for byte, table in zip(differing.T, weights @ _BITS_OF_BYTES, strict=True):
        sums += table[byte]
    return sums


def expected_sums(distances: Sequence[int], magnitudes: Magnitudes) -> tuple[int, ...]:
    """Return the mean of `magnitude_sums` over all codes at each distance, for items whose silo does not tell theirs."""
    total = int(magnitudes.sum(dtype=np.int64))
    return tuple(distance * total // len(magnitudes) for distance in distances)


def first_places(places: npt.NDArray[np.int64], digests: Digests, key: bytes, k: int) -> npt.NDArray[np.int64]:
    """Return the positions of the first k items, ordered by place and, among equals, by the keyed hash.

    Args:
        places: ``(n,)`` places. Smaller ones come first.
        digests: ``(n,)`` digests of the items.
        key: Key of the order among equals.
        k: Number of items.
    """
    rows = np.arange(len(places))
    if k < len(places):
        rows = np.flatnonzero(places <= np.partition(places, k - 1)[k - 1])
    return np.asarray(rows[np.lexsort((keyed_order(digests[rows], key), places[rows]))[:k]])


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
