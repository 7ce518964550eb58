"""Names that were typed on different systems: which are one, which only look similar, and which differ."""

from __future__ import annotations

import unicodedata

import pytest

from silohash.base.names import (
    canonical,
    canonical_path,
    describe_near,
    listed,
    near_duplicates,
    one_spelling,
    similar,
    tidy,
)

SAME = [
    ("dänemark", unicodedata.normalize("NFD", "dänemark")),
    ("한국", unicodedata.normalize("NFD", "한국")),
    ("Å", "\u212b"),
    *(("boat", spelling) for spelling in ("boat\u200b", "\ufeffboat", "\u3000boat\u00a0", "bo\u00adat", "bo\u200dat ")),
    *(("boat", spelling) for spelling in ("\u2060boat", "boat\u200e", "\u202aboat\u202c", "bo\u200cat", "bo\u115fat")),
    ("living room", "living\u00a0room"),
    ("living room", "living \t\u2003 room"),
    ("2", "2.0"),
    ("-12", "-12.000"),
    ("\u2764", "\u2764\ufe0f"),
    ("\u845b", "\u845b\U000e0100"),
    *(("boat", spelling) for spelling in ("bo\x07at", "bo\x92at", "boat\U000e0061\U000e0062", "bo\ufff9at")),
    ("a b", "a \u200e b"),
    ("\u05e9\u05dc\u05d5\u05dd", "\u200f\u05e9\u05dc\u05d5\u05dd"),
]
SIMILAR = [
    ("Sea", "sea"),
    ("living_room", "Living-Room"),
    ("living room", "livingroom"),
    ("café", "cafe"),
    ("boat", "b\u043eat"),
    ("BOAT", "BO\u0391T"),
    ("straße", "strasse"),
    ("ﬁsh", "fish"),
    ("２", "2"),
    ("001", "1"),
    *(("2.5", written) for written in ("2.50", "2,5", "+2.5", "25e-1", "\u0662.\u0665")),
    ("-1", "\u22121"),
    ("100000", "1e5"),
    ("True", "1"),
    ("dogs", "dog"),
    ("kap\u0131", "kapi"),
    ("don't", "don\u2019t"),
    ("St. Ives", "St Ives"),
    ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"),
    ("\U0001f469\u200d\U0001f680", "\U0001f469\U0001f680"),
]
DIFFERENT = [
    ("12", "1-2"),
    ("1.5", "15"),
    ("10", "100"),
    ("1", "-1"),
    ("1,000", "1"),
    ("bus", "bu"),
    ("12345678901234567890", "12345678901234567891"),
    ("\u0915\u093f", "\u0915\u0941"),
    ("C++", "C"),
    ("\U0001f3f4\U000e0067\U000e0065", "\U0001f3f4\U000e0067\U000e0073"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_names_that_are_one(one, other):
    assert canonical(one) == canonical(other)
    assert one_spelling({one: 1, other: 2}) == {one: other}
    assert one_spelling({one: 1, other: 1}) == {other: one}
    assert near_duplicates([one, other]) == []


@pytest.mark.parametrize(("one", "other"), SIMILAR)
def test_names_that_only_look_similar(one, other):
    assert canonical(one) != canonical(other)
    assert similar(one) == similar(other)
    assert near_duplicates(["x", one, other]) == [sorted([one, other])]
    assert near_duplicates([one, other, f"{one}\u200b", one]) == [sorted([one, other])]
    assert one_spelling({one: 1, other: 2}) == {}


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_names_that_differ(one, other):
    assert similar(one) != similar(other)
    assert near_duplicates([one, other]) == []


def test_a_stored_name_looks_as_it_was_typed():
    for name in (
        "2.0",
        "\u0645\u06cc\u200c\u062e",
        "\U0001f469\u200d\U0001f680",
        "\u2764\ufe0f",
        "a\u200eb",
        "Sea-Side",
    ):
        assert tidy(name) == name
    assert tidy(" \u200bSea\u00a0\u00a0side\ufeff ") == "Sea side"
    assert tidy("e\u0301") == "\u00e9"


def test_paths():
    assert canonical_path(".\\market\\stall.png") == canonical_path("market//x/../stall.png") == "market/stall.png"
    assert canonical_path("a/1.png/") == "a/1.png"
    assert canonical_path("a /e\u0301.png") == "a/\u00e9.png"
    assert canonical_path("1/2.0") == "1/2.0"
    assert canonical_path("a\\..\\..\\b") == "../b"


def test_the_sentence_names_the_first_groups_and_shows_what_is_invisible():
    assert describe_near("labels", ["a", "b"]) == ""
    assert describe_near("labels", ["a", "A", "\u0915\u200d\u0916", "\u0915\u0916"]) == (
        'These labels look similar but are different: "A" and "a"; "\u0915\u0916" and "\u0915⟨U+200D⟩\u0916". '
        "Write them the same way if they mean the same."
    )
    assert '"C" and "c"; and 2 more.' in describe_near("labels", "aAbBcCdDeE")


def test_the_first_five_values_are_listed():
    assert listed([1000, 2]) == "1,000, 2"
    assert listed(range(7)) == "0, 1, 2, 3, 4 and 2 more"
