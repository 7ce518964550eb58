"""Check the elements of a MATLAB file of version 5 to 7 before scipy reads it.

scipy trusts the types, sizes and indices that a file states, and a damaged file can end the process. `check_variables` and
`check_contents` follow the elements in the order in which scipy reads them and refuse a file that contradicts itself. They
do not allocate more than the file holds. Numbers are skipped, except the indices of sparse matrices. A file that is missing
or damaged raises a `UserError`.

A file is a header of 128 bytes and a sequence of elements. An element is a tag (type and size in bytes) with data, which is
padded to a multiple of 8 bytes. Data of up to 4 bytes may lie within the tag. A variable is an element of the type matrix,
which may be compressed. The data of a matrix are elements again: flags with its class, dimensions, name, and what the class
needs.

Source: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import DamagedFile, MissingFile, UserError
from silohash.base.forms import detail, reading
from silohash.base.visible import visible

Order: TypeAlias = Literal["<", ">"]
"""A byte order, as `struct` and NumPy name it."""

HEADER_BYTES = 128
BLOCK_BYTES = 1 << 16
VERSION = 0x0100
COMPRESSED, MATRIX = 15, 14
NUMBERS: Mapping[int, str] = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
"""Types of elements that hold numbers, with the types of NumPy."""

WHOLE = {kind: name for kind, name in NUMBERS.items() if name[0] != "f"}
"""Types of elements that hold whole numbers."""

INT8, INT32, UINT32, UTF8, UTF16, UTF32 = 1, 5, 6, 16, 17, 18
CHARACTERS: Mapping[int, int] = {1: 1, 2: 1, 4: 2, UTF8: 0, UTF16: 0, UTF32: 4}
"""Types of elements that hold characters, with the bytes of a character; 0 if they differ."""

CELL, STRUCT, OBJECT, CHAR, SPARSE, FUNCTION, OPAQUE = 1, 2, 3, 4, 5, 16, 17
NUMERIC = range(6, 16)
COMPLEX_FLAG = 1 << 11
MOST_DIMENSIONS = 32
MOST_DEPTH = 64
MOST_WITHOUT_DATA = 1 << 20
"""Most items of a matrix that the file states without storing anything for them."""

MOST_DENSE = 1 << 31
"""Most items of a sparse matrix, which becomes a dense one."""

MOST_COMPRESSION = 1032
"""Bytes that one compressed byte can become."""

REMEDY = "Compare its size with the size at its source, and download it again."


@dataclass
class Inflated:
    """The content of a compressed element in a file, of which a block at a time is in memory, read forward as a file is."""

    stream: BinaryIO
    left: int
    inflater: zlib._Decompress = field(default_factory=zlib.decompressobj)
    waiting: bytes = b""

    def read(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        return b"".join(self._parts(count))

    def seek(self, count: int, _: Literal[1]) -> None:
        """Leave out bytes.

        Raises:
            ValueError: If the data end before.
        """
        if sum(map(len, self._parts(count))) < count:
            raise ValueError("the compressed data end too early")

    def is_complete(self) -> bool:
        """Return whether the data end here, and their checksum is right."""
        return not self._next(1) and self.inflater.eof

    def _parts(self, count: int) -> Iterator[bytes]:
        while count and (part := self._next(min(count, BLOCK_BYTES))):
            yield part
            count -= len(part)

    def _next(self, most: int) -> bytes:
        while not self.inflater.eof:
            if not self.waiting:
                self.waiting = self.stream.read(min(self.left, BLOCK_BYTES))
                self.left -= len(self.waiting)
            ended = not self.waiting
            # A limit, because a few bytes can become gigabytes.
            part = self.inflater.decompress(self.waiting, most)
            self.waiting = self.inflater.unconsumed_tail
            if part or ended:
                return part
        return b""


@dataclass(frozen=True)
class _Header:
    """What precedes the content of a matrix."""

    kind: int
    parts: tuple[str, ...]
    shape: tuple[int, ...]
    name: str

    @property
    def count(self) -> int:
        """Number of items."""
        return math.prod(self.shape)


@dataclass
class _Walk:
    """The position in a sequence of elements, which ends at ``end`` and lies in matrices that are nested ``depth`` deep."""

    source: BinaryIO | Inflated
    order: Order
    end: int
    position: int = 0
    depth: int = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        self._check(count)
        content = self.source.read(count)
        if len(content) < count:
            raise ValueError("the data end too early")
        self.position += count
        return content

    def skip(self, count: int) -> None:
        """Leave out the next bytes."""
        self._check(count)
        self.source.seek(count, 1)
        self.position += count

    def _check(self, count: int) -> None:
        if count > self.end - self.position:
            raise ValueError(f"an element states {count:,} bytes, and {self.end - self.position:,} are left")

    def numbers(self, kind: str, content: bytes) -> npt.NDArray[np.generic]:
        """Return the numbers of a type of NumPy, such as ``i4``, in the byte order of the file."""
        return np.frombuffer(content, np.dtype(kind).newbyteorder(self.order))

    def full_tag(self) -> tuple[int, int]:
        """Return type and size of an element whose data follow its tag."""
        kind, size = struct.unpack(f"{self.order}II", self.take(8))
        return kind, size

    def element(self, allowed: Mapping[int, object], what: str, *, read: bool = True) -> tuple[int, int, bytes]:
        """Return type, size and data of the next element. The data are left out unless ``read`` is set."""
        (first,) = struct.unpack(f"{self.order}I", self.take(4))
        kind, small = first & 0xFFFF, first >> 16
        if small:
            size, content = small, self.take(4)[:small]
            if small > 4:
                raise ValueError(f"{what} states {small:,} bytes within a tag, which holds 4")
        else:
            (size,) = struct.unpack(f"{self.order}I", self.take(4))
        if kind not in allowed:
            raise ValueError(f"{what} has the unknown type {kind}")
        if not small:
            content = self.take(size) if read else b""
            self.skip(0 if read else size)
            self.skip(min(-size % 8, self.end - self.position))
        return kind, size, content

    def text(self, what: str) -> str:
        """Return the text of an element."""
        _, _, content = self.element({INT8: 0, 2: 0, UTF8: 0}, what)
        return content.decode("latin-1")

    def header(self) -> _Header:
        """Return what precedes the content of a matrix."""
        kind, size = self.full_tag()
        if kind not in (INT32, UINT32) or size != 8:
            raise ValueError(f"the flags of a matrix have the type {kind} and {size:,} bytes")
        flags, _ = struct.unpack(f"{self.order}II", self.take(8))
        kind = flags & 0xFF
        if kind == OPAQUE:
            return _Header(kind, (), (), "")
        if kind not in CONTENTS:
            raise ValueError(f"a matrix has the unknown class {kind}")
        _, size, content = self.element({INT32: 0, UINT32: 0}, "the dimensions")
        shape = tuple(int(length) for length in self.numbers("i4", content[: size - size % 4]))
        if size % 4 or not 2 <= len(shape) <= MOST_DIMENSIONS or min(shape) < 0:
            raise ValueError(f"a matrix has the dimensions {shape}")
        return _Header(kind, ("real", "imaginary")[: 2 if flags & COMPLEX_FLAG else 1], shape, self.text("the name"))

    def matrix(self) -> None:
        """Check a matrix within another one."""
        kind, size = self.full_tag()
        if kind != MATRIX:
            raise ValueError(f"a matrix is expected, and the type is {kind}")
        self._check(size)
        if self.depth >= MOST_DEPTH:
            raise ValueError(f"matrices are nested more than {MOST_DEPTH} deep")
        if not size:
            return
        inner = _Walk(self.source, self.order, self.position + size, self.position, self.depth + 1)
        header = inner.header()
        CONTENTS[header.kind](inner, header)
        if inner.position != inner.end:
            raise ValueError(f"a matrix states {inner.end - inner.position:,} bytes more than its elements have")
        self.position = inner.position


def _check_numbers(walk: _Walk, header: _Header) -> None:
    for part in header.parts:
        kind, size, _ = walk.element(NUMBERS, f"the {part} part", read=False)
        width = int(NUMBERS[kind][1:])
        if size != header.count * width:
            raise ValueError(
                f"the {part} part has {size:,} bytes, and a matrix of {header.count:,} items of {width} bytes is stated"
            )


def _check_characters(walk: _Walk, header: _Header) -> None:
    kind, size, _ = walk.element(CHARACTERS, "the text", read=False)
    width = CHARACTERS[kind]
    fits = size == header.count * width if width else header.count <= size
    if not fits and (size or header.count > MOST_WITHOUT_DATA):
        raise ValueError(f"the text has {size:,} bytes, and {header.count:,} characters are stated")


def _check_sparse(walk: _Walk, header: _Header) -> None:
    if len(header.shape) != 2:
        raise ValueError(f"a sparse matrix has {len(header.shape)} dimensions")
    if header.count > MOST_DENSE:
        raise ValueError(f"a sparse matrix has {header.count:,} items, and at most {MOST_DENSE:,} can be used")
    stored = _check_indices(header.shape, _indices(walk, "the row indices"), _indices(walk, "the column starts"))
    for part in header.parts:
        kind, size, _ = walk.element(NUMBERS, f"the {part} part", read=False)
        # Truth values take a byte each, whatever the type.
        if size < stored * int(NUMBERS[kind][1:]) and size != stored:
            raise ValueError(f"the {part} part of a sparse matrix has {size:,} bytes for {stored:,} values")


def _indices(walk: _Walk, what: str) -> npt.NDArray[np.int64]:
    kind, size, content = walk.element(WHOLE, what)
    return walk.numbers(NUMBERS[kind], content[: size - size % int(NUMBERS[kind][1:])]).astype(np.int64)


def _check_indices(shape: tuple[int, ...], rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> int:
    """Return the number of stored values of a sparse matrix, after a check of its row indices and column starts."""
    columns = shape[1]
    if len(starts) < columns + 1 or starts[0] != 0 or (np.diff(starts[: columns + 1]) < 0).any():
        raise ValueError(f"the column starts of a sparse matrix do not describe its {columns:,} columns")
    stored = int(starts[columns])
    if stored > len(rows) or ((rows[:stored] < 0) | (rows[:stored] >= shape[0])).any():
        raise ValueError(f"a row index of a sparse matrix is missing, or is not one of its {shape[0]:,} rows")
    return stored


def _check_matrices(walk: _Walk, count: int) -> None:
    # A matrix takes at least the 8 bytes of its tag, so a damaged count ends before the loop.
    if count * 8 > walk.end - walk.position:
        raise ValueError(f"{count:,} matrices are stated, and {walk.end - walk.position:,} bytes are left")
    for _ in range(count):
        walk.matrix()


def _check_struct(walk: _Walk, header: _Header) -> None:
    _, size, content = walk.element({INT32: 0, UINT32: 0}, "the length of field names")
    length = int(walk.numbers("i4", content)[0]) if size == 4 else 0
    names = walk.text("the field names")
    if length < 1 or len(names) % length:
        raise ValueError(f"field names of {length} characters are stated, and there are {len(names):,} characters")
    fields = len(names) // length
    if not fields and header.count > MOST_WITHOUT_DATA:
        raise ValueError(f"a struct without fields has {header.count:,} items")
    _check_matrices(walk, header.count * fields)


def _check_object(walk: _Walk, header: _Header) -> None:
    walk.text("the name of a class")
    _check_struct(walk, header)


def _check_opaque(walk: _Walk, _: _Header) -> None:
    for what in ("the name", "the type system", "the name of a class"):
        walk.text(what)
    walk.matrix()


CONTENTS: Mapping[int, Callable[[_Walk, _Header], None]] = {
    CELL: lambda walk, header: _check_matrices(walk, header.count),
    STRUCT: _check_struct,
    OBJECT: _check_object,
    CHAR: _check_characters,
    SPARSE: _check_sparse,
    **dict.fromkeys(NUMERIC, _check_numbers),
    FUNCTION: lambda walk, _: walk.matrix(),
    OPAQUE: _check_opaque,
}
"""What follows the header of a matrix, by its class."""


def check_variables(path: Path) -> None:
    """Check the header of every variable, which is what scipy reads to list them."""
    for _ in _variables(path):
        pass


def check_contents(path: Path, name: str | None = None) -> None:
    """Check the whole content of a variable, or of all, before scipy reads it."""
    for header, walk, inflated in _variables(path):
        if name in (None, header.name):
            with _locating(path, header.name):
                CONTENTS[header.kind](walk, header)
                if inflated is not None:
                    walk.skip(walk.end - walk.position)
                    if not inflated.is_complete():
                        raise ValueError("more compressed data follow than the variable has, or they end too early")


@contextmanager
def _locating(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, zlib.error, struct.error) as error:
        where = f'variable "{visible(name)}": ' if name else ""
        raise _damaged(path, f"{where}{detail(error)}") from error


@contextmanager
def explaining_damage(path: Path) -> Iterator[None]:
    """Replace the errors that scipy and h5py raise on damaged files.

    Raises:
        UserError: In place of them.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing. Restore the file.") from error
    except (OSError, ValueError, TypeError, KeyError, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, what: str) -> UserError:
    return DamagedFile(f"{path} is damaged or incomplete ({what}). {REMEDY}")


def _variables(path: Path) -> Iterator[tuple[_Header, _Walk, Inflated | None]]:
    """Yield the header of each variable, the walk behind it, and its compressed data if it is compressed."""
    with reading(path, remedy=REMEDY, missing="Restore the file."), path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        order = _byte_order(stream.read(HEADER_BYTES), path)
        place = HEADER_BYTES
        while place < size:
            with _locating(path, ""):
                stream.seek(place)
                file = _Walk(stream, order, size, place)
                kind, length = file.full_tag()
                content = file.position
                if kind not in (COMPRESSED, MATRIX) or length > size - content:
                    raise ValueError(
                        f"the variable at byte {place:,} has the type {kind} and {length:,} bytes, and "
                        f"{size - content:,} are left"
                    )
                walk, inflated = file, None
                walk.end = content + length
                if kind == COMPRESSED:
                    inflated = Inflated(stream, length)
                    walk = _inflated_walk(inflated, order, length)
                header = walk.header()
            yield header, walk, inflated
            place = content + length


def _inflated_walk(inflated: Inflated, order: Order, length: int) -> _Walk:
    walk = _Walk(inflated, order, 8)
    kind, size = walk.full_tag()
    if kind != MATRIX or size > length * MOST_COMPRESSION:
        raise ValueError(f"a compressed variable has the type {kind} and {size:,} bytes in {length:,}")
    walk.end = walk.position + size
    return walk


def _byte_order(header: bytes, path: Path) -> Order:
    """Return the byte order that a file's header states, as `Order` names it."""
    orders: dict[bytes, Order] = {b"IM": "<", b"MI": ">"}
    order = orders.get(header[126:128])
    if order is None or struct.unpack(f"{order}H", header[124:126])[0] != VERSION or 0 in header[:4]:
        raise _damaged(path, "its header is not that of a MATLAB file of version 5 to 7")
    return order
