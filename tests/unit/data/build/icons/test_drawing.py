"""Icons are drawn on white squares, black or in color, the same each time, and only once."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import DependencyMissing
from silohash.data.build.icons import drawing
from silohash.data.build.icons.drawing import draw, draw_all, png_of
from silohash.data.build.icons.libraries import Icon
from tests.icon_packages import svg_of

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
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png_of(picture)))), picture)


def test_drawings_are_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    icons = [Icon("a", name, name, (), (), svg_of("a", name).decode()) for name in ("one", "two")]
    lines: list[str] = []
    first = draw_all(icons, tmp_path, color=False, said=lines.append)
    assert (first.shape, lines) == ((2, 64, 64), ["Drawing 2 icons of a"])
    monkeypatch.setattr(drawing, "draw", None)
    assert np.array_equal(draw_all(icons, tmp_path, color=False, said=lines.append), first)
    assert len(lines) == 1


def test_the_package_that_draws_is_named_if_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: False)
    with pytest.raises(DependencyMissing, match=r"silohash\[icons\]"):
        draw_all([Icon("a", "one", "one", (), (), "<svg/>")], tmp_path, color=False, said=print)
