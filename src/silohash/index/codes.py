"""Hash codes: the signs of a tower's outputs, packed into unsigned words.

Bit ``j`` of a code is 1 if output ``j`` is at least 0, so ``sign(0) = +1``. With words of ``w`` bits, it is stored at bit
``j % w`` of word ``j // w``, least significant bit first. Codes of up to 16 bits are one uint16, codes of up to 32 bits
are one uint32, and longer codes are as many uint64 as needed. Bits beyond the code length are zero.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base import errors
from silohash.base.arrays import given, whole
from silohash.base.files import check_replaceable, write_bytes
from silohash.base.forms import reading
from silohash.base.optional import require
from silohash.base.types import MODALITIES, Modality, Rows

if TYPE_CHECKING:
    import faiss

BITS_LOWEST = 8
BITS_HIGHEST = 256

Words: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Packed codes, ``(N, W)`` uint16, uint32 or uint64."""

CodeBytes: TypeAlias = npt.NDArray[np.uint8]
"""Packed codes without padding, ``(N, bytes)``: the form in which codes are stored and scanned."""

Magnitudes: TypeAlias = npt.NDArray[np.uint8]
"""Magnitudes of the outputs whose signs are codes, ``(N, bits)``, relative to the largest of each row, which is 255."""

BLOCK_ROWS = 1 << 16

FILE_MARKS: Mapping[str, bytes] = {".npz": b"model_digest.npy", ".csv": b"id,code\n", ".parquet": b"model_digest"}
"""Endings of the names of files with codes, and a text that each such file has."""


@cache
def word_type(bits: int) -> np.dtype[Any]:
    """Return the little-endian word type for codes of ``bits`` bits.

    Raises:
        UserError: If ``bits`` is not between 8 and 256.

    Example:
        >>> word_type(12), word_type(24), word_type(128)
        (dtype('uint16'), dtype('uint32'), dtype('uint64'))
    """
    if not BITS_LOWEST <= bits <= BITS_HIGHEST:
        raise errors.OutOfRange(
            f"The code length {bits} is not supported. Set bits to a value from {BITS_LOWEST} to {BITS_HIGHEST}."
        )
    return np.dtype("<u2" if bits <= 16 else "<u4" if bits <= 32 else "<u8")


@cache
def word_count(bits: int) -> int:
    """Return the number of words per code of ``bits`` bits."""
    return -(-bits // (word_type(bits).itemsize * 8))


def byte_count(bits: int) -> int:
    """Return the number of bytes per stored code of ``bits`` bits."""
    return -(-bits // 8)


def pack(values: npt.ArrayLike) -> Words:
    """Pack the signs of real numbers or integers, ``(N, bits)``, into ``(N, W)`` words. A value of at least 0 is a set bit.

    Raises:
        UserError: If a value is NaN, or the number of columns is not a supported code length.

    Example:
        >>> pack([[1.0, -1.0, 0.0, -2.0, -1.0, -1.0, -1.0, 3.0]])
        array([[133]], dtype=uint16)
    """
    real = np.asarray(values)
    if real.ndim != 2:
        raise errors.WrongShape(f"The values have shape {real.shape}. Give a table of shape (items, bits).")
    count, bits = real.shape
    words = np.zeros((count, word_count(bits)), word_type(bits))
    for start in range(0, count, BLOCK_ROWS):
        block = real[start : start + BLOCK_ROWS]
        if np.isnan(block).any():
            row = start + int(np.isnan(block).any(axis=1).argmax())
            raise errors.NotFinite(
                f"The output of item {row} is NaN, which has no sign. Check whether training diverged."
            )
        words[start : start + len(block)] = pack_bits(block >= 0)
    return words


def magnitudes_of(outputs: npt.NDArray[np.floating[Any]]) -> Magnitudes:
    """Return the magnitudes of real outputs, ``(N, bits)``, as 8-bit numbers.

    Example:
        >>> magnitudes_of(np.array([[2.0, -1.0, 0.0]]))
        array([[255, 128,   0]], dtype=uint8)
    """
    sizes = np.nan_to_num(np.abs(outputs, dtype=np.float64))
    largest = sizes.max(axis=1, keepdims=True, initial=np.finfo(np.float64).tiny)
    return np.asarray(np.rint(sizes / largest * 255), np.uint8)


def pack_bits(values: npt.NDArray[np.bool_]) -> Words:
    """Pack bits, ``(N, bits)`` bool, into ``(N, W)`` words.

    Raises:
        UserError: If the number of columns is not a supported code length.
    """
    bits = values.shape[1]
    return from_bytes(np.packbits(values, axis=1, bitorder="little"), bits)


def unpack(words: Words, bits: int) -> npt.NDArray[np.int8]:
    """Unpack ``(N, W)`` words into signs, ``(N, bits)`` int8, each -1 or +1.

    Example:
        >>> unpack(pack(np.array([[1, -1] * 6])), 12)[0, :3]
        array([ 1, -1,  1], dtype=int8)
    """
    places = np.unpackbits(to_bytes(words, bits), axis=1, count=bits, bitorder="little")
    return places.astype(np.int8) * np.int8(2) - np.int8(1)


def check_words(words: Words, bits: int) -> Words:
    """Return the words as a contiguous ``(N, W)`` array, after checking that they fit the code length.

    Raises:
        UserError: If the shape or type does not fit ``bits``, or bits beyond the code length are set.
    """
    kind, width = word_type(bits), word_count(bits)
    given = np.asarray(words)
    if given.ndim != 2 or given.shape[1] != width or given.dtype != kind:
        raise errors.WrongShape(
            f"Codes of {bits} bits are packed as (items, {width}) {kind.name}, not {given.shape} {given.dtype.name}. "
            "Check that they come from a model with the same number of bits."
        )
    used = bits - (width - 1) * kind.itemsize * 8
    if used < kind.itemsize * 8 and (given[:, -1] >> kind.type(used)).any():
        raise errors.BitsDiffer(
            f"Some codes have bits set beyond bit {bits}. Check that they come from a model with the same number of bits."
        )
    return np.ascontiguousarray(given, kind)


def check_magnitudes(magnitudes: Magnitudes | None, count: int, bits: int) -> None:
    """Check that magnitudes, unless they are None, are those of ``count`` codes.

    Raises:
        UserError: If their shape or type differs.
    """
    if magnitudes is not None and (magnitudes.shape != (count, bits) or magnitudes.dtype != np.uint8):
        raise errors.LengthsDiffer(
            f"The magnitudes have the shape {magnitudes.shape} and the type {magnitudes.dtype}. Give one uint8 per bit of "
            "each code."
        )


def to_bytes(words: Words, bits: int) -> CodeBytes:
    """Return packed codes as ``(N, bytes)`` uint8, without padding."""
    return check_words(words, bits).view(np.uint8)[:, : byte_count(bits)]


def from_bytes(packed: CodeBytes, bits: int) -> Words:
    """Return the ``(N, W)`` words for the result of `to_bytes`."""
    words = np.zeros((len(packed), word_count(bits)), word_type(bits))
    words.view(np.uint8)[:, : byte_count(bits)] = packed
    return words


@dataclass(frozen=True)
class Codes:
    """Hold the codes of items in one modality, and the digest of the model that computed them.

    Attributes:
        words: ``(N, W)`` packed codes.
        bits: Code length.
        ids: ``(N,)`` item ids.
        modality: The modality that was encoded.
        model_digest: Digest of the model. Only codes with the same digest can be compared.
        magnitudes: ``(N, bits)`` magnitudes of the outputs; None if they are not known.
    """

    words: Words
    bits: int
    ids: npt.NDArray[np.str_]
    modality: Modality
    model_digest: str
    magnitudes: Magnitudes | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", whole("bits", self.bits, BITS_LOWEST))
        words = given("words", self.words).values
        if isinstance(words, list):
            raise errors.WrongType(
                "The words of codes are a list. Give packed words of an unsigned type as a NumPy array."
            )
        object.__setattr__(self, "words", check_words(words, self.bits))
        object.__setattr__(self, "ids", _names(given("ids", self.ids).values))
        if len(self.ids) != len(self.words):
            raise errors.LengthsDiffer(
                f"There are {len(self.words)} codes but {len(self.ids)} ids. Give one id per code."
            )
        check_magnitudes(self.magnitudes, len(self), self.bits)
        for name, choices in (("modality", MODALITIES), ("model_digest", None)):
            value = getattr(self, name)
            if not isinstance(value, str) or (choices and value not in choices):
                raise errors.WrongType(f"The {name} of codes is {value!r}. Use {' or '.join(choices or ('a str',))}.")

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        """Return the number, length and modality of the codes, and the digest of their model, in one line."""
        return f"Codes({len(self):,} {self.modality} codes of {self.bits} bits, model {self.model_digest})"

    def take(self, rows: Rows) -> Self:
        """Return the codes of the given rows.

        Raises:
            UserError: If a row does not exist.
        """
        try:
            words, ids = self.words[rows], self.ids[rows]
            magnitudes = None if self.magnitudes is None else self.magnitudes[rows]
        except Exception as error:
            # Rows can be an object of any library, so the error can have any type.
            raise errors.OutOfRange(
                f"There are {len(self)} codes, and these rows cannot be taken ({error})."
            ) from error
        return replace(self, words=words, ids=ids, magnitudes=magnitudes)

    def signs(self) -> npt.NDArray[np.int8]:
        """Return the codes as ``(N, bits)`` int8 in {-1, +1}."""
        return unpack(self.words, self.bits)

    def save(self, path: str | Path) -> None:
        """Write the codes as ``.npz``, which `load` reads, ``.csv`` (id and code) or ``.parquet`` (see `to_parquet`).

        In a ``.csv`` a code is two hexadecimal digits per byte; bit j of the code is bit ``j % 8`` of byte ``j // 8``.

        Raises:
            UserError: If the name has another ending, or the file exists and does not hold codes (`check_output`).
        """
        write = {".npz": _as_npz, ".csv": _as_csv, ".parquet": _as_parquet}
        check_output(Path(path))
        write_bytes(Path(path), write[Path(path).suffix](self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read codes that were saved as ``.npz``.

        Raises:
            UserError: If the file is missing or does not hold codes.
        """
        remedy, missing = "Give a .npz file that silohash wrote.", "Check its path."
        with reading(Path(path), remedy=remedy, missing=missing), Path(path).open("rb") as stream:
            values = dict(np.load(stream, allow_pickle=False))
            about = {name: values.pop(name).item() for name in ("bits", "modality", "model_digest")}
            return cls(**values, **about)

    def to_parquet(self, path: str | Path) -> None:
        """Write the codes as a Parquet table of ids and codes, the bytes of `to_bytes`; its metadata tell the rest.

        Raises:
            UserError: If the name does not end with ``.parquet``, or the file exists and does not hold codes.
        """
        if Path(path).suffix != ".parquet":
            raise errors.WrongKindOfFile(f'{path} does not end with ".parquet". Use save for other kinds of files.')
        self.save(path)

    def to_faiss(self) -> faiss.IndexBinaryFlat:
        """Return an exact FAISS index of the codes in their order. Bits beyond the code length are 0 in its last byte.

        Raises:
            UserError: If FAISS is not installed.
        """
        require("faiss", "An index of FAISS")
        import faiss

        index = faiss.IndexBinaryFlat(8 * byte_count(self.bits))
        index.add(np.ascontiguousarray(to_bytes(self.words, self.bits)))
        return index


def check_output(path: Path) -> None:
    """Check, before anything is encoded, that codes can be written to a file.

    Raises:
        UserError: If the name of the file has another ending, or the file exists and does not hold codes.
    """
    if path.suffix not in FILE_MARKS:
        raise errors.WrongKindOfFile(
            f"{path}: codes are written as {', '.join(FILE_MARKS)}. Give the file one of these endings."
        )
    check_replaceable(path, FILE_MARKS[path.suffix])


def _as_npz(codes: Codes) -> bytes:
    arrays = {name: np.asarray(getattr(codes, name)) for name in ("ids", "words", "bits", "modality", "model_digest")}
    if codes.magnitudes is not None:
        arrays["magnitudes"] = codes.magnitudes
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def _as_csv(codes: Codes) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["id", "code"])
    hexadecimal = (row.tobytes().hex() for row in to_bytes(codes.words, codes.bits))
    writer.writerows(zip(codes.ids.tolist(), hexadecimal, strict=True))
    return stream.getvalue().encode("utf-8")


def _as_parquet(codes: Codes) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    stored = [row.tobytes() for row in to_bytes(codes.words, codes.bits)]
    columns = {
        "id": pa.array(codes.ids.tolist(), pa.string()),
        "code": pa.array(stored, pa.binary(byte_count(codes.bits))),
    }
    about = {"bits": str(codes.bits), "modality": codes.modality, "model_digest": codes.model_digest}
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns).replace_schema_metadata(about), stream)
    return stream.getvalue()


def _names(ids: npt.NDArray[Any] | list[Any]) -> npt.NDArray[np.str_]:
    if isinstance(ids, list) and all(isinstance(name, str) for name in ids):
        return np.array(ids, np.str_)
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind == "U":
        return ids
    form = f"{ids.dtype} of shape {ids.shape}" if isinstance(ids, np.ndarray) else "not all of type str"
    raise errors.WrongType(f"The ids of codes are {form}. Give one str per code.")
