"""Characters of MATLAB files of version 5 to 7: those beyond U+FFFF take two units of the array."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from silohash.data.formats.matlab import open_mat
from silohash.data.formats.matlab5_text import joined

TEXTS = ("a \U0001f600 dog", "na\u00efve \u674e", "\ud83d lone", "plain")
READ = ["a \U0001f600 dog", "na\u00efve \u674e", "\ufffd lone", "plain"]


def units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def element(order: str, kind: int, content: bytes) -> bytes:
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(order: str, kind: int, shape: tuple[int, ...], name: bytes, content: bytes) -> bytes:
    flags, dims = struct.pack(f"{order}II", kind, 0), struct.pack(f"{order}{len(shape)}i", *shape)
    head = element(order, 6, flags) + element(order, 5, dims) + element(order, 1, name)
    return element(order, 14, head + content)


def characters(order: str, kind: int, rows: np.ndarray, name: bytes = b"") -> bytes:
    """An array of characters as MATLAB writes it: one unit per character, column by column."""
    content = np.ascontiguousarray(rows.T).astype(f"{order}u2").tobytes()
    return matrix(order, 4, rows.shape, name, element(order, kind, content))


def written(path: Path, order: str, content: bytes) -> Path:
    mark = b"IM" if order == "<" else b"MI"
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}H", 0x0100) + mark + content)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [4, 17], ids=["numbers", "utf-16"])
def test_strings_in_cells_and_in_a_matrix(tmp_path: Path, order: str, kind: int) -> None:
    rows = [np.frombuffer(units(text), "<u2")[None] for text in TEXTS]
    cells = b"".join(characters(order, kind, row) for row in rows)
    file = open_mat(written(tmp_path / "a.mat", order, matrix(order, 1, (4, 1), b"texts", cells)))
    assert file.strings("texts", rows=4).tolist() == READ
    width = max(row.size for row in rows)
    table = np.concatenate([np.pad(row, ((0, 0), (0, width - row.size)), constant_values=32) for row in rows])
    file = open_mat(written(tmp_path / "b.mat", order, characters(order, kind, table, b"texts")))
    assert file.strings("texts", rows=4).tolist() == READ


def test_what_was_read_can_be_written_as_utf8() -> None:
    assert [joined(text).encode() for text in TEXTS] == [text.encode() for text in READ]
