"""The embedded archive: its characters, drawings, kinds, splits and cache."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from silohash.data.archive import Archive
from silohash.data.glyphs import drawing as module
from silohash.data.glyphs.archive import glyphs
from silohash.data.glyphs.drawing import fit
from silohash.data.glyphs.labels import KINDS, LIBRARIES, describe
from silohash.types import UserError


@pytest.fixture(scope="module")
def one_face() -> Archive:
    return glyphs(faces=1)


@pytest.fixture(scope="module")
def small() -> Archive:
    return glyphs(faces=3, limit=600)


@pytest.mark.parametrize(
    ("character", "script", "library", "kinds"),
    [
        ("É", "latin", "latin", {"latin", "capital letter", "acute accent"}),
        ("ﬁ", "latin", "latin", {"latin", "small letter", "ligature or digraph"}),
        ("ϊ", "greek", "greek and cyrillic", {"greek", "small letter", "diaeresis"}),
        ("ש", "hebrew", "other scripts", {"hebrew"}),
        ("7", "punctuation", "signs", {"number"}),
        ("½", "punctuation", "signs", {"number"}),
        ("€", "punctuation", "signs", {"currency"}),
        ("↪", "arrows", "signs", {"arrow", "pointing right"}),
        ("♞", "symbols", "signs", {"chess or draughts", "black"}),
        ("▣", "shapes", "signs", {"square", "white", "black"}),
        ("ⓐ", "numbers", "signs", {"circled", "small letter"}),
        ("𝔹", "mathematical letters", "mathematics", {"mathematical letter", "capital letter", "ornate letter"}),
        ("⊆", "operators", "mathematics", {"mathematical sign", "set or logic", "comparison"}),
        ("⠿", "braille", "signs", {"braille"}),
        ("☎", "symbols", "signs", {"black"}),
        ("☂", "symbols", "signs", {"other sign"}),
    ],
)
def test_a_character_is_told_by_what_people_call_it(character, script, library, kinds):
    glyph = describe(character)
    assert glyph.name == unicodedata.name(character).lower()
    assert (glyph.script, glyph.library, glyph.kinds) == (script, library, kinds)


def test_kinds_are_as_many_as_people_can_hold():
    assert 30 <= len(KINDS) <= 60
    assert len(set(KINDS)) == len(KINDS)


def test_items_have_a_drawing_a_name_and_a_kind(one_face):
    assert 5000 < len(one_face) < 6000
    assert (one_face.labels.sum(axis=1) >= 1).all()
    assert (one_face.labels.sum(axis=0) >= 1).all(), "a kind that no character has"
    row = one_face.ids.tolist().index("u265e-dejavu-sans")
    assert one_face.text[row] == "black chess knight"
    assert one_face.columns["character"][row] == "♞"
    assert one_face.columns["face"][row] == "dejavu sans"
    assert one_face.columns["block"][row] == "Miscellaneous Symbols"
    picture = one_face.image.picture(row)
    assert (picture.mode, picture.size) == ("L", (32, 32))


def test_no_drawing_is_blank_or_cut_or_off_centre(one_face):
    ink = 255 - one_face.image.pixels.astype(int)
    assert ink.sum(axis=(1, 2)).min() >= module.LEAST_INK
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


def test_five_libraries_of_reasonable_sizes(one_face):
    libraries, counts = np.unique(one_face.columns["library"], return_counts=True)
    assert set(libraries) == {*LIBRARIES.values(), "signs"}
    assert len(libraries) == 5
    assert counts.min() > 0.05 * len(one_face)
    assert counts.max() < 0.5 * len(one_face)


def test_query_characters_are_seen_in_no_other_split_in_any_face(small):
    characters = {name: set(small.columns["character"][rows].tolist()) for name, rows in small.splits.items()}
    assert characters["query"].isdisjoint(characters["database"])
    assert characters["train"] < characters["database"], "some characters are never trained on"
    total = len(characters["query"] | characters["database"])
    assert 0.05 < len(characters["query"]) / total < 0.2
    assert 0.4 < len(characters["train"]) / len(characters["database"]) < 0.6
    faces = [set(small.columns["face"][rows].tolist()) for rows in small.splits.values()]
    assert all(len(of_split) == 3 for of_split in faces)


def test_every_library_asks_and_trains(small):
    for name in ("query", "train"):
        assert len(set(small.columns["library"][small.split(name)].tolist())) == 5


def test_a_limit_keeps_whole_characters(small):
    assert 500 < len(small) <= 600
    everything = glyphs(faces=3)
    kept = np.isin(everything.columns["character"], small.columns["character"])
    assert set(everything.ids[kept].tolist()) == set(small.ids.tolist())


@pytest.mark.parametrize(
    ("options", "words"),
    [({"faces": 0}, "faces is 0.* from 1 to 16"), ({"faces": "two"}, "faces is 'two'"), ({"limit": -3}, "limit is -3.* above 0")],
)
def test_options_out_of_range_are_named(options, words):
    with pytest.raises(UserError, match=words):
        glyphs(**options)


def test_a_missing_font_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_fonts", lambda: tmp_path)
    with pytest.raises(UserError, match=r"DejaVuSans\.ttf is missing.*pip install --force-reinstall matplotlib"):
        glyphs(faces=1)


@pytest.fixture
def few_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_is_drawable", lambda character: character in "abc♞♜")
    return tmp_path / "glyphs"


def test_drawings_come_from_the_cache_and_are_the_same(few_characters, monkeypatch):
    first = glyphs(faces=1)
    monkeypatch.setattr(module, "_drawn", lambda path: pytest.fail("drawn again"))
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


def test_the_card_names_the_licences_and_the_protocol(one_face):
    card = one_face.card
    assert card.protocol == "glyphs/unseen-characters"
    assert "Bitstream Vera" in card.licence
    assert "SIL Open Font License" in card.licence
    assert len(card.digest) == 32
