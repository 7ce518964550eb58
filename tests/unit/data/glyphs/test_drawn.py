"""The file of the drawn characters: what it holds, that it is read as it was written, and that it can be drawn again."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import numpy as np
import PIL
import pytest
from PIL import features

from silohash.base.types import UserError
from silohash.data.archive import Archive
from silohash.data.glyphs import drawn
from silohash.data.glyphs.archive import glyphs
from silohash.run.fingerprint import changes, read_fingerprint, write_fingerprint
from tests.draw_glyphs import LEAST_INK, members, versions

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


@pytest.fixture(scope="module")
def one_face() -> Archive:
    return glyphs(faces=1)


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


def test_it_needs_neither_matplotlib_nor_fonttools():
    found = subprocess.run([sys.executable, "-c", WITHOUT_FONTS], capture_output=True, text=True, check=False)
    assert found.stdout == f"{DIGESTS[1]}\n", found.stderr


def test_nothing_is_written_to_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    glyphs(faces=1, limit=10)
    assert list(tmp_path.iterdir()) == []


def test_the_first_faces_are_the_same_however_many_are_read():
    few, all_faces = drawn.read_drawn(2), drawn.read_drawn(len(drawn.FACES))
    count = len(few.codepoints)
    np.testing.assert_array_equal(few.codepoints, all_faces.codepoints[:count])
    np.testing.assert_array_equal(few.faces, all_faces.faces[:count])
    np.testing.assert_array_equal(few.pictures[few.places], all_faces.pictures[all_faces.places[:count]])
    assert list(all_faces.about.digests) == list(drawn.FACES)
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
        path.write_bytes(change(drawn.FILE.read_bytes()))
    monkeypatch.setattr(drawn, "FILE", path)
    with pytest.raises(UserError, match=rf"glyphs\.npz {words}.*Install silohash again"):
        glyphs(faces=1)


def test_the_same_versions_draw_the_same_file():
    about = drawn.read_drawn(1).about
    if versions() != about.drawn_with:
        pytest.skip(f"the file was drawn with {about.drawn_with}, and here are {versions()}")
    with np.load(drawn.FILE, allow_pickle=False) as stored:
        found = members()
        assert list(found) == stored.files
        for name, content in found.items():
            assert np.array_equal(stored[name], content), name
