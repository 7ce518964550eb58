"""PNG files of 16 bits per sample that are written chunk by chunk, because Pillow writes only gray ones."""

from __future__ import annotations

import struct
import zlib

import numpy as np

COLORS = {1: 0, 3: 2, 2: 4, 4: 6}
"""Color types by the number of channels."""


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(values: np.ndarray, *chunks: tuple[bytes, bytes]) -> bytes:
    """The content of a PNG file of ``(h, w)`` or ``(h, w, n)`` values of 16 bits, with further chunks before the pixels."""
    height, width, *rest = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, COLORS[rest[0] if rest else 1], 0, 0, 0)
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
