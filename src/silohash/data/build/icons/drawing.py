"""Draw icons as pictures of one size."""

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.data.pictures.formats import open_picture

SIZE, DRAWN_SIZE = 64, 128
"""Side of a picture, and height of a drawing before it is reduced, in pixels."""

GRAY_STEP = 17
"""Difference of two of the 16 gray levels of a picture without colors."""


def draw(svg: str, *, color: bool) -> npt.NDArray[np.uint8]:
    """Draw an icon on a white square: ``(64, 64)`` gray, or ``(64, 64, 3)`` in color."""
    from resvg_py import svg_to_bytes

    svg = svg.replace("currentColor", "#000")
    content = svg_to_bytes(svg_string=svg, height=DRAWN_SIZE, background="#ffffff", skip_system_fonts=True)
    with open_picture(content) as opened:
        drawn = opened.convert("RGB" if color else "L")
    side = max(drawn.size)
    square = Image.new(drawn.mode, (side, side), "white")
    square.paste(drawn, ((side - drawn.width) // 2, (side - drawn.height) // 2))
    picture = np.asarray(square.resize((SIZE, SIZE), Image.Resampling.LANCZOS))
    return picture if color else np.round(picture / GRAY_STEP).astype(np.uint8) * np.uint8(GRAY_STEP)
