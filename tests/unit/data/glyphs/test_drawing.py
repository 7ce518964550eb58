"""Drawings by hand, fitted as the characters are."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from silohash.data.glyphs.drawing import fit


def test_a_drawing_by_hand_is_scaled_as_the_glyphs_are():
    canvas = Image.new("L", (300, 200), 0)
    ImageDraw.Draw(canvas).rectangle((200, 10, 239, 89), fill=255)
    fitted = fit(canvas)
    assert (fitted.shape, fitted.dtype) == ((32, 32), np.uint8)
    assert np.flatnonzero((fitted < 128).any(axis=1)).tolist() == list(range(2, 30))
    assert np.flatnonzero((fitted < 128).any(axis=0)).tolist() == list(range(9, 23))
    assert (fit(Image.new("L", (50, 50), 0)) == 255).all()
