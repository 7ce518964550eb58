"""Binary target codes of classes that are far apart, computed without data."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from silohash import seeds

ClassCodes = npt.NDArray[np.int8]

CANDIDATES = 512
"""Number of random codes among which each code is chosen if the codes are not rows of a Hadamard matrix."""


def hadamard(size: int) -> ClassCodes:
    """Return Sylvester's Hadamard matrix, whose rows are orthogonal.

    Args:
        size: A power of two.

    Returns:
        ``(size, size)``, -1 or 1.

    Example:
        >>> hadamard(2).tolist()
        [[1, 1], [1, -1]]
    """
    matrix = np.ones((1, 1), np.int8)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


@cache
def class_codes(classes: int, bits: int, *, exclusive: bool, seed: int) -> ClassCodes:
    """Return one code per class.

    The codes are rows of a Hadamard matrix if the number of bits is a power of two and there are enough rows. One of its
    columns is constant. Rows with random signs are as far apart, and give every bit both values. If labels are exclusive,
    opposite rows are used too. Otherwise, the codes are chosen one after the other among random codes.

    Args:
        classes: Number of classes C.
        bits: Code length K.
        exclusive: Whether every item has at most one label.
        seed: Seed for the order and signs of rows and columns, and for the random codes.

    Returns:
        ``(C, K)``, -1 or 1, read-only.
    """
    codes = _class_codes(classes, bits, exclusive=exclusive, seed=seed)
    codes.setflags(write=False)
    return codes


def _class_codes(classes: int, bits: int, *, exclusive: bool, seed: int) -> ClassCodes:
    generator = seeds.numpy_generator(seed, "class codes")
    if bits & (bits - 1) == 0 and classes <= (2 * bits if exclusive else bits):
        shuffled = hadamard(bits)[generator.permutation(bits)][:, generator.permutation(bits)]
        row_signs, column_signs = generator.choice(np.asarray([-1, 1], np.int8), (2, bits))
        shuffled = shuffled * row_signs[:, None] * column_signs
        return np.concatenate([shuffled, -shuffled])[:classes]
    return _greedy_codes(classes, bits, exclusive=exclusive, generator=generator)


def _greedy_codes(classes: int, bits: int, *, exclusive: bool, generator: np.random.Generator) -> ClassCodes:
    """Choose each code as the candidate whose largest inner product with the codes so far is smallest.

    If items may have several labels, opposite codes are as bad as equal ones, so the absolute value counts.
    """
    codes = np.zeros((classes, bits), np.int8)
    for number in range(classes):
        candidates = generator.choice(np.asarray([-1, 1], np.int8), (CANDIDATES, bits))
        products = candidates.astype(np.int64) @ codes[:number].T
        closest = (products if exclusive else np.abs(products)).max(axis=1, initial=-bits)
        codes[number] = candidates[closest.argmin()]
    return codes
