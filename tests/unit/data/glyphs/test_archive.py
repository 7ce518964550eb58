"""The embedded archive: its items, splits and options."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.data.archive import Archive
from silohash.data.glyphs.archive import glyphs
from silohash.data.glyphs.labels import LIBRARIES


@pytest.fixture(scope="module")
def one_face() -> Archive:
    return glyphs(faces=1)


@pytest.fixture(scope="module")
def small() -> Archive:
    return glyphs(faces=3, limit=600)


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
    [
        ({"faces": 0}, "faces is 0.* from 1 to 16"),
        ({"faces": "two"}, "faces is 'two'"),
        ({"limit": -3}, "limit is -3.* above 0"),
    ],
)
def test_options_out_of_range_are_named(options, words):
    with pytest.raises(UserError, match=words):
        glyphs(**options)


def test_the_card_names_the_licenses_and_the_protocol(one_face):
    card = one_face.card
    assert card.protocol == "glyphs/unseen-characters"
    assert "Bitstream Vera" in card.license
    assert "SIL Open Font License" in card.license
    assert len(card.digest) == 32


def test_splits_are_those_of_all_published_figures(one_face):
    found = {}
    for name, rows in one_face.splits.items():
        names = "\n".join(sorted(one_face.ids[rows].tolist()))
        found[name] = (len(rows), hashlib.blake2b(names.encode(), digest_size=8).hexdigest())
    assert found == {
        "database": (5017, "3a27e948e4a318fc"),
        "query": (556, "bfbe3522811817b7"),
        "train": (2509, "7d40148b72f3d386"),
    }


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_limit_is_reached_exactly(limit):
    assert len(glyphs(faces=1, limit=limit)) == limit
