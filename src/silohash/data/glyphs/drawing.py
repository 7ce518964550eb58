"""Fit a drawing to a picture of 32 x 32 gray pixels, black on white, as the characters of the archive are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

SIZE_PIXELS = 32
INK_PIXELS = 28


def fit(ink: Image.Image) -> npt.NDArray[np.uint8]:
    """Crop a drawing to its ink, scale it like the archive's glyphs, and center it.

    The ink of mode ``L`` is bright on black. The result is ``(32, 32)`` uint8, black on white; white without any ink.
    """
    box = ink.getbbox()
    if box is None:
        return np.full((SIZE_PIXELS, SIZE_PIXELS), 255, dtype=np.uint8)
    part = ink.crop(box)
    scale = INK_PIXELS / max(part.size)
    size = (max(1, round(part.width * scale)), max(1, round(part.height * scale)))
    return centered(part.resize(size, Image.Resampling.LANCZOS))


def centered(ink: Image.Image) -> npt.NDArray[np.uint8]:
    """Return a drawing that fits, ``(32, 32)`` uint8, centered and black on white."""
    paper = Image.new("L", (SIZE_PIXELS, SIZE_PIXELS), 255)
    paper.paste(ImageOps.invert(ink), ((SIZE_PIXELS - ink.width) // 2, (SIZE_PIXELS - ink.height) // 2))
    return np.array(paper)
