"""Codes: the signs of a tower's outputs, packed into unsigned words.

Bit ``j`` of a code is 1 where output ``j`` is at least 0 (so ``sign(0) = +1``), and stands at place ``j % w`` of word
``j // w`` for words of ``w`` bits, lowest place first. A code of up to 16 bits is one uint16, of up to 32 bits one
uint32, a longer one as many uint64 as it needs; places beyond the last bit are zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.types import Modality, Rows, UserError

WORD_BITS = 64
BITS_LOWEST = 8
BITS_HIGHEST = 256

Words: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Packed codes, ``(N, W)`` uint16, uint32 or uint64."""

CodeBytes: TypeAlias = npt.NDArray[np.uint8]
"""Packed codes without the padding of words, ``(N, bytes)``: the form that is stored and scanned."""

BLOCK_ROWS = 1 << 16


def word_type(bits: int) -> np.dtype[Any]:
    """Returns the type of the words that hold codes of so many bits (little-endian).

    Raises:
        UserError: unless ``bits`` lies in 8..256.

    Example:
        >>> word_type(12), word_type(24), word_type(128)
        (dtype('uint16'), dtype('uint32'), dtype('uint64'))
    """
    if not BITS_LOWEST <= bits <= BITS_HIGHEST:
        raise UserError(f"Codes have {BITS_LOWEST} to {BITS_HIGHEST} bits, not {bits}. Choose another `bits`.")
    return np.dtype("<u2" if bits <= 16 else "<u4" if bits <= 32 else "<u8")


def word_count(bits: int) -> int:
    """Returns how many words a code of so many bits takes."""
    return -(-bits // (word_type(bits).itemsize * 8))


def byte_count(bits: int) -> int:
    """Returns how many bytes a code of so many bits takes where it is stored and scanned."""
    return -(-bits // 8)


def pack(values: npt.ArrayLike) -> Words:
    """Packs the signs of real outputs (or signs themselves) into words.

    Args:
        values: ``(N, bits)`` real numbers or integers; a value of at least 0 is a set bit.

    Returns:
        ``(N, W)`` words.

    Raises:
        UserError: if a value is NaN, or the width is no supported number of bits.

    Example:
        >>> pack([[1.0, -1.0, 0.0, -2.0, -1.0, -1.0, -1.0, 3.0]])
        array([[133]], dtype=uint16)
    """
    real = np.asarray(values)
    if real.ndim != 2:
        raise UserError(f"Outputs to be packed are a table (items, bits), not of shape {real.shape}.")
    count, bits = real.shape
    words = np.zeros((count, word_count(bits)), word_type(bits))
    for start in range(0, count, BLOCK_ROWS):
        block = real[start : start + BLOCK_ROWS]
        if np.isnan(block).any():
            row = start + int(np.isnan(block).any(axis=1).argmax())
            raise UserError(f"The output of item {row} is NaN, which has no sign. Look for a training that diverged.")
        packed = np.packbits(block >= 0, axis=1, bitorder="little")
        words[start : start + len(block)].view(np.uint8)[:, : packed.shape[1]] = packed
    return words


def unpack(words: Words, bits: int) -> npt.NDArray[np.int8]:
    """Unpacks words into signs.

    Args:
        words: ``(N, W)``.
        bits: length of the codes.

    Returns:
        ``(N, bits)`` int8, each -1 or +1.

    Example:
        >>> unpack(pack(np.array([[1, -1] * 6])), 12)[0, :3]
        array([ 1, -1,  1], dtype=int8)
    """
    places = np.unpackbits(to_bytes(words, bits), axis=1, count=bits, bitorder="little")
    return places.astype(np.int8) * np.int8(2) - np.int8(1)


def check_words(words: Words, bits: int) -> Words:
    """Returns the words as a contiguous ``(N, W)`` array of the type that ``bits`` asks for.

    Raises:
        UserError: if they have another width, or bits set beyond the last.
    """
    kind, width = word_type(bits), word_count(bits)
    given = np.asarray(words)
    if given.ndim != 2 or given.shape[1] != width or given.dtype != kind:
        raise UserError(
            f"Codes of {bits} bits are packed as (items, {width}) {kind.name}, not {given.shape} {given.dtype.name}. "
            "Were they made by a model with another number of bits?"
        )
    used = bits - (width - 1) * kind.itemsize * 8
    if used < kind.itemsize * 8 and (given[:, -1] >> kind.type(used)).any():
        raise UserError(f"These codes have bits set beyond bit {bits}. Were they made with another number of bits?")
    return np.ascontiguousarray(given, kind)


def to_bytes(words: Words, bits: int) -> CodeBytes:
    """Returns packed codes as ``(N, bytes)`` uint8, without the padding of words."""
    return check_words(words, bits).view(np.uint8)[:, : byte_count(bits)]


def from_bytes(packed: CodeBytes, bits: int) -> Words:
    """Returns the ``(N, W)`` words of what `to_bytes` gave."""
    words = np.zeros((len(packed), word_count(bits)), word_type(bits))
    words.view(np.uint8)[:, : byte_count(bits)] = packed
    return words


@dataclass(frozen=True)
class Codes:
    """The codes of some items in one modality, and the model that made them.

    Attributes:
        words: ``(N, W)`` packed codes.
        bits: length of a code.
        ids: ``(N,)`` strings.
        modality: what was encoded.
        model_digest: digest of the model; only codes of one digest may be compared.
    """

    words: Words
    bits: int
    ids: npt.NDArray[np.str_]
    modality: Modality
    model_digest: str

    def __post_init__(self) -> None:
        check_words(self.words, self.bits)
        if len(self.ids) != len(self.words):
            raise UserError(f"There are {len(self.words)} codes but {len(self.ids)} ids; each code needs one.")

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: Rows) -> Codes:
        """Returns the codes of some rows."""
        return replace(self, words=self.words[rows], ids=self.ids[rows])

    def signs(self) -> npt.NDArray[np.int8]:
        """Returns the codes as ``(N, bits)`` int8 in {-1, +1}."""
        return unpack(self.words, self.bits)
