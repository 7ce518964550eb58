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

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import heappush, heappushpop

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

COSINE_STEPS = 1 << 15
"""Number of steps of a cosine from 0 to 1."""

WINDOW, MOST_WINDOW = 100, 1000
"""Least and largest number of nearest items that are ordered by outputs."""

FEW_PLACES = 200
"""Number of items up to which ordering all takes less time than finding the first ones."""

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
    missing = MOST_WORDS - np.bitwise_count(np.asarray(words, np.int64))
    steps = (np.asarray(tiers, np.int64) << DISTANCE_BITS) | distances
    return np.asarray((((steps << WORD_BITS) | missing) << VALUE_BITS) | np.asarray(values, np.int64))


WORDLESS = int(packed_places(np.zeros(1, np.int64), BY_CODE, 0, 0)[0])
"""Place of an item at the distance 0 that no words match, without order value."""


def place_in_tier(tier: int, place: int) -> int:
    """Return one number for a tier and a place in it, ascending by both; the place itself for `BY_CODE`."""
    return place - (BY_CODE - tier) * TIER_SIZE


def tier_of(place: int) -> int:
    """Return the tier of a number of `place_in_tier`."""
    return BY_CODE + place // TIER_SIZE


@lru_cache(maxsize=256)  # the hits of a search have a few groups of words
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


def output_cosines(
    words: Words, magnitudes: Magnitudes, query: Words, query_magnitudes: Magnitudes
) -> npt.NDArray[np.int64]:
    """Return the cosine of each item's outputs with the query's, ``(n,)``, from 0 for -1 to twice `COSINE_STEPS` for 1.

    The sums are exact, and the root, the quotient and its rounding are the same on every machine. A cosine does not depend
    on the scale of the outputs, so it is comparable across silos.

    Args:
        words: ``(n, W)`` packed codes, which are the signs of the items' outputs.
        magnitudes: ``(n, bits)`` magnitudes of the items' outputs.
        query: ``(W,)`` packed code.
        query_magnitudes: ``(bits,)`` magnitudes of the query's outputs.

    Example:
        >>> codes, magnitudes = np.array([[0b0], [0b1]], np.uint16), np.array([[3, 4] + [0] * 6] * 2, np.uint8)
        >>> output_cosines(codes, magnitudes, codes[0], magnitudes[0]) - COSINE_STEPS  # 1 and 7 / 25
        array([32768,  9175])
    """
    differing = np.ascontiguousarray(words ^ query).view(np.uint8)
    differs = np.unpackbits(differing, axis=1, count=len(query_magnitudes), bitorder="little").astype(bool)
    own, asked = magnitudes.astype(np.int64), query_magnitudes.astype(np.int64)
    products = own * asked
    sums = products.sum(axis=1) - 2 * np.where(differs, products, 0).sum(axis=1)
    lengths = np.sqrt(np.maximum((own * own).sum(axis=1) * (asked * asked).sum(), 1))
    return np.asarray(np.rint(sums / lengths * COSINE_STEPS).astype(np.int64) + COSINE_STEPS)


def window_of(k: int) -> int:
    """Return how many of the nearest items are ordered by outputs, for a page of k hits."""
    return max(WINDOW, min(4 * k, MOST_WINDOW))


def possible_first(cosines: Sequence[int], k: int) -> list[int]:
    """Return the positions of the items, given from near to far, that may be among the first k by their cosines.

    An item cannot if k of those before it have a cosine that is as large, wherever the window ends.
    """
    largest: list[int] = []
    found = []
    for position, cosine in enumerate(cosines):
        if len(largest) < k or cosine > largest[0]:
            found.append(position)
            (heappush if len(largest) < k else heappushpop)(largest, cosine)
    return found


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
    if max(k, FEW_PLACES) < len(places):
        last = np.partition(places, k - 1)[k - 1]
        rows, tied = np.flatnonzero(places < last), np.flatnonzero(places == last)
        # The items at the last place may be many, so that only the first of them are sorted.
        missing = k - len(rows)
        rows = np.concatenate([rows, tied[np.argpartition(keyed_order(digests[tied], key), missing - 1)[:missing]]])
    return np.asarray(rows[np.lexsort((keyed_order(digests[rows], key), places[rows]))[:k]])


def tie_order(silos: Sequence[str], ids: Sequence[str], key: bytes) -> Digests:
    """Return the sort value of each item among items at the same distance, ``(n,)`` uint64. Smaller values come first.

    Example:
        >>> first, second = tie_order(["north", "south"], ["1", "1"], b"key")
        >>> bool(first == second)
        False
    """
    return keyed_order(item_digests(silos, ids), key)


def sort_keys(
    steps: Sequence[tuple[int, float]],
    words: Sequence[int],
    values: Sequence[int],
    silos: Sequence[str],
    ids: Sequence[str],
    key: bytes,
) -> list[tuple[tuple[int, float], int, int, int, str, str]]:
    """Return what orders items everywhere. Smaller keys come first.

    Args:
        steps: The tier and the place of each item.
        words: The words of the query that each item has, as sums of ``2 ** place``.
        values: The order value of each item.
        silos: The silo of each item.
        ids: The id of each item.
        key: Key of the order among equals.
    """
    missing = [-held.bit_count() for held in words]
    return [*zip(steps, missing, values, tie_order(silos, ids, key).tolist(), silos, ids, strict=True)]


def question_key(secret: bytes, words: Iterable[npt.NDArray[np.unsignedinteger]]) -> bytes:
    """Return the key of one query: the same for all its pages, and different for queries of other packed codes.

    The secret of the hub makes the order unpredictable for others.
    """
    hasher = hashlib.blake2b(key=hashlib.blake2b(secret, digest_size=32).digest(), digest_size=16, person=PERSON)
    for part in words:
        hasher.update(np.ascontiguousarray(part).tobytes())
    return hasher.digest()
