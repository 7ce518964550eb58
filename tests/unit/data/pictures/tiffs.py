"""TIFF files that are written tag by tag, so that each can declare what a test needs."""

from __future__ import annotations

import struct
import zlib

import numpy as np

KINDS = {"u": 1, "i": 2, "f": 3}
SIZES = {"B": 1, "H": 2, "L": 4, "h": 2, "i": 4, "f": 4, "d": 8, "s": 1}
TYPES = {"B": 1, "s": 2, "H": 3, "L": 4, "h": 8, "i": 9, "f": 11, "d": 12}


def tiff(
    values: np.ndarray, tags: dict[int, tuple[str, object]] | None = None, *, order: str = "<", **options
) -> bytes:
    """The content of a TIFF file of one strip.

    Args:
        values: ``(h, w)`` or ``(h, w, n)`` numbers.
        tags: further tags, by number: a letter of `struct` and a value, or several.
        order: ``<`` for II, ``>`` for MM.
        options: ``inverted`` for white-is-zero, ``deflated`` for compression, ``planes`` for separate planes.
    """
    height, width, *rest = values.shape
    count = rest[0] if rest else 1
    planes = np.moveaxis(values, -1, 0) if options.get("planes") else values
    content = planes.astype(values.dtype.newbyteorder(order)).tobytes()
    parts = [content]
    if options.get("planes"):
        parts = [content[i * len(content) // count : (i + 1) * len(content) // count] for i in range(count)]
    if options.get("deflated"):
        parts = [zlib.compress(part) for part in parts]
    photometric = 2 if count >= 3 else 0 if options.get("inverted") else 1
    offsets = tuple(8 + sum(map(len, parts[:i])) for i in range(len(parts)))
    known = {
        256: ("L", width),
        257: ("L", height),
        258: ("H", (values.dtype.itemsize * 8,) * count),
        259: ("H", 8 if options.get("deflated") else 1),
        262: ("H", photometric),
        273: ("L", offsets),
        277: ("H", count),
        278: ("L", height),
        279: ("L", tuple(map(len, parts))),
        284: ("H", 2 if options.get("planes") else 1),
        339: ("H", (KINDS[values.dtype.kind],) * count),
        **({338: ("H", 2)} if count in {2, 4} else {}),
        **(tags or {}),
    }
    return assembled(b"".join(parts), known, order)


def assembled(content: bytes, tags: dict[int, tuple[str, object]], order: str = "<") -> bytes:
    """A TIFF file of some pixel data, which begins at byte 8, and of its tags."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "H", 42)
    content += b"\0" * (len(content) % 2)
    start = 8 + len(content)
    extra_at = start + 2 + 12 * len(tags) + 4
    entries, extra = b"", b""
    for tag, (letter, value) in sorted(tags.items()):
        if letter == "s":
            data, number = str(value).encode() + b"\0", len(str(value)) + 1
        else:
            listed = value if isinstance(value, tuple) else (value,)
            data, number = struct.pack(f"{order}{len(listed)}{letter}", *listed), len(listed)
        if len(data) > 4:
            data, extra = struct.pack(order + "L", extra_at + len(extra)), extra + data + b"\0" * (len(data) % 2)
        entries += struct.pack(order + "HHL", tag, TYPES[letter], number) + data.ljust(4, b"\0")
    directory = struct.pack(order + "H", len(tags)) + entries + struct.pack(order + "L", 0) + extra
    return head + struct.pack(order + "L", start) + content + directory
