"""Kinds, scripts and libraries of characters."""

from __future__ import annotations

import unicodedata
from functools import cache

import pytest

from silohash.base.files import digest_json
from silohash.data.archive import Archive
from silohash.data.glyphs.archive import FACES, Glyph, glyphs, read_drawn
from tests.glyph_kinds import KINDS, Facts, describe


@pytest.fixture(scope="module")
def small() -> Archive:
    return glyphs(faces=3, limit=600)


UNDRAWN = {
    "ゟ": Facts("hiragana digraph yori", "Lo", "Hiragana", "Hira"),
    "ⲁ": Facts("coptic small letter alfa", "Ll", "Coptic", "Copt"),
    "𝄞": Facts("musical symbol g clef", "So", "Musical Symbols", "Zyyy"),
}
"""Characters that none of the fonts has."""


@cache
def known() -> dict[str, Glyph]:
    return read_drawn(len(FACES)).glyphs | {
        character: describe(character, facts) for character, facts in UNDRAWN.items()
    }


def described(character: str) -> Glyph:
    return known()[character]


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
    glyph = described(character)
    assert glyph.name == unicodedata.name(character).lower()
    assert (glyph.script, glyph.library, set(glyph.kinds)) == (script, library, kinds)


def test_kinds_are_as_many_as_people_can_hold():
    assert 30 <= len(KINDS) <= 60
    assert len(set(KINDS)) == len(KINDS)


def test_the_kinds_and_their_order_are_those_of_stored_models():
    assert digest_json(list(KINDS)) == digest_json(read_drawn(1).kinds) == "82f066176b3764b65bae024e94a7788b"


@pytest.mark.parametrize(
    ("character", "block", "script"),
    [
        ("A", "Basic Latin", "latin"),
        ("ᐁ", "Unified Canadian Aboriginal Syllabics", "syllabics"),
        ("ゟ", "Hiragana", "other scripts"),
        ("ⲁ", "Coptic", "coptic"),
        ("𝄞", "Musical Symbols", "symbols"),
        ("ℵ", "Letterlike Symbols", "mathematical letters"),
    ],
)
def test_the_script_follows_from_name_block_and_unicode_script(character, block, script):
    assert (described(character).block, described(character).script) == (block, script)
