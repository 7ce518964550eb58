"""The embedded archive: characters drawn in sixteen faces of two families of fonts, with their Unicode names and kinds.

An item is one character in one face. Its picture is 32 x 32 gray, black on white. Its text is the character's Unicode
name in lower case. Its labels are kinds of characters, such as "arrow" or "capital letter".
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from silohash.base.arrays import whole
from silohash.base.files import digest_bytes, digest_json, read_toml
from silohash.base.forms import REINSTALL, of_value, reading
from silohash.base.seeds import derive
from silohash.base.types import Rows
from silohash.data.archive import Archive, ArchiveCard, multi_hot
from silohash.data.pictures.reading import GrayPictures
from silohash.data.splits import splits_of

FILE = Path(__file__).with_name("glyphs.npz")
DIGEST = "339a5175122f55ed47e25233b7b4fa1a"
"""Digest of the file."""

FACES = (
    *("dejavu sans", "dejavu serif", "stix", "dejavu mono", "dejavu sans bold", "dejavu serif italic"),
    *("dejavu sans oblique", "stix bold", "stix italic", "dejavu mono bold", "dejavu serif bold"),
    *("dejavu serif bold italic", "dejavu mono oblique", "stix bold italic", "dejavu sans bold oblique"),
    "dejavu mono bold oblique",
)
"""Name of each face, in the order in which the option ``faces`` takes them."""


class Glyph(NamedTuple):
    """What is known of a character without a drawing of it: among others, its script or group of signs, and its kinds.

    The library is one of the five that a federation of glyphs has.
    """

    character: str
    name: str
    block: str
    script: str
    library: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Drawn:
    """The drawn characters of some faces.

    Attributes:
        codepoints: ``(n,)`` int32, ascending within each face.
        faces: ``(n,)`` int64, indices into `FACES`, ascending.
        places: ``(n,)`` uint16, where the picture of each is in ``pictures``.
        pictures: ``(m, 32, 32)`` uint8, all different, black on white.
        glyphs: What is known of each character.
        kinds: All kinds, in the order of the label columns.
        digests: Of the code points and pictures of each face.
        drawn_with: Versions of the programs that drew them, and of what affects the facts.
    """

    codepoints: npt.NDArray[np.int32]
    faces: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint16]
    pictures: npt.NDArray[np.uint8]
    glyphs: dict[str, Glyph]
    kinds: list[str]
    digests: dict[str, str]
    drawn_with: dict[str, str]


def read_drawn(faces: int) -> Drawn:
    """Return the drawn characters of the first faces of `FACES`.

    They are a part of the package, so that every installation has the same archive. For each face, the file holds the code
    points, the pictures that no earlier face has, and the place of each character's picture among all pictures so far.
    ``tests/draw_glyphs.py`` writes it.

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
            about = json.loads(members["about.json"])
            lines = members["characters.tsv"].decode().splitlines()
    return Drawn(
        np.concatenate(codepoints), np.repeat(np.arange(faces), [len(of_face) for of_face in codepoints]),
        np.concatenate(places), np.concatenate(pictures),
        {
            texts[0]: Glyph._make([*texts, tuple(kinds.split("|"))])
            for *texts, kinds in (line.split("\t") for line in lines)
        },
        **about,
    )  # fmt: skip


QUERY_SHARE = 0.1
TRAIN_SHARE = 0.5
SIZE_PIXELS = 32
INK_PIXELS = 28

CARD = of_value(read_toml(FILE.with_name("card.toml"), remedy=REINSTALL, missing=REINSTALL), ArchiveCard)


def glyphs(*, faces: int = 9, limit: int | None = None) -> Archive:
    """Open the embedded archive of drawn characters.

    Args:
        faces: Number of faces, 1 to 16.
        limit: Largest number of items. Characters are kept or left out in all their faces, and at least one is kept.

    Raises:
        UserError: If an option is out of its range, or the file of the drawings is missing or damaged.
    """
    whole("glyphs: faces", faces, 1, len(FACES))
    if limit is not None:
        whole("glyphs: limit", limit, 1)
    drawn = read_drawn(faces)
    kept = np.ones(len(drawn.codepoints), bool) if limit is None else _limited(drawn.codepoints, limit)
    digest = digest_json({"faces": [drawn.digests[face] for face in FACES[:faces]], "limit": limit})
    return _archive(drawn, kept, digest)


def _archive(drawn: Drawn, kept: npt.NDArray[np.bool_], digest: str) -> Archive:
    unique, character_of = np.unique(drawn.codepoints[kept], return_inverse=True)
    known = [drawn.glyphs[character] for character in map(chr, unique)]
    face_of_item = drawn.faces[kept]
    slugs = np.array([name.replace(" ", "-") for name in FACES])
    hexadecimal = np.array([f"u{codepoint:04x}-" for codepoint in unique])

    def _per_item(attribute: str) -> npt.NDArray[np.str_]:
        return np.array([getattr(glyph, attribute) for glyph in known], dtype=np.str_)[character_of]

    return Archive(
        ids=np.strings.add(hexadecimal[character_of], slugs[face_of_item]),
        image=GrayPictures(drawn.pictures[drawn.places[kept]], digest), text=_per_item("name"),
        labels=multi_hot([glyph.kinds for glyph in known], drawn.kinds)[character_of], label_names=tuple(drawn.kinds),
        splits=_splits(known, character_of), card=CARD,
        columns={
            **{name: _per_item(name) for name in ("library", "script", "block", "character")},
            "face": np.array(FACES)[face_of_item],
        },
    ).with_digest()  # fmt: skip


def _splits(known: Sequence[Glyph], character_of: npt.NDArray[np.intp]) -> dict[str, Rows]:
    part = np.empty(len(known), dtype="<U8")
    for library in sorted({glyph.library for glyph in known}):
        members = [row for row, glyph in enumerate(known) if glyph.library == library]
        members.sort(key=lambda row: derive(0, f"glyphs/split/{known[row].character}"))
        queries = max(1, round(QUERY_SHARE * len(members))) if len(members) > 1 else 0
        trained = round(TRAIN_SHARE * (len(members) - queries) + 0.25)
        part[members[:queries]] = "query"
        part[members[queries : queries + trained]] = "train"
        part[members[queries + trained :]] = "database"
    return splits_of(part[character_of])


def _limited(codepoints: npt.NDArray[np.int32], limit: int) -> npt.NDArray[np.bool_]:
    unique, counts = np.unique(codepoints, return_counts=True)
    order = np.argsort([derive(0, f"glyphs/limit/{chr(codepoint)}") for codepoint in unique])
    kept = np.cumsum(counts[order]) <= limit
    # A limit below the number of faces would leave no character.
    kept[:1] = True
    return np.isin(codepoints, unique[order[kept]])


def fit(ink: Image.Image, side: int = SIZE_PIXELS, longest: int = INK_PIXELS) -> npt.NDArray[np.uint8]:
    """Crop a drawing to its ink, scale it so that its longer side has ``longest`` pixels, and center it.

    The ink of mode ``L`` is bright on black. The result is ``(side, side)`` uint8, black on white; white without any ink. By
    default both are those of the archive's glyphs.
    """
    box = ink.getbbox()
    if box is None:
        return np.full((side, side), 255, dtype=np.uint8)
    part = ink.crop(box)
    scale = longest / max(part.size)
    size = (max(1, round(part.width * scale)), max(1, round(part.height * scale)))
    return centered(part.resize(size, Image.Resampling.LANCZOS), side)


def centered(ink: Image.Image, side: int = SIZE_PIXELS) -> npt.NDArray[np.uint8]:
    """Return a drawing that fits, ``(side, side)`` uint8, centered and black on white."""
    paper = Image.new("L", (side, side), 255)
    paper.paste(ImageOps.invert(ink), ((side - ink.width) // 2, (side - ink.height) // 2))
    return np.array(paper)
