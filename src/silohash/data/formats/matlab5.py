"""Read MATLAB files of version 5 to 7, which may be damaged or malicious.

Every size that a file states is checked against the bytes that are left before anything is allocated. Values are those of
`scipy.io.loadmat`, which trusts a file and can end the process. A file that is missing or damaged raises a `UserError`.

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
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.forms import damaged, detail, reading
from silohash.base.visible import visible

Order: TypeAlias = Literal["<", ">"]
"""A byte order, as `struct` and NumPy name it."""

HEADER_BYTES = 128
BLOCK_BYTES = 1 << 16
HEAD_BYTES = 1 << 12
"""Number of bytes in which the class, the dimensions and the name of a variable must lie."""

VERSION = 0x0100
COMPRESSED, MATRIX = 15, 14
NUMBERS: Mapping[int, str] = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
"""Types of elements that hold numbers, with the types of NumPy."""

WHOLE = {kind: name for kind, name in NUMBERS.items() if name[0] != "f"}
"""Types of elements that hold whole numbers."""

INT8, UINT8, UINT16, INT32, UINT32, UTF8, UTF16, UTF32 = 1, 2, 4, 5, 6, 16, 17, 18
CODECS = {INT8: "ascii", UINT8: "ascii", UTF8: "utf-8", UTF32: "utf-32"}
"""Types of elements that hold characters, with their encodings, besides those that hold units of UTF-16."""

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


@dataclass(frozen=True)
class Header:
    """What precedes the content of a matrix: its class, its parts (``real`` and perhaps ``imaginary``), shape and name."""

    kind: int
    parts: tuple[str, ...]
    shape: tuple[int, ...]
    name: str

    @property
    def count(self) -> int:
        """Number of items."""
        return math.prod(self.shape)


def headers(path: Path) -> list[Header]:
    """Return the headers of all variables of a file."""
    return [header for header, _ in _variables(path)]


def read_variables(path: Path, name: str | None = None) -> dict[str, Any]:
    """Return the first variable of a name, or all variables, each as scipy would.

    Numbers are arrays of the type in which they are stored, or sparse matrices; rows of characters are strings; cells are
    arrays of objects, structs are arrays with a field of objects per name. Functions become the object None.
    """
    found = {}
    for header, stored in _variables(path):
        if name in (None, header.name):
            with _locating(path, header.name):
                elements = stored.elements(whole=True)
                found[header.name] = elements.content_of(elements.header())
            if name is not None:
                break
    return found


@dataclass
class _Elements:
    """A sequence of elements in memory, read up to ``position``, in matrices that are nested ``depth`` deep."""

    content: memoryview
    order: Order
    depth: int = 0
    position: int = 0

    @property
    def left(self) -> int:
        """Number of bytes that are left."""
        return len(self.content) - self.position

    def take(self, count: int) -> memoryview:
        """Return the next bytes."""
        if count > self.left:
            raise ValueError(f"an element states {count:,} bytes, and {self.left:,} are left")
        self.position += count
        return self.content[self.position - count : self.position]

    def pair(self) -> tuple[int, int]:
        """Return the next two numbers, such as the type and size of an element whose data follow its tag."""
        first, second = struct.unpack(f"{self.order}II", self.take(8))
        return first, second

    def element(self, allowed: Container[int], what: str) -> tuple[int, memoryview]:
        """Return the type and the data of the next element."""
        (first,) = struct.unpack(f"{self.order}I", self.take(4))
        kind, small = first & 0xFFFF, first >> 16
        if small > 4:
            raise ValueError(f"{what} states {small:,} bytes within a tag, which holds 4")
        rest = self.take(4)
        if kind not in allowed:
            raise ValueError(f"{what} has the unknown type {kind}")
        if small:
            return kind, rest[:small]
        (size,) = struct.unpack(f"{self.order}I", rest)
        content = self.take(size)
        self.take(min(-size % 8, self.left))
        return kind, content

    def numbers(self, allowed: Mapping[int, str], what: str) -> npt.NDArray[Any]:
        """Return the numbers of the next element; bytes that do not make up a number are left out."""
        kind, content = self.element(allowed, what)
        return self.array(content, allowed[kind])

    def array(self, content: memoryview, kind: str) -> npt.NDArray[Any]:
        """Return bytes as numbers of a type of NumPy, such as ``i4``, in the byte order of the file."""
        dtype = np.dtype(kind).newbyteorder(self.order)
        return np.frombuffer(content[: len(content) // dtype.itemsize * dtype.itemsize], dtype)

    def text(self, what: str) -> str:
        """Return the text of the next element."""
        return bytes(self.element({INT8, UINT8, UTF8}, what)[1]).decode("latin-1")

    def header(self) -> Header:
        """Return what precedes the content of a matrix."""
        kind, size = self.pair()
        if kind not in (INT32, UINT32) or size != 8:
            raise ValueError(f"the flags of a matrix have the type {kind} and {size:,} bytes")
        flags, _ = self.pair()
        kind = flags & 0xFF
        if kind == OPAQUE:
            return Header(kind, (), (), "")
        if kind not in CONTENTS:
            raise ValueError(f"a matrix has the unknown class {kind}")
        _, stated = self.element({INT32, UINT32}, "the dimensions")
        shape = tuple(self.array(stated, "i4").tolist())
        if len(stated) % 4 or not 2 <= len(shape) <= MOST_DIMENSIONS or min(shape) < 0:
            raise ValueError(f"a matrix has the dimensions {shape}")
        return Header(kind, ("real", "imaginary")[: 2 if flags & COMPLEX_FLAG else 1], shape, self.text("the name"))

    def content_of(self, header: Header) -> Any:  # noqa: ANN401  any value
        """Return the value of the matrix whose header was read."""
        return CONTENTS[header.kind](self, header)

    def matrix(self) -> Any:  # noqa: ANN401  any value
        """Return the value of a matrix within another one."""
        kind, size = self.pair()
        if kind != MATRIX:
            raise ValueError(f"a matrix is expected, and the type is {kind}")
        inner = _Elements(self.take(size), self.order, self.depth + 1)
        if inner.depth > MOST_DEPTH:
            raise ValueError(f"matrices are nested more than {MOST_DEPTH} deep")
        if not size:
            return np.zeros((1, 0))
        value = inner.content_of(inner.header())
        if inner.left:
            raise ValueError(f"a matrix states {inner.left:,} bytes more than its elements have")
        return value

    def matrices(self, count: int) -> npt.NDArray[np.object_]:
        """Return the values of several matrices."""
        # A matrix takes at least the 8 bytes of its tag, so a damaged count ends before the loop.
        if count * 8 > self.left:
            raise ValueError(f"{count:,} matrices are stated, and {self.left:,} bytes are left")
        found = np.empty(count, object)
        for place in range(count):
            found[place] = self.matrix()
        return found


def _numbers(elements: _Elements, header: Header) -> npt.NDArray[Any]:
    parts = []
    for part in header.parts:
        kind, content = elements.element(NUMBERS, f"the {part} part")
        width = int(NUMBERS[kind][1:])
        if len(content) != header.count * width:
            raise ValueError(
                f"the {part} part has {len(content):,} bytes, and a matrix of {header.count:,} items of {width} bytes is "
                "stated"
            )
        parts.append(elements.array(content, NUMBERS[kind]).reshape(header.shape, order="F"))
    return parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]


def _strings(elements: _Elements, header: Header) -> npt.NDArray[np.str_]:
    kind, content = elements.element({*CODECS, UINT16, UTF16}, "the text")
    if not content and header.count <= MOST_WITHOUT_DATA:
        characters = np.full(header.count, " ")
    elif kind in CODECS:
        codec = CODECS[kind] + {"<": "-le", ">": "-be"}[elements.order] * (kind == UTF32)
        characters = np.array(list(bytes(content).decode(codec)), np.dtype("U1"))
    else:
        # One character per unit: those of two units are joined when a text is used.
        characters = elements.array(content, "u2").astype(np.uint32).view("U1")
    if len(characters) != header.count:
        raise ValueError(f"the text has {len(content):,} bytes, and {header.count:,} characters are stated")
    *rows, length = header.shape
    table = np.ascontiguousarray(characters.reshape(header.shape, order="F"))
    return table.view(f"U{length}")[..., 0] if length else np.full(rows, "")


def _sparse(elements: _Elements, header: Header) -> Any:  # noqa: ANN401  a sparse matrix of scipy, which has no types
    from scipy.sparse import csc_matrix

    if len(header.shape) != 2:
        raise ValueError(f"a sparse matrix has {len(header.shape)} dimensions")
    if header.count > MOST_DENSE:
        raise ValueError(f"a sparse matrix has {header.count:,} items, and at most {MOST_DENSE:,} can be used")
    rows, starts = (
        elements.numbers(WHOLE, f"the {what}").astype(np.int64) for what in ("row indices", "column starts")
    )
    starts = starts[: header.shape[1] + 1]
    if len(starts) <= header.shape[1] or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise ValueError(f"the column starts of a sparse matrix do not describe its {header.shape[1]:,} columns")
    stored = int(starts[-1])
    if stored > len(rows) or ((rows[:stored] < 0) | (rows[:stored] >= header.shape[0])).any():
        raise ValueError(f"a row index of a sparse matrix is missing, or is not one of its {header.shape[0]:,} rows")
    parts = []
    for part in header.parts:
        kind, content = elements.element(NUMBERS, f"the {part} part")
        # Truth values take a byte each, whatever the type.
        values = elements.array(content, "u1" if 0 < stored == len(content) else NUMBERS[kind])[:stored]
        if len(values) < stored:
            raise ValueError(f"the {part} part of a sparse matrix has {len(content):,} bytes for {stored:,} values")
        parts.append(values)
    values = parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]
    return csc_matrix((values, rows[:stored], starts), header.shape)


def _cells(elements: _Elements, header: Header) -> npt.NDArray[np.object_]:
    return elements.matrices(header.count).reshape(header.shape, order="F")


def _structs(elements: _Elements, header: Header) -> npt.NDArray[np.void]:
    _, stated = elements.element({INT32, UINT32}, "the length of field names")
    length = int(elements.array(stated, "i4")[0]) if len(stated) == 4 else 0
    names = elements.text("the field names")
    if length < 1 or len(names) % length:
        raise ValueError(f"field names of {length} characters are stated, and there are {len(names):,} characters")
    fields = [names[start : start + length].partition("\0")[0] for start in range(0, len(names), length)]
    if not fields and header.count > MOST_WITHOUT_DATA:
        raise ValueError(f"a struct without fields has {header.count:,} items")
    values = elements.matrices(header.count * len(fields)).reshape(header.count, len(fields))
    found = np.empty(header.count, [(field, object) for field in fields] or object)
    for place, field in enumerate(found.dtype.names or ()):
        found[field] = values[:, place]
    return found.reshape(header.shape, order="F")


def _objects(elements: _Elements, header: Header) -> npt.NDArray[np.void]:
    elements.text("the name of a class")
    return _structs(elements, header)


def _function(elements: _Elements, header: Header) -> npt.NDArray[np.object_]:
    if header.kind == OPAQUE:
        for what in ("the name", "the type system", "the name of a class"):
            elements.text(what)
    elements.matrix()
    return np.array([None], object)


CONTENTS: Mapping[int, Callable[[_Elements, Header], Any]] = {
    CELL: _cells,
    STRUCT: _structs,
    OBJECT: _objects,
    CHAR: _strings,
    SPARSE: _sparse,
    **dict.fromkeys(NUMERIC, _numbers),
    **dict.fromkeys((FUNCTION, OPAQUE), _function),
}
"""What follows the header of a matrix, by its class."""


@dataclass(frozen=True)
class _Stored:
    """A variable in a file: the bytes of its matrix, without the tag unless they are compressed."""

    stream: BufferedReader
    order: Order
    start: int
    length: int
    compressed: bool

    def elements(self, *, whole: bool = False) -> _Elements:
        """Return the elements of the matrix, or those that lie in its first `HEAD_BYTES`."""
        if not self.compressed:
            content = bytearray(self.length if whole else min(self.length, HEAD_BYTES))
            self.stream.seek(self.start)
            if self.stream.readinto(content) < len(content):
                raise ValueError("the data end too early")
            return _Elements(memoryview(content), self.order)
        kind, size = _Elements(memoryview(self._inflated(8)), self.order).pair()
        if kind != MATRIX or size > self.length * MOST_COMPRESSION:
            raise ValueError(f"a compressed variable has the type {kind} and {size:,} bytes in {self.length:,}")
        # One byte more than there should be, so that the end of the compressed data is read, with its checksum.
        content = self._inflated(8 + size + 1 if whole else min(8 + size, HEAD_BYTES))
        if whole and len(content) != 8 + size:
            raise ValueError("more compressed data follow than the variable has, or they end too early")
        return _Elements(memoryview(content)[8:], self.order)

    def _inflated(self, most: int) -> bytearray:
        """Return the first bytes of the compressed content, fewer only if it ends before."""
        inflater, content = zlib.decompressobj(), bytearray()
        self.stream.seek(self.start)
        blocks = iter(lambda: self.stream.read(min(BLOCK_BYTES, self.start + self.length - self.stream.tell())), b"")
        while len(content) < most and not inflater.eof:
            waiting = inflater.unconsumed_tail or next(blocks, b"")
            # A limit, because a few bytes can become gigabytes.
            part = inflater.decompress(waiting, most - len(content))
            if not waiting and not part:
                raise ValueError("the compressed data end too early")
            content += part
        return content


@contextmanager
def _locating(path: Path, name: str = "") -> Iterator[None]:
    """Name the file and the variable in the error of a check."""
    try:
        yield
    except (ValueError, zlib.error, struct.error) as error:
        where = f'variable "{visible(name)}": ' if name else ""
        raise damaged(path, f"{where}{detail(error)}", REMEDY) from error


def _variables(path: Path) -> Iterator[tuple[Header, _Stored]]:
    """Yield the header and the place of each variable."""
    with reading(path, remedy=REMEDY, missing="Restore the file."), path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        head = stream.read(HEADER_BYTES)
        orders: dict[bytes, Order] = {b"IM": "<", b"MI": ">"}
        order = orders.get(head[126:128])
        if order is None or struct.unpack(f"{order}H", head[124:126])[0] != VERSION or 0 in head[:4]:
            raise ValueError("its header is not that of a MATLAB file of version 5 to 7")
        place = HEADER_BYTES
        while place < size:
            stream.seek(place)
            with _locating(path):
                kind, length = _Elements(memoryview(stream.read(8)), order).pair()
                place += 8
                if kind not in (COMPRESSED, MATRIX) or length > size - place:
                    raise ValueError(
                        f"the variable at byte {place - 8:,} has the type {kind} and {length:,} bytes, and "
                        f"{size - place:,} are left"
                    )
                stored = _Stored(stream, order, place, length, kind == COMPRESSED)
                header = stored.elements().header()
            yield header, stored
            place += length
