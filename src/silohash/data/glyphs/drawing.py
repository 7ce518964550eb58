"""The embedded archive: characters drawn in the fonts that matplotlib brings, with their Unicode names and kinds.

An item is one character in one face. Its picture is 32 x 32 grey, black on white; its text is the character's Unicode
name in small letters; its labels are the kinds of `glyph_labels.KINDS`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, ImageDraw, ImageFont, features

from silohash.data.archive import Archive, ArchiveCard
from silohash.data.cache import cache_folder
from silohash.data.glyphs.labels import KINDS, Glyph, describe
from silohash.data.pictures.decoding import GreyPictures
from silohash.files import digest_arrays, digest_file, digest_json, read_arrays, write_arrays
from silohash.seeds import derive
from silohash.types import Arrays, Rows, UserError

DRAWING_VERSION = 1
SIZE_PIXELS = 32
INK_PIXELS = 28
LARGEST_EM_PIXELS = 40
LEAST_INK = 4 * 255
QUERY_SHARE = 0.1
TRAIN_SHARE = 0.5

FACES: tuple[tuple[str, str], ...] = (
    ("dejavu sans", "DejaVuSans"),
    ("dejavu serif", "DejaVuSerif"),
    ("stix", "STIXGeneral"),
    ("dejavu mono", "DejaVuSansMono"),
    ("dejavu sans bold", "DejaVuSans-Bold"),
    ("dejavu serif italic", "DejaVuSerif-Italic"),
    ("dejavu sans oblique", "DejaVuSans-Oblique"),
    ("stix bold", "STIXGeneralBol"),
    ("stix italic", "STIXGeneralItalic"),
    ("dejavu mono bold", "DejaVuSansMono-Bold"),
    ("dejavu serif bold", "DejaVuSerif-Bold"),
    ("dejavu serif bold italic", "DejaVuSerif-BoldItalic"),
    ("dejavu mono oblique", "DejaVuSansMono-Oblique"),
    ("stix bold italic", "STIXGeneralBolIta"),
    ("dejavu sans bold oblique", "DejaVuSans-BoldOblique"),
    ("dejavu mono bold oblique", "DejaVuSansMono-BoldOblique"),
)
"""Name and file of each face, in the order in which ``faces`` counts them."""

CARD = ArchiveCard(
    name="glyphs",
    source="Characters of the DejaVu (dejavu-fonts.github.io) and STIX (stixfonts.org) fonts as matplotlib brings "
    "them, with names from the Unicode character database (unicode.org)",
    licence="DejaVu: Bitstream Vera licence, changes in the public domain; STIX: SIL Open Font License 1.1; "
    "names: Unicode License",
    protocol="glyphs/unseen-characters",
    notes={
        "relevant": "items that share a kind",
        "split": "by character, in each library: 10 % query, half of the others train, all others database; so no "
        "query character is trained on or searched in any face, and about half "
        "of the database's characters are never trained on",
    },
)


@dataclass(frozen=True)
class _Face:
    """One face's drawings: ``codepoints (n,)`` int32 ascending, ``pixels (n, 32, 32)`` uint8, and their digest."""

    codepoints: npt.NDArray[np.int32]
    pixels: npt.NDArray[np.uint8]
    digest: str


def glyphs(*, faces: int = 9, limit: int | None = None) -> Archive:
    """Opens the embedded archive; draws it the first time and keeps the drawings in the cache folder.

    Args:
        faces: how many of the sixteen faces to draw.
        limit: about how many items to keep at most; whole characters are kept, in all their faces.

    Raises:
        UserError: if an option is out of its range, or matplotlib's fonts are not there.
    """
    if not isinstance(faces, int) or not 1 <= faces <= len(FACES):
        raise UserError(f"glyphs has 1 to {len(FACES)} faces, not {faces!r}. Set faces to a number in that range.")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"glyphs cannot be limited to {limit!r} items. Set limit to a whole number above 0.")
    drawn = [_face(file) for _, file in FACES[:faces]]
    codepoints = np.concatenate([face.codepoints for face in drawn])
    face_of = np.repeat(np.arange(faces), [len(face.codepoints) for face in drawn])
    pixels = np.concatenate([face.pixels for face in drawn])
    if limit is not None:
        kept = np.isin(codepoints, _limited(codepoints, limit))
        codepoints, face_of, pixels = codepoints[kept], face_of[kept], pixels[kept]
    digest = digest_json({"faces": [face.digest for face in drawn], "limit": limit})
    return _archive(codepoints, face_of, GreyPictures(pixels, digest))


def fit(ink: Image.Image) -> npt.NDArray[np.uint8]:
    """Crops a drawing to its ink, scales it as the archive's glyphs are, and centres it.

    Args:
        ink: mode ``L``, ink bright on black.

    Returns:
        ``(32, 32)`` uint8, black on white; all white where there is no ink.
    """
    box = ink.getbbox()
    if box is None:
        return np.full((SIZE_PIXELS, SIZE_PIXELS), 255, dtype=np.uint8)
    part = ink.crop(box)
    scale = INK_PIXELS / max(part.size)
    size = (max(1, round(part.width * scale)), max(1, round(part.height * scale)))
    return _centred(np.asarray(part.resize(size, Image.Resampling.LANCZOS)))


def _centred(ink: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    paper = np.full((SIZE_PIXELS, SIZE_PIXELS), 255, dtype=np.uint8)
    height, width = ink.shape
    top, left = (SIZE_PIXELS - height) // 2, (SIZE_PIXELS - width) // 2
    paper[top : top + height, left : left + width] -= ink
    return paper


def _archive(codepoints: npt.NDArray[np.int32], face_of: npt.NDArray[np.int64], image: GreyPictures) -> Archive:
    unique, character_of = np.unique(codepoints, return_inverse=True)
    known = [describe(chr(codepoint)) for codepoint in unique]
    column = {kind: position for position, kind in enumerate(KINDS)}
    labels = np.zeros((len(known), len(KINDS)), dtype=np.uint8)
    for row, glyph in enumerate(known):
        labels[row, [column[kind] for kind in glyph.kinds]] = 1
    slugs = np.array([name.replace(" ", "-") for name, _ in FACES])
    hexadecimal = np.array([f"u{codepoint:04x}-" for codepoint in unique])

    def _spread(values: Sequence[str]) -> npt.NDArray[np.str_]:
        return np.array(values, dtype=np.str_)[character_of]

    return Archive(
        ids=np.strings.add(hexadecimal[character_of], slugs[face_of]),
        image=image,
        text=_spread([glyph.name for glyph in known]),
        labels=labels[character_of],
        label_names=KINDS,
        splits=_splits(known, character_of.astype(np.int64)),
        card=CARD,
        columns={
            "library": _spread([glyph.library for glyph in known]),
            "script": _spread([glyph.script for glyph in known]),
            "block": _spread([glyph.block for glyph in known]),
            "face": np.array([name for name, _ in FACES])[face_of],
            "character": _spread([glyph.character for glyph in known]),
        },
    ).with_digest()


def _splits(known: Sequence[Glyph], character_of: Rows) -> dict[str, Rows]:
    part = np.empty(len(known), dtype="<U8")
    for library in sorted({glyph.library for glyph in known}):
        members = [row for row, glyph in enumerate(known) if glyph.library == library]
        members.sort(key=lambda row: derive(0, f"glyphs/split/{known[row].character}"))
        queries = max(1, round(QUERY_SHARE * len(members))) if len(members) > 1 else 0
        trained = round(TRAIN_SHARE * (len(members) - queries) + 0.25)
        part[members[:queries]] = "query"
        part[members[queries : queries + trained]] = "train"
        part[members[queries + trained :]] = "database"
    of_item = part[character_of]
    return {
        "query": np.flatnonzero(of_item == "query"),
        "database": np.flatnonzero(of_item != "query"),
        "train": np.flatnonzero(of_item == "train"),
    }


def _limited(codepoints: npt.NDArray[np.int32], limit: int) -> npt.NDArray[np.int32]:
    unique, counts = np.unique(codepoints, return_counts=True)
    order = np.argsort([derive(0, f"glyphs/limit/{chr(codepoint)}") for codepoint in unique])
    kept = np.cumsum(counts[order]) <= limit
    kept[:1] = True
    return unique[order[kept]]


def _fonts() -> Path:
    spec = importlib.util.find_spec("matplotlib")
    folders = [Path(place) / "mpl-data" for place in (spec.submodule_search_locations or () if spec else ())]
    if not folders or not folders[0].is_dir():
        import matplotlib

        folders = [Path(matplotlib.get_data_path())]
    return folders[0] / "fonts" / "ttf"


def _face(file: str) -> _Face:
    font = _fonts() / f"{file}.ttf"
    if not font.is_file():
        raise UserError(
            f"{font} is missing, and glyphs are drawn with it. Install matplotlib again: pip install matplotlib."
        )
    made_of = {
        "drawing": DRAWING_VERSION,
        "font": digest_file(font),
        "unicode": unicodedata.unidata_version,
        "pillow": PIL.__version__,
        "freetype": features.version("freetype2"),
    }
    path = cache_folder() / "glyphs" / f"{file}-{digest_json(made_of)}.safetensors"
    face = _cached(path)
    if face is None:
        face = _drawn(font)
        arrays: Arrays = {"codepoints": face.codepoints, "pixels": face.pixels}
        with contextlib.suppress(UserError, OSError):
            write_arrays(path, arrays, {"digest": face.digest})
    return face


def _cached(path: Path) -> _Face | None:
    try:
        arrays, about = read_arrays(path)
        digest = digest_arrays(arrays)
        return _Face(arrays["codepoints"], arrays["pixels"], digest) if about.get("digest") == digest else None
    except (UserError, OSError, KeyError):
        return None


def _drawn(path: Path) -> _Face:
    from matplotlib.ft2font import FT2Font

    drawable = sorted(codepoint for codepoint in FT2Font(str(path)).get_charmap() if _is_drawable(chr(codepoint)))
    sizes: dict[int, ImageFont.FreeTypeFont] = {}
    codepoints: list[int] = []
    pixels: list[npt.NDArray[np.uint8]] = []
    for codepoint in drawable:
        drawing = _draw(chr(codepoint), path, sizes)
        if drawing is not None:
            codepoints.append(codepoint)
            pixels.append(drawing)
    arrays: Arrays = {"codepoints": np.array(codepoints, dtype=np.int32), "pixels": np.stack(pixels)}
    return _Face(arrays["codepoints"], arrays["pixels"], digest_arrays(arrays))


def _is_drawable(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CMZ" and bool(unicodedata.name(character, ""))


def _draw(character: str, path: Path, sizes: dict[int, ImageFont.FreeTypeFont]) -> npt.NDArray[np.uint8] | None:
    """Draws a character 28 pixels large, but never at more than 40 pixels an em, so that a full stop stays a dot."""

    def _sized(em_pixels: int) -> ImageFont.FreeTypeFont:
        if em_pixels not in sizes:
            sizes[em_pixels] = ImageFont.truetype(str(path), em_pixels, layout_engine=ImageFont.Layout.BASIC)
        return sizes[em_pixels]

    left, top, right, bottom = _sized(LARGEST_EM_PIXELS).getbbox(character)
    largest = max(right - left, bottom - top)
    if largest <= 0:
        return None
    font = _sized(max(1, int(LARGEST_EM_PIXELS * min(1, INK_PIXELS / largest))))
    left, top, right, bottom = font.getbbox(character)
    paper = Image.new("L", (int(right - left) + 4, int(bottom - top) + 4), 0)
    ImageDraw.Draw(paper).text((2 - left, 2 - top), character, fill=255, font=font)
    ink = np.asarray(paper)
    down, across = np.flatnonzero(ink.max(axis=1)), np.flatnonzero(ink.max(axis=0))
    if len(down) == 0 or int(ink.sum()) < LEAST_INK:
        return None
    return _centred(ink[down[0] : down[-1] + 1, across[0] : across[-1] + 1])
