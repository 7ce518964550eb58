"""Draw icons as pictures of one size."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.base.files import digest_json, read_npy, write_bytes
from silohash.base.optional import require
from silohash.data.build.icons.libraries import Icon

SIZE, DRAWN_SIZE = 64, 128
"""Side of a picture, and height of a drawing before it is reduced, in pixels."""

GRAY_STEP = 17
"""Difference of two of the 16 gray levels of a picture without colors."""

Pixels: TypeAlias = npt.NDArray[np.uint8]


def draw(svg: str, *, color: bool) -> Pixels:
    """Draw an icon on a white square: ``(64, 64)`` gray, or ``(64, 64, 3)`` in color."""
    from resvg_py import svg_to_bytes

    svg = svg.replace("currentColor", "#000")
    content = svg_to_bytes(svg_string=svg, height=DRAWN_SIZE, background="#ffffff", skip_system_fonts=True)
    drawn = Image.open(io.BytesIO(content)).convert("RGB" if color else "L")
    side = max(drawn.size)
    square = Image.new(drawn.mode, (side, side), "white")
    square.paste(drawn, ((side - drawn.width) // 2, (side - drawn.height) // 2))
    picture = np.asarray(square.resize((SIZE, SIZE), Image.Resampling.LANCZOS))
    return picture if color else np.round(picture / GRAY_STEP).astype(np.uint8) * np.uint8(GRAY_STEP)


def draw_all(icons: Sequence[Icon], cache: Path, *, color: bool, said: Callable[[str], None]) -> Pixels:
    """Draw icons, ``(N, 64, 64)`` or ``(N, 64, 64, 3)``, or return the drawings that an earlier call left in the cache.

    Raises:
        UserError: If the package that draws is missing, or the disk is full.
    """
    path = cache / f"{digest_json([SIZE, color, [icon.svg for icon in icons]])}.npy"
    if not path.is_file():
        require("resvg_py", "Drawing icons")
        said(f"Drawing {len(icons):,} icons of {icons[0].silo}")
        stream = io.BytesIO()
        np.save(stream, np.stack([draw(icon.svg, color=color) for icon in icons]), allow_pickle=False)
        write_bytes(path, stream.getvalue())
    return read_npy(path)


def png_of(picture: Pixels) -> bytes:
    """Return a picture as the content of a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG", optimize=True)
    return stream.getvalue()
