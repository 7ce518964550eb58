"""Drawings of characters, and their cache."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from silohash.data.archive import Archive
from silohash.data.glyphs import drawing
from silohash.data.glyphs.archive import glyphs
from silohash.data.glyphs.drawing import fit
from silohash.types import UserError


@pytest.fixture(scope="module")
def one_face() -> Archive:
    return glyphs(faces=1)


def test_no_drawing_is_blank_or_cut_or_off_centre(one_face):
    ink = 255 - one_face.image.pixels.astype(int)
    assert ink.sum(axis=(1, 2)).min() >= drawing.LEAST_INK
    down, across = ink.any(axis=2), ink.any(axis=1)
    assert not down[:, 0].any()
    assert not across[:, -1].any()
    for lines in (down, across):
        before, after = lines.argmax(axis=1), lines[:, ::-1].argmax(axis=1)
        assert np.abs(before - after).max() <= 1
    sizes = np.maximum(down.sum(axis=1), across.sum(axis=1))
    assert np.median(sizes) > 20


def test_a_full_stop_stays_a_dot_and_a_capital_fills_its_picture(one_face):
    ids = one_face.ids.tolist()
    heights = {
        name: int((one_face.image.pixels[ids.index(f"u{ord(name):04x}-dejavu-sans")] < 128).any(axis=1).sum())
        for name in ".xX"
    }
    assert heights["."] < heights["x"] < heights["X"]
    assert heights["X"] >= 26


def test_what_cannot_be_seen_is_left_out(one_face):
    characters = set(one_face.columns["character"].tolist())
    assert not characters & {" ", "\u00a0", "\u2800", "\u0301", "\u200b", "\ue000", "\n"}
    assert {unicodedata.category(character)[0] for character in characters} <= set("LNPS")


def test_a_missing_font_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(drawing, "_fonts", lambda: tmp_path)
    with pytest.raises(UserError, match=r"DejaVuSans\.ttf is missing.*pip install --force-reinstall matplotlib"):
        glyphs(faces=1)


@pytest.fixture
def few_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    monkeypatch.setattr(drawing, "_is_drawable", lambda character: character in "abc♞♜")
    return tmp_path / "glyphs"


def test_drawings_come_from_the_cache_and_are_the_same(few_characters, monkeypatch):
    first = glyphs(faces=1)
    monkeypatch.setattr(drawing, "_drawn", lambda path: pytest.fail("drawn again"))
    again = glyphs(faces=1)
    assert again.card.digest == first.card.digest
    np.testing.assert_array_equal(again.image.pixels, first.image.pixels)
    assert len(first) == 5


@pytest.mark.parametrize("damage", [b"", b"no drawings", None])
def test_a_damaged_cache_is_made_again(few_characters, damage):
    first = glyphs(faces=1)
    (path,) = few_characters.iterdir()
    content = bytearray(path.read_bytes())
    content[-500] ^= 1
    path.write_bytes(bytes(content) if damage is None else damage)
    again = glyphs(faces=1)
    np.testing.assert_array_equal(again.image.pixels, first.image.pixels)
    assert again.card.digest == first.card.digest
    assert path.stat().st_size == len(content)


def test_without_a_place_for_the_cache_it_draws_all_the_same(few_characters, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "file"))
    assert len(glyphs(faces=1)) == 5


def test_a_drawing_by_hand_is_scaled_as_the_glyphs_are():
    canvas = Image.new("L", (300, 200), 0)
    ImageDraw.Draw(canvas).rectangle((200, 10, 239, 89), fill=255)
    fitted = fit(canvas)
    assert (fitted.shape, fitted.dtype) == ((32, 32), np.uint8)
    assert np.flatnonzero((fitted < 128).any(axis=1)).tolist() == list(range(2, 30))
    assert np.flatnonzero((fitted < 128).any(axis=0)).tolist() == list(range(9, 23))
    assert (fit(Image.new("L", (50, 50), 0)) == 255).all()
