"""MATLAB files of version 5 that contradict themselves are refused before scipy reads them, which would end the process."""

from __future__ import annotations

import io
import random
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.base.errors import DamagedFile, MissingFile, UserError
from silohash.data.formats import matlab5_check
from silohash.data.formats.matlab import open_mat
from silohash.data.formats.matlab5_check import Inflated, check_contents, check_variables

HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
INT8, UINT8, INT32, UINT32, DOUBLE, MATRIX, COMPRESSED, UTF8 = 1, 2, 5, 6, 9, 14, 15, 16
CELL, STRUCT, CHAR, SPARSE, NUMBERS, FUNCTION, OPAQUE = 1, 2, 4, 5, 6, 16, 17


def element(kind: int, content: bytes, stated: int | None = None, order: str = "<") -> bytes:
    size = len(content) if stated is None else stated
    return struct.pack(f"{order}II", kind, size) + content + bytes(-len(content) % 8)


def small(kind: int, content: bytes, stated: int | None = None) -> bytes:
    size = len(content) if stated is None else stated
    return struct.pack("<HH", kind, size) + content.ljust(4, b"\0")


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def doubles(*values: float) -> bytes:
    return element(DOUBLE, struct.pack(f"<{len(values)}d", *values))


def matrix(kind: int, shape: tuple[int, ...], *parts: bytes, name: bytes = b"a", flags: int = 0) -> bytes:
    """Return a matrix of a class with flags, dimensions, name and further elements."""
    head = element(UINT32, struct.pack("<II", kind | flags, 0)) + element(INT32, ints(*shape)) + element(INT8, name)
    return element(MATRIX, head + b"".join(parts))


def fields(*names: bytes, length: int = 8) -> bytes:
    return small(INT32, ints(length)) + element(INT8, b"".join(name.ljust(length, b"\0") for name in names))


def packed(content: bytes) -> bytes:
    """Return a compressed element, which is not padded."""
    squeezed = zlib.compress(content)
    return struct.pack("<II", COMPRESSED, len(squeezed)) + squeezed


def sparse(
    shape: tuple[int, ...] = (3, 2),
    rows: tuple[int, ...] = (0, 2),
    starts: tuple[int, ...] = (0, 1, 2),
    values: tuple[float, ...] = (1.0, 2.0),
) -> bytes:
    return matrix(SPARSE, shape, element(INT32, ints(*rows)), element(INT32, ints(*starts)), doubles(*values))


ONE = matrix(NUMBERS, (1, 1), doubles(5.0))
GOOD: dict[str, bytes] = {
    "numbers": matrix(NUMBERS, (1, 2), doubles(1.0, 2.0)),
    "numbers of a smaller type within the tag": matrix(NUMBERS, (1, 3), small(UINT8, b"\1\2\3")),
    "three axes": matrix(NUMBERS, (1, 2, 2), doubles(*range(4))),
    "complex": matrix(NUMBERS, (1, 1), doubles(1.0), doubles(2.0), flags=1 << 11),
    "nothing": matrix(NUMBERS, (0, 3), doubles()),
    "text": matrix(CHAR, (1, 2), element(UTF8, b"ab")),
    "text of several bytes": matrix(CHAR, (1, 2), element(UTF8, "äö".encode())),
    "spaces that are not stored": matrix(CHAR, (1, 2), element(UTF8, b"")),
    "cells": matrix(CELL, (1, 2), ONE, element(MATRIX, b"")),
    "struct": matrix(STRUCT, (1, 1), fields(b"x", b"y"), ONE, ONE),
    "struct without fields": matrix(STRUCT, (1, 1), fields()),
    "sparse": sparse(),
    "sparse with room for more": sparse(rows=(0, 2, 9), starts=(0, 1, 2), values=(1.0, 2.0, 0.0)),
    "compressed": packed(ONE),
    "two variables": ONE + packed(matrix(CHAR, (1, 2), element(UTF8, b"ab"), name=b"b")),
}

BAD: dict[str, tuple[bytes, str]] = {
    "unknown element": (element(20, b""), "the variable at byte 128 has the type 20 and 0 bytes"),
    "cut in a tag": (ONE + b"\x0e\0\0", r"an element states 8 bytes, and 3 are left"),
    "cut in a variable": (ONE[:-8], r"the variable at byte 128 has the type 14 and 64 bytes, and 56 are left"),
    "tag within a tag": (matrix(NUMBERS, (1, 1), small(UINT8, b"", stated=5)), "5 bytes within a tag, which holds 4"),
    "larger than its matrix": (
        matrix(NUMBERS, (1, 1), element(DOUBLE, b"", stated=2**32 - 1)),
        "an element states 4,294,967,295 bytes, and 0 are left",
    ),
    "unknown class": (matrix(25, (1, 1), doubles(1.0)), "a matrix has the unknown class 25"),
    "unknown type of numbers": (matrix(NUMBERS, (1, 1), element(255, bytes(8))), "real part has the unknown type 255"),
    "text as numbers": (matrix(NUMBERS, (1, 1), element(UTF8, b"a")), "the real part has the unknown type 16"),
    "numbers as text": (matrix(CHAR, (1, 1), doubles(1.0)), "the text has the unknown type 9"),
    "fewer numbers": (matrix(NUMBERS, (2, 2), doubles(1.0)), "8 bytes, and a matrix of 4 items of 8 bytes is stated"),
    "more numbers": (matrix(NUMBERS, (1, 1), doubles(1.0, 2.0)), "16 bytes, and a matrix of 1 items of 8 bytes"),
    "overflowing dimensions": (matrix(NUMBERS, (2**30, 2**30, 16), doubles()), "of 18,446,744,073,709,551,616 items"),
    "no imaginary part": (
        matrix(NUMBERS, (1, 1), doubles(1.0), flags=1 << 11),
        "an element states 4 bytes, and 0 are left",
    ),
    "one axis": (matrix(NUMBERS, (1,), doubles(1.0)), r"a matrix has the dimensions \(1,\)"),
    "33 axes": (matrix(NUMBERS, (1,) * 33, doubles(1.0)), r"a matrix has the dimensions"),
    "negative axis": (matrix(NUMBERS, (-1, -1), doubles(1.0)), r"a matrix has the dimensions \(-1, -1\)"),
    "flags of another size": (
        element(MATRIX, element(UINT32, bytes(16)) + ONE[16:]),
        "the flags of a matrix have the type 6 and 16 bytes",
    ),
    "text that is not stored": (matrix(CHAR, (1, 2**21), element(UTF8, b"")), "0 bytes, and 2,097,152 characters"),
    "more text than stored": (matrix(CHAR, (1, 3), element(UTF8, b"ab")), "2 bytes, and 3 characters are stated"),
    "cells that are not there": (matrix(CELL, (2, 1), ONE[:64]), "an element states 64 bytes, and 56 are left"),
    "a billion cells": (matrix(CELL, (2**30, 1), ONE), "1,073,741,824 matrices are stated, and 72 bytes are left"),
    "a cell of another type": (matrix(CELL, (1, 1), doubles(1.0)), "a matrix is expected, and the type is 9"),
    "a cell that is too long": (
        matrix(CELL, (1, 1), element(MATRIX, ONE[8:] + bytes(8))),
        "a matrix states 8 bytes more than its elements have",
    ),
    "fields of no length": (matrix(STRUCT, (1, 1), fields(length=0), ONE), "field names of 0 characters"),
    "fields of another length": (
        matrix(STRUCT, (1, 1), small(INT32, ints(5)) + element(INT8, bytes(8)), ONE),
        "field names of 5 characters are stated, and there are 8",
    ),
    "many structs without fields": (
        matrix(STRUCT, (2**21, 1), fields()),
        "a struct without fields has 2,097,152 items",
    ),
    "fewer fields": (
        matrix(STRUCT, (1, 1), fields(*(b"xyzabcdefghijk"[i : i + 1] for i in range(14))), ONE),
        "14 matr",
    ),
    "row index too large": (sparse(rows=(0, 3)), "row index of a sparse matrix .* is not one of its 3 rows"),
    "negative row index": (sparse(rows=(0, -1)), "row index of a sparse matrix .* is not one of its 3 rows"),
    "row index missing": (sparse(rows=(0,)), "row index of a sparse matrix is missing"),
    "starts that fall": (
        sparse(starts=(0, 2, 1)),
        "the column starts of a sparse matrix do not describe its 2 columns",
    ),
    "starts that begin late": (sparse(starts=(1, 1, 2)), "the column starts of a sparse matrix"),
    "too few starts": (sparse(starts=(0, 2)), "the column starts of a sparse matrix"),
    "too few values": (sparse(values=(1.0,)), "the real part of a sparse matrix has 8 bytes for 2 values"),
    "sparse in three axes": (sparse(shape=(3, 2, 1)), "a sparse matrix has 3 dimensions"),
    "sparse and huge": (sparse(shape=(2**30, 4), starts=(0, 1, 2, 2, 2)), "4,294,967,296 items, and at most"),
    "damaged compression": (struct.pack("<II", COMPRESSED, 8) + b"12345678", "while decompressing"),
    "compressed and cut": (struct.pack("<II", COMPRESSED, 20) + packed(ONE)[8:28], "end too early"),
    "compressed with a wrong checksum": (packed(ONE)[:-1] + bytes([packed(ONE)[-1] ^ 1]), "incorrect data check"),
    "compressed and longer": (packed(ONE + ONE), "more compressed data follow"),
    "compressed number": (packed(element(DOUBLE, bytes(8))), "a compressed variable has the type 9"),
    "more than compression allows": (packed(ONE[:4] + b"\xff\xff\xff\xff" + ONE[8:]), "4,294,967,295 bytes in "),
    "compressed twice": (packed(packed(ONE)), "a compressed variable has the type 15"),
}


def written(folder: Path, content: bytes, header: bytes = HEADER) -> Path:
    path = folder / "a.mat"
    path.write_bytes(header + content)
    return path


@pytest.mark.parametrize("name", GOOD)
def test_files_of_every_kind_are_accepted(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, GOOD[name])
    check_variables(path)
    check_contents(path)
    expected = 2 if name == "two variables" else 1
    assert len(scipy.io.whosmat(path)) == expected
    assert scipy.io.loadmat(path)["a"] is not None


@pytest.mark.parametrize("name", BAD)
def test_contradictions_are_refused(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    path = written(tmp_path, content)
    with pytest.raises(DamagedFile, match=message) as refused:
        check_contents(path)
    assert str(refused.value).startswith(f"{path} is damaged or incomplete (")
    assert str(refused.value).endswith(matlab5_check.REMEDY)
    with pytest.raises(UserError):
        open_mat(path).variable("a").array()


@pytest.mark.parametrize(
    "header", [HEADER[:124] + b"\x00\x02IM", HEADER[:-2] + b"XY", b"M\0" + HEADER[2:], HEADER[:90]]
)
def test_headers_that_are_refused(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(DamagedFile):
        check_variables(written(tmp_path, b"", header))


def test_other_variables_are_not_checked_until_they_are_wanted(tmp_path: Path) -> None:
    path = written(tmp_path, ONE + matrix(CELL, (1, 1), doubles(1.0), name=b"b"))
    check_variables(path)
    check_contents(path, "a")
    assert open_mat(path).variable("a").array().tolist() == [[5.0]]
    with pytest.raises(DamagedFile, match=r"variable.*9"):
        check_contents(path, "b")
    with pytest.raises(MissingFile):
        check_contents(tmp_path / "b.mat")


@pytest.mark.parametrize("most", [1, 3])
def test_depth_is_limited(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab5_check, "MOST_DEPTH", most)
    nested = ONE
    for _ in range(most):
        nested = matrix(CELL, (1, 1), nested)
    check_contents(written(tmp_path, nested))
    with pytest.raises(DamagedFile, match=str(most)):
        check_contents(written(tmp_path, matrix(CELL, (1, 1), nested)))


def test_files_of_the_other_byte_order_are_followed(tmp_path: Path) -> None:
    def part(kind: int, form: str, *values: float) -> bytes:
        return element(kind, struct.pack(f">{form}", *values), order=">")

    head = part(UINT32, "2I", NUMBERS, 0) + part(INT32, "2i", 1, 2) + element(INT8, b"a", order=">")
    header = HEADER[:124] + b"\x01\x00MI"
    path = written(tmp_path, element(MATRIX, head + part(DOUBLE, "2d", 1.0, 2.0), order=">"), header)
    check_contents(path)
    assert open_mat(path).variable("a").array().tolist() == [[1.0, 2.0]]
    with pytest.raises(DamagedFile, match=r"2.*8"):
        check_contents(written(tmp_path, element(MATRIX, head + part(DOUBLE, "d", 1.0), order=">"), header))


def variables() -> dict[str, Mapping[str, Any]]:
    """Return variables of each kind."""
    cells = np.empty((2, 2), object)
    cells[:] = [["im1.jpg", "b"], [np.arange(3.0), np.empty((0, 0))]]
    columns = scipy.sparse.random(6, 5, 0.4, format="csc", random_state=0)
    return {
        "numbers": {"a": np.arange(24.0).reshape(4, 6), "b": np.array([[True, False]]), "z": np.array([[1 + 2j, 3]])},
        "characters": {"t": np.array(["abc", "de "]), "u": "grün", "e": ""},
        "cells": {"c": cells},
        "structs": {
            "s": {"I": np.arange(12, dtype=np.uint8).reshape(2, 3, 2), "d": {"y": 1.5, "n": "hello"}, "c": cells}
        },
        "sparse": {"s": columns, "e": scipy.sparse.csc_matrix((3, 4)), "z": (columns * (1 + 1j)).tocsc()},
    }


def files() -> list[bytes]:
    """Return plain files of each kind, which are compressed after they are damaged."""
    contents = []
    for values in variables().values():
        stream = io.BytesIO()
        scipy.io.savemat(stream, dict(values))
        contents.append(stream.getvalue())
    return contents


FILES = files()
NUMBERS_TO_TRY = (0, 1, 4, 8, 10, 14, 19, 20, 25, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 0x40001, 0x50001)


def change_byte(draw: random.Random, content: bytearray, place: int) -> None:
    content[place] = draw.randrange(256)


def change_number(draw: random.Random, content: bytearray, place: int) -> None:
    place -= place % 4
    content[place : place + 4] = struct.pack("<I", draw.choice(NUMBERS_TO_TRY))


def cut(draw: random.Random, content: bytearray, place: int) -> None:
    del content[place : place + draw.choice((1, 4, 8, len(content)))]


def insert(draw: random.Random, content: bytearray, place: int) -> None:
    content[place:place] = draw.randbytes(draw.choice((1, 4, 8)))


DAMAGES: tuple[Callable[[random.Random, bytearray, int], None], ...] = (change_byte, change_number, cut, insert)


def in_compressed_parts(content: bytes) -> bytes:
    """Return a file whose variables are compressed, as far as the damage lets them be found."""
    parts, place = [content[:128]], 128
    while place + 8 <= len(content):
        _, size = struct.unpack("<II", content[place : place + 8])
        parts.append(packed(content[place : place + 8 + size]))
        place += 8 + size
    return b"".join(parts)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_damaged_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, seed: int, compressed: bool
) -> None:
    """Without the checks, scipy ends the process for one damaged file in fifty."""
    draw = random.Random(seed)
    content = bytearray(draw.choice(FILES))
    for _ in range(draw.choice((1, 1, 2, 4))):
        if len(content) > 128:
            draw.choice(DAMAGES)(draw, content, draw.randrange(128, len(content)))
    path = tmp_path_factory.getbasetemp() / "damaged.mat"
    path.write_bytes(in_compressed_parts(bytes(content)) if compressed else bytes(content))
    with suppress(UserError):
        file = open_mat(path)
        for name, variable in file.variables.items():
            with suppress(UserError):
                file.variable(name).array() if variable.holds == "numbers" else file.variable(name).strings()


def test_variables_of_each_kind_are_unchanged_by_the_checks(tmp_path: Path) -> None:
    for kind, values in variables().items():
        for compressed in (False, True):
            path = tmp_path / f"{kind}.mat"
            scipy.io.savemat(path, dict(values), do_compression=compressed)
            check_contents(path)
            assert {re.split("/", name)[0] for name in open_mat(path).variables} == set(values)


CONTENT = bytes(range(256)) * 40


def sources() -> list[Any]:
    packed = zlib.compress(CONTENT)
    return [io.BytesIO(CONTENT), Inflated(io.BytesIO(packed + b"more"), len(packed))]


@pytest.mark.parametrize("block", [1, 7, 256, 1 << 16])
@pytest.mark.parametrize("number", [0, 1])
def test_bytes_are_taken_and_left_out_in_order(number: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab5_check, "BLOCK_BYTES", block)
    source = sources()[number]
    assert source.read(0) == b""
    assert source.read(300) == CONTENT[:300]
    source.seek(1000, 1)
    source.seek(0, 1)
    assert source.read(5) == CONTENT[1300:1305]
    assert source.read(len(CONTENT)) == CONTENT[1305:]
    assert source.read(1) == b""


def test_compressed_bytes_end_where_they_should() -> None:
    packed = zlib.compress(CONTENT)

    def opened(content: bytes) -> Inflated:
        return Inflated(io.BytesIO(content), len(content))

    whole = opened(packed)
    assert not whole.is_complete()
    whole = opened(packed)
    whole.seek(len(CONTENT), 1)
    assert whole.is_complete()
    cut = opened(packed[:-1])
    cut.seek(len(CONTENT), 1)
    assert not cut.is_complete()
    with pytest.raises(ValueError, match="the compressed data end too early"):
        opened(packed).seek(len(CONTENT) + 1, 1)
    wrong = opened(packed[:-1] + bytes([packed[-1] ^ 1]))
    with pytest.raises(zlib.error, match="incorrect data check"):
        wrong.seek(len(CONTENT), 1), wrong.is_complete()
