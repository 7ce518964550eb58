"""The embedded archive: its items, splits and options."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import unicodedata

import numpy as np
import PIL
import pytest
from PIL import Image, ImageDraw, features

from silohash.base.errors import DamagedFile, MissingFile, OutOfRange
from silohash.data.archive import Archive
from silohash.data.glyphs.archive import FACES, FILE, fit, glyphs, read_drawn
from silohash.run.fingerprint import changes, read_fingerprint, write_fingerprint
from tests.draw_glyphs import LEAST_INK, members, versions
from tests.glyph_kinds import LIBRARIES


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
        ({"faces": 0}, "0"),
        ({"faces": "two"}, "two"),
        ({"limit": -3}, r"limit.*-3"),
    ],
)
def test_options_out_of_range_are_named(options, words):
    with pytest.raises(OutOfRange, match=words):
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


DIGESTS = {
    1: "6df9284d07d4f3e4e5fea0fc25fb57b2",
    9: "b074e17fc917f55caf6efff9bc2fc44f",
    16: "a33aa3b35cce39386c1de39f23d8d7e6",
}
"""Digest of the archive by its number of faces, as runs recorded it before the characters were kept in a file."""

WITHOUT_FONTS = """
import sys
sys.modules["matplotlib"] = sys.modules["fontTools"] = sys.modules["PIL.ImageFont"] = None
import PIL.Image
PIL.__version__ = "99.0.0"
from silohash import load_archive
print(load_archive("glyphs", faces=1).card.digest)
"""


def test_no_drawing_is_blank_or_cut_or_off_center(one_face):
    ink = 255 - one_face.image.pixels.astype(int)
    assert ink.sum(axis=(1, 2)).min() >= LEAST_INK
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


@pytest.mark.parametrize("faces", DIGESTS)
def test_the_archive_is_that_of_every_earlier_run(faces):
    assert glyphs(faces=faces).card.digest == DIGESTS[faces]


def test_another_pillow_or_unicode_gives_the_same_archive(one_face, monkeypatch, tmp_path):
    write_fingerprint(tmp_path / "before", one_face)
    monkeypatch.setattr(PIL, "__version__", "99.0.0")
    monkeypatch.setattr(features, "version", lambda name: "99.0.0")
    monkeypatch.setattr(unicodedata, "name", lambda *given: "LETTER OF ANOTHER NAME")
    monkeypatch.setattr(unicodedata, "category", lambda character: "So")
    again = glyphs(faces=1)
    assert again.card.digest == one_face.card.digest
    assert changes(read_fingerprint(tmp_path / "before"), again) == []


@pytest.mark.whole_run
def test_it_needs_neither_matplotlib_nor_fonttools():
    found = subprocess.run([sys.executable, "-c", WITHOUT_FONTS], capture_output=True, text=True, check=False)
    assert found.stdout == f"{DIGESTS[1]}\n", found.stderr


def test_nothing_is_written_to_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    glyphs(faces=1, limit=10)
    assert list(tmp_path.iterdir()) == []


def test_the_first_faces_are_the_same_however_many_are_read():
    few, all_faces = read_drawn(2), read_drawn(len(FACES))
    count = len(few.codepoints)
    np.testing.assert_array_equal(few.codepoints, all_faces.codepoints[:count])
    np.testing.assert_array_equal(few.faces, all_faces.faces[:count])
    np.testing.assert_array_equal(few.pictures[few.places], all_faces.pictures[all_faces.places[:count]])
    assert list(all_faces.digests) == list(FACES)
    assert len(np.unique(all_faces.pictures, axis=0)) == len(all_faces.pictures), "a picture is stored twice"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[:-500], "is damaged.*its digest is"),
        (lambda content: content[:9000] + bytes([content[9000] ^ 1]) + content[9001:], "is damaged.*its digest is"),
        (lambda content: b"", "is damaged"),
        (None, "is missing"),
    ],
)
def test_a_damaged_or_missing_file_is_refused(change, words, monkeypatch, tmp_path):
    path = tmp_path / "glyphs.npz"
    if change is not None:
        path.write_bytes(change(FILE.read_bytes()))
    monkeypatch.setattr("silohash.data.glyphs.archive.FILE", path)
    with pytest.raises((DamagedFile, MissingFile), match=rf"glyphs\.npz {words}.*Install silohash again"):
        glyphs(faces=1)


@pytest.mark.slow
def test_the_same_versions_draw_the_same_file():
    about = read_drawn(1)
    if versions() != about.drawn_with:
        pytest.skip(f"the file was drawn with {about.drawn_with}, and here are {versions()}")
    with np.load(FILE, allow_pickle=False) as stored:
        found = members()
        assert list(found) == stored.files
        for name, content in found.items():
            assert np.array_equal(stored[name], content), name


def test_a_drawing_by_hand_is_scaled_as_the_glyphs_are():
    canvas = Image.new("L", (300, 200), 0)
    ImageDraw.Draw(canvas).rectangle((200, 10, 239, 89), fill=255)
    fitted = fit(canvas)
    assert (fitted.shape, fitted.dtype) == ((32, 32), np.uint8)
    assert np.flatnonzero((fitted < 128).any(axis=1)).tolist() == list(range(2, 30))
    assert np.flatnonzero((fitted < 128).any(axis=0)).tolist() == list(range(9, 23))
    assert (fit(Image.new("L", (50, 50), 0)) == 255).all()
