"""Color profiles that are written tag by tag."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

ADOBE_RGB = ((0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457))
SRGB = ((0.43607, 0.22249, 0.01392), (0.38515, 0.71687, 0.09708), (0.14307, 0.06061, 0.71410))
"""XYZ of the red, green and blue of a color space, adapted to D50."""


def srgb_to_linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _fixed(value: float) -> int:
    return round(value * 65536)


def xyz(*values: float) -> bytes:
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *map(_fixed, values))


def curve(of: float | Callable[[float], float]) -> bytes:
    """A tone curve: a gamma, or a table of 1,024 values of a function."""
    if not callable(of):
        return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(of * 256))
    values = [round(of(step / 1023) * 65535) for step in range(1024)]
    return b"curv\0\0\0\0" + struct.pack(">I1024H", 1024, *values)


def profile(space: bytes, tags: dict[bytes, bytes], kind: bytes = b"mntr", connection: bytes = b"XYZ ") -> bytes:
    """A profile of version 2 with some tags besides those that each profile has."""
    texts = b"desc\0\0\0\0" + struct.pack(">I", 5) + b"test\0" + bytes(78)
    tags = {b"desc": texts, b"cprt": b"text\0\0\0\0none\0", b"wtpt": xyz(0.9642, 1, 0.8249), **tags}
    table, data = struct.pack(">I", len(tags)), b""
    start = 128 + 4 + 12 * len(tags)
    for name, content in tags.items():
        table += name + struct.pack(">II", start + len(data), len(content))
        data += content + b"\0" * (-len(content) % 4)
    size = 128 + len(table) + len(data)
    header = struct.pack(">I4sI4s4s4s", size, b"none", 0x02400000, kind, space, connection) + bytes(12) + b"acsp"
    header = header.ljust(68, b"\0") + struct.pack(">3i", *map(_fixed, (0.9642, 1, 0.8249)))
    return header.ljust(128, b"\0") + table + data


def rgb_profile(primaries: tuple[tuple[float, ...], ...], tone: float | Callable[[float], float]) -> bytes:
    tags = {b"rXYZ": xyz(*primaries[0]), b"gXYZ": xyz(*primaries[1]), b"bXYZ": xyz(*primaries[2])}
    return profile(b"RGB ", tags | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve(tone)))


def gray_profile(tone: float) -> bytes:
    return profile(b"GRAY", {b"kTRC": curve(tone)})


def cmyk_profile() -> bytes:
    """A press whose inks are all gray: lightness falls by 20 % with each of C, M and Y, and by 40 % with K."""
    ramp = bytes(range(256))
    corners = np.stack(np.meshgrid(*[[0, 1]] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    lightness = 100 - corners @ np.array([20, 20, 20, 40])
    grid = b"".join(bytes([round(value * 2.55), 128, 128]) for value in lightness)
    matrix = struct.pack(">9i", *map(_fixed, (1, 0, 0, 0, 1, 0, 0, 0, 1)))
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + matrix + ramp * 4 + grid + ramp * 3
    return profile(b"CMYK", dict.fromkeys((b"A2B0", b"A2B1"), table), b"prtr", b"Lab ")


def converted(pixels: np.ndarray, primaries: tuple[tuple[float, ...], ...], gamma: float) -> np.ndarray:
    """The values in sRGB, 0 to 255, of values in a space with a gamma, by the formulas in float64."""
    linear = (np.asarray(pixels, np.float64) / 255) ** gamma
    wanted = linear @ np.array(primaries) @ np.linalg.inv(np.array(SRGB))
    clipped = np.clip(wanted, 0, 1)
    return 255 * np.where(clipped <= 0.0031308, clipped * 12.92, 1.055 * clipped ** (1 / 2.4) - 0.055)
