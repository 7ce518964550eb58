"""PNG files of 16 bits per sample that are written chunk by chunk, because Pillow writes only gray ones."""

from __future__ import annotations

import struct
import zlib

import numpy as np

COLORS = {1: 0, 3: 2, 2: 4, 4: 6}
"""Color types by the number of channels."""


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row and column, and the steps between rows and columns, of each pass of an interlaced file."""


def png(values: np.ndarray, *chunks: tuple[bytes, bytes], interlaced: bool = False) -> bytes:
    """The content of a PNG file of ``(h, w)`` or ``(h, w, n)`` values of 16 bits, with further chunks before the pixels."""
    height, width, *rest = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, COLORS[rest[0] if rest else 1], 0, 0, interlaced)
    passes = [values[r::dr, c::dc] for r, c, dr, dc in (PASSES if interlaced else ((0, 0, 1, 1),))]
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for part in passes for line in part)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
