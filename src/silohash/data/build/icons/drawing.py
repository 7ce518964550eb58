"""Draw icons as pictures of one size, and find pictures that are nearly equal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.base.files import digest_json, write_bytes
from silohash.base.optional import require
from silohash.data.build.icons.libraries import Icon

SIZE, DRAWN_SIZE, COMPARED_SIZE = 64, 128, 32
"""Side of a picture, height of a drawing before it is reduced, and side of pictures that are compared, in pixels."""

GRAY_STEP = 17
"""Difference of two of the 16 gray levels of a picture without colors."""

WHITE = 255
BLOCK = 1024
DRAWING = "resvg_py"

Drawings = npt.NDArray[np.uint8]
"""Pictures of one library: ``(N, 64, 64)`` gray or ``(N, 64, 64, 3)`` in color."""


def draw(svg: str, *, color: bool) -> Drawings:
    """Draw one icon on a white square, black where it leaves the color to the page: ``(64, 64)``, or with three colors."""
    from resvg_py import svg_to_bytes

    content = svg_to_bytes(
        svg_string=svg.replace("currentColor", "#000"), height=DRAWN_SIZE, background="#ffffff", skip_system_fonts=True
    )
    drawn = Image.open(io.BytesIO(content)).convert("RGB")
    side = max(drawn.size)
    square = Image.new("RGB", (side, side), (WHITE, WHITE, WHITE))
    square.paste(drawn, ((side - drawn.width) // 2, (side - drawn.height) // 2))
    picture = np.asarray(square.convert("RGB" if color else "L").resize((SIZE, SIZE), Image.Resampling.LANCZOS))
    return picture if color else ((picture.astype(int) + GRAY_STEP // 2) // GRAY_STEP * GRAY_STEP).astype(np.uint8)


def draw_all(icons: Sequence[Icon], cache: Path, *, color: bool, said: Callable[[str], None]) -> Drawings:
    """Draw the icons of a library, or return the drawings that an earlier call left in the cache.

    Raises:
        UserError: If the package that draws is missing, or the disk is full.
    """
    require(DRAWING, "Drawing icons")
    path = cache / f"{icons[0].silo}-{digest_json([SIZE, [(icon.name, icon.svg) for icon in icons]])}.npy"
    if path.is_file():
        drawn: Drawings = np.load(path, allow_pickle=False)
        return drawn
    said(f"Drawing {len(icons):,} icons of {icons[0].silo}")
    drawn = np.stack([draw(icon.svg, color=color) for icon in icons])
    stream = io.BytesIO()
    np.save(stream, drawn, allow_pickle=False)
    write_bytes(path, stream.getvalue())
    return drawn


def png_of(picture: Drawings) -> bytes:
    """Return a picture as the content of a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def ink_of(picture: Drawings) -> npt.NDArray[np.float32]:
    """Return the ink of a picture at a quarter of its area as a vector of length 1, ``(1024,)``; zeros if it is blank."""
    small = Image.fromarray(picture).convert("L").reduce(SIZE // COMPARED_SIZE)
    ink = WHITE - np.asarray(small, np.float32).reshape(-1)
    length = np.float32(np.linalg.norm(ink))
    return ink / length if length else ink


def near_pairs(
    ink: npt.NDArray[np.float32], least: float, others: npt.NDArray[np.float32] | None = None
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of rows of one or two sets of pictures whose ink has at least this cosine, in order."""
    against = ink if others is None else others
    for start in range(0, len(ink), BLOCK):
        near = np.argwhere(ink[start : start + BLOCK] @ against.T >= least)
        near[:, 0] += start
        yield from map(tuple, near[near[:, 0] < near[:, 1]].tolist() if others is None else near.tolist())
