"""Binary target codes of classes that are far apart, computed without data."""

from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard

from silohash.base import seeds

ClassCodes = npt.NDArray[np.int8]

CANDIDATES = 512
"""Number of random codes among which each code is chosen if the codes are not rows of a Hadamard matrix."""

ENUMERATED_BITS = 16
"""Longest code of which all balanced words are tried as hash centers. Longer words are drawn at random."""

BLOCK = 1024
"""Number of words that are compared with the chosen ones at a time."""


@cache
def class_codes(classes: int, bits: int, *, exclusive: bool, seed: int) -> ClassCodes:
    """Return one code per class, ``(C, K)``, -1 or 1, read-only.

    The codes are rows of a Hadamard matrix if the number of bits is a power of two and there are enough rows. One of its
    columns is constant. Rows with random signs are as far apart, and give every bit both values. If labels are exclusive,
    opposite rows are used too. Otherwise, the codes are chosen one after the other among random codes.
    """
    generator = seeds.numpy_generator(seed, "class codes")
    if bits & (bits - 1) == 0 and classes <= (2 * bits if exclusive else bits):
        shuffled = hadamard(bits, np.int8)[generator.permutation(bits)][:, generator.permutation(bits)]
        row_signs, column_signs = generator.choice(np.asarray([-1, 1], np.int8), (2, bits))
        shuffled = shuffled * row_signs[:, None] * column_signs
        codes = np.concatenate([shuffled, -shuffled])[:classes]
    else:
        codes = _greedy_codes(classes, bits, exclusive=exclusive, generator=generator)
    codes.setflags(write=False)
    return codes


def _greedy_codes(classes: int, bits: int, *, exclusive: bool, generator: np.random.Generator) -> ClassCodes:
    """Choose each code as the candidate whose largest inner product with the codes so far is smallest.

    If items may have several labels, opposite codes are as bad as equal ones, so the absolute value counts.
    """
    codes = np.zeros((classes, bits), np.int8)
    for number in range(classes):
        candidates = generator.choice(np.asarray([-1, 1], np.int8), (CANDIDATES, bits))
        # Inner products of int8 wrap around from 128 bits on.
        products = candidates.astype(np.int64) @ codes[:number].T
        closest = (products if exclusive else np.abs(products)).max(axis=1, initial=-bits)
        codes[number] = candidates[closest.argmin()]
    return codes


def paley(size: int) -> ClassCodes:
    """Return Paley's Hadamard matrix of the first kind, whose rows are orthogonal, ``(size, size)``, -1 or 1.

    It is ``I + [[0, 1], [-1, Q]]``, where ``Q[i, j]`` tells whether ``i - j`` is a square modulo ``size - 1``. This is a
    prime that leaves the remainder 3 when it is divided by 4, so that the size can be 12, 20, 24 or 48.

    Example:
        >>> paley(4).tolist()
        [[1, 1, 1, 1], [-1, 1, -1, 1], [-1, 1, 1, -1], [-1, -1, 1, 1]]
    """
    prime = size - 1
    numbers = np.arange(prime)
    character = np.full(prime, -1, np.int8)
    character[numbers * numbers % prime] = 1
    character[0] = 0
    matrix = np.ones((size, size), np.int8)
    matrix[1:, 0] = -1
    matrix[1:, 1:] = character[(numbers[:, None] - numbers) % prime] + np.eye(prime, dtype=np.int8)
    return matrix


def hadamard_matrix(size: int) -> ClassCodes | None:
    """Return a Hadamard matrix of Sylvester or Paley, or a Paley matrix that Sylvester's rule doubles, ``(size, size)``.

    It is None if neither construction has this size.
    """
    if size & (size - 1) == 0:
        return np.asarray(hadamard(size, np.int8))
    core = size
    while core % 2 == 0 and not _is_paley(core):
        core //= 2
    return np.kron(hadamard(size // core, np.int8), paley(core)) if _is_paley(core) else None


def _is_paley(size: int) -> bool:
    prime = size - 1
    return prime % 4 == 3 and all(prime % divisor for divisor in range(3, int(prime**0.5) + 1, 2))


@cache
def hash_centers(classes: int, bits: int, *, seed: int) -> ClassCodes:
    """Return one hash center per class, ``(C, K)``, -1 or 1, read-only.

    Up to K classes have rows of a Hadamard matrix, and up to 2 K classes have its rows and their opposites. More classes
    have words with as many ones as minus ones, chosen one after the other so that any two differ in at least a given number
    of bits. This number is the largest for which there are enough words. It is also the rule for code lengths without a
    known Hadamard matrix. Beyond the number of all words, classes share centers.

    Source: Yuan et al., "Central Similarity Quantization for Efficient Image and Video Retrieval", CVPR 2020, generation of
        hash centers.
    """
    generator = seeds.numpy_generator(seed, "hash centers")
    matrix = hadamard_matrix(bits)
    if matrix is None or classes > 2 * bits:
        centers = _distant_words(classes, bits, generator)
    else:
        row_signs, column_signs = generator.choice(np.asarray([-1, 1], np.int8), (2, bits))
        rows = matrix[generator.permutation(bits)] * row_signs[:, None] * column_signs
        centers = np.concatenate([rows, -rows])[:classes]
    centers.setflags(write=False)
    return centers


@cache
def random_code(bits: int, *, seed: int) -> ClassCodes:
    """Return one random code, ``(K,)``, read-only, which decides bits in which the centers of an item's labels are tied."""
    code = seeds.numpy_generator(seed, "ties of hash centers").choice(np.asarray([-1, 1], np.int8), bits)
    code.setflags(write=False)
    return code


def _distant_words(classes: int, bits: int, generator: np.random.Generator) -> ClassCodes:
    """Return ``(C, K)`` words that are as far apart as the greedy choice reaches. Words repeat if there are too few.

    Balanced words have half as many ones as bits. All short words are candidates too, and are taken if they are farther
    apart. Short words are in lexicographic order, in which the choice finds more of them than in a random order.
    """
    if bits > ENUMERATED_BITS:
        order = generator.random((4 * classes + 4096, bits)).argsort(axis=1)
        balanced = np.where(order < bits // 2, 1, -1).astype(np.int8)
        _, chosen = most_separated(balanced, classes, most=classes)
    else:
        words = np.where(np.arange(2**bits)[:, None] >> np.arange(bits)[::-1] & 1, 1, -1).astype(np.int8)
        balanced = words[words.sum(axis=1, dtype=np.int64) == 2 * (bits // 2) - bits]
        candidates = [balanced, words] if len(balanced) >= classes else [words]
        found = [most_separated(some, classes, most=2**bits) for some in candidates]
        _, chosen = max(found, key=lambda pair: pair[0])
    order = generator.permutation(len(chosen))
    return chosen[np.resize(order, classes)][:, generator.permutation(bits)]


def most_separated(words: ClassCodes, count: int, *, most: int) -> tuple[int, ClassCodes]:
    """Return the largest distance at which `separated_words` finds ``count`` to ``most`` words, and these words.

    If there are fewer candidates ``(n, K)``, these are 0 and all candidates.
    """
    largest, chosen, too_large = 0, words, words.shape[1] // 2 + 1
    while too_large - largest > 1:
        distance = (largest + too_large) // 2
        found = separated_words(words, distance, most=most)
        if len(found) >= count:
            largest, chosen = distance, found
        else:
            too_large = distance
    return largest, chosen


def separated_words(words: ClassCodes, distance: int, *, most: int) -> ClassCodes:
    """Choose at most ``most`` words from first to last, each of which differs from all chosen ones in enough bits.

    The words ``(n, K)`` and the chosen ones are -1 or 1.

    Example:
        >>> separated_words(np.asarray([[1, 1], [1, -1], [-1, -1]], np.int8), 2, most=5).tolist()
        [[1, 1], [-1, -1]]
    """
    limit = words.shape[1] - 2 * distance
    chosen = np.zeros((0, words.shape[1]), np.float32)
    for start in range(0, len(words), BLOCK):
        # numpy multiplies floats with BLAS, but integers in a slow loop. Small whole numbers are exact either way.
        block = words[start : start + BLOCK].astype(np.float32)
        block = block[(block @ chosen.T).max(axis=1, initial=-np.inf) <= limit]
        apart = block @ block.T <= limit
        open_words, kept = np.ones(len(block), bool), []
        while open_words.any():
            kept.append(int(open_words.argmax()))
            open_words &= apart[kept[-1]]
        chosen = np.concatenate([chosen, block[kept]])
        if len(chosen) >= most:
            break
    return chosen[:most].astype(np.int8)
