"""Icons are drawn on white squares, black or in color, the same each time."""

from __future__ import annotations

import numpy as np

from silohash.data.build.icons.drawing import draw

WIDE = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 10"><rect fill="{}" width="20" height="10"/></svg>'


def test_a_wide_icon_is_padded_with_white() -> None:
    picture = draw(WIDE.format("currentColor"), color=False)
    assert picture.shape == (64, 64)
    assert (picture[:14] == 255).all()
    assert (picture[20:44] == 0).all()
    assert (picture[50:] == 255).all()
    assert set(np.unique(picture).tolist()) <= set(range(0, 256, 17))


def test_colors_are_kept() -> None:
    picture = draw(WIDE.format("#ff0000"), color=True)
    assert picture[32, 32].tolist() == [255, 0, 0]
    assert picture[0, 0].tolist() == [255, 255, 255]
    assert np.array_equal(picture, draw(WIDE.format("#ff0000"), color=True))
