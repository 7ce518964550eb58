"""Read the drawn characters, which are a part of the package, so that every installation has the same archive.

``glyphs.npz`` is a compressed archive of numpy arrays. For each face it holds the code points, the pictures that no
earlier face has, and the place of each character's picture among all pictures so far. ``characters.tsv`` in it holds what
Unicode says about each character, and ``about.json`` the digests of the faces and the versions of the programs that drew
them. ``tests/draw_glyphs.py`` writes the file.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.files import digest_bytes
from silohash.base.forms import reading
from silohash.data.glyphs.labels import Facts

FILE = Path(__file__).with_name("glyphs.npz")
DIGEST = "e11f4fb8fd99be250699319d82d8601b"
"""Digest of the file."""

REINSTALL = "Install silohash again."

FACES = (
    *("dejavu sans", "dejavu serif", "stix", "dejavu mono", "dejavu sans bold", "dejavu serif italic"),
    *("dejavu sans oblique", "stix bold", "stix italic", "dejavu mono bold", "dejavu serif bold"),
    *("dejavu serif bold italic", "dejavu mono oblique", "stix bold italic", "dejavu sans bold oblique"),
    "dejavu mono bold oblique",
)
"""Name of each face, in the order in which the option ``faces`` takes them."""


@dataclass(frozen=True)
class About:
    """The content of ``about.json``.

    Attributes:
        digests: Of the code points and pictures of each face.
        drawn_with: Versions of what affects the drawings and the facts.
    """

    digests: dict[str, str]
    drawn_with: dict[str, str]


@dataclass(frozen=True)
class Drawn:
    """The drawn characters of some faces.

    Attributes:
        codepoints: ``(n,)`` int32, ascending within each face.
        faces: ``(n,)`` int64, indices into `FACES`, ascending.
        places: ``(n,)`` uint16, where the picture of each is in ``pictures``.
        pictures: ``(m, 32, 32)`` uint8, all different, black on white.
        facts: What Unicode says about each character.
        about: Digests and versions.
    """

    codepoints: npt.NDArray[np.int32]
    faces: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint16]
    pictures: npt.NDArray[np.uint8]
    facts: dict[str, Facts]
    about: About


def read_drawn(faces: int) -> Drawn:
    """Return the drawn characters of the first faces of `FACES`.

    Raises:
        UserError: If the file is missing or damaged.
    """
    with reading(FILE, remedy=REINSTALL, missing=REINSTALL):
        content = FILE.read_bytes()
        digest = digest_bytes(content)
        if digest != DIGEST:
            raise ValueError(f"its digest is {digest} instead of {DIGEST}")
        with np.load(io.BytesIO(content), allow_pickle=False) as members:
            codepoints, places, pictures = (
                [members[f"{face}/{name}"] for face in FACES[:faces]] for name in ("codepoints", "places", "pictures")
            )
            about = About(**json.loads(members["about.json"]))
            lines = members["characters.tsv"].decode().splitlines()
    return Drawn(
        np.concatenate(codepoints),
        np.repeat(np.arange(faces), [len(of_face) for of_face in codepoints]),
        np.concatenate(places),
        np.concatenate(pictures),
        {character: Facts(*facts) for character, *facts in (line.split("\t") for line in lines)},
        about,
    )
