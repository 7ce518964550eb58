"""Draw characters in the fonts that matplotlib installs, and keep the drawings in the cache folder.

A drawing is 32 x 32 grey pixels, black on white, fitted to the ink.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, ImageDraw, ImageFont, ImageOps, ImageStat, features

from silohash.cache import cache_folder
from silohash.files import digest_arrays, digest_file, digest_json, read_arrays, write_arrays
from silohash.types import Arrays, UserError

DRAWING_VERSION = 1
SIZE_PIXELS = 32
INK_PIXELS = 28
LARGEST_EM_PIXELS = 40
LEAST_INK = 4 * 255

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
"""Name and file of each face, in the order in which the option ``faces`` takes them."""


@dataclass(frozen=True)
class Face:
    """Drawings of one face.

    Attributes:
        codepoints: ``(n,)`` int32, ascending.
        pixels: ``(n, 32, 32)`` uint8.
        digest: of both arrays.
    """

    codepoints: npt.NDArray[np.int32]
    pixels: npt.NDArray[np.uint8]
    digest: str


def fit(ink: Image.Image) -> npt.NDArray[np.uint8]:
    """Crop a drawing to its ink, scale it like the archive's glyphs, and center it.

    Args:
        ink: a picture of mode ``L``, bright ink on black.

    Returns:
        ``(32, 32)`` uint8, black on white; white where there is no ink.
    """
    box = ink.getbbox()
    if box is None:
        return np.full((SIZE_PIXELS, SIZE_PIXELS), 255, dtype=np.uint8)
    part = ink.crop(box)
    scale = INK_PIXELS / max(part.size)
    size = (max(1, round(part.width * scale)), max(1, round(part.height * scale)))
    return _centered(part.resize(size, Image.Resampling.LANCZOS))


def _centered(ink: Image.Image) -> npt.NDArray[np.uint8]:
    paper = Image.new("L", (SIZE_PIXELS, SIZE_PIXELS), 255)
    paper.paste(ImageOps.invert(ink), ((SIZE_PIXELS - ink.width) // 2, (SIZE_PIXELS - ink.height) // 2))
    return np.array(paper)


def _fonts() -> Path:
    spec = importlib.util.find_spec("matplotlib")  # without importing it, which takes long
    data = Path(spec.origin or "").parent / "mpl-data" if spec else Path()
    if not data.is_dir():
        import matplotlib

        data = Path(matplotlib.get_data_path())
    return data / "fonts" / "ttf"


def face_of(file: str) -> Face:
    """Return the drawings of a font, from the cache where they are there.

    Raises:
        UserError: if the font is missing.
    """
    font = _fonts() / f"{file}.ttf"
    if not font.is_file():
        raise UserError(
            f"The font {font} is missing. Install matplotlib again: pip install --force-reinstall matplotlib."
        )
    made_of = {
        "drawing": DRAWING_VERSION,
        "font": digest_file(font),
        "unicode": unicodedata.unidata_version,
        "pillow": PIL.__version__,
        "freetype": features.version("freetype2"),
    }
    path = cache_folder() / "glyphs" / f"{file}-{digest_json(made_of)}.safetensors"
    with contextlib.suppress(UserError, OSError, KeyError):
        arrays, about = read_arrays(path)
        if about.get("digest") == digest_arrays(arrays):
            return Face(arrays["codepoints"], arrays["pixels"], about["digest"])
    arrays = _drawn(font)
    digest = digest_arrays(arrays)
    with contextlib.suppress(UserError, OSError):
        write_arrays(path, arrays, {"digest": digest})
    return Face(arrays["codepoints"], arrays["pixels"], digest)


def _drawn(path: Path) -> Arrays:
    from matplotlib.ft2font import FT2Font

    @functools.cache
    def _sized(em_pixels: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(str(path), em_pixels, layout_engine=ImageFont.Layout.BASIC)

    drawable = sorted(codepoint for codepoint in FT2Font(str(path)).get_charmap() if _is_drawable(chr(codepoint)))
    drawings = ((codepoint, _draw(chr(codepoint), _sized)) for codepoint in drawable)
    drawn = {codepoint: drawing for codepoint, drawing in drawings if drawing is not None}
    return {"codepoints": np.array(list(drawn), dtype=np.int32), "pixels": np.stack(list(drawn.values()))}


def _is_drawable(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CMZ" and bool(unicodedata.name(character, ""))


def _draw(character: str, sized: Callable[[int], ImageFont.FreeTypeFont]) -> npt.NDArray[np.uint8] | None:
    """Draw a character 28 pixels large, but at no more than 40 pixels per em, so that a full stop stays a dot."""
    left, top, right, bottom = sized(LARGEST_EM_PIXELS).getbbox(character)
    largest = max(right - left, bottom - top)
    if largest <= 0:
        return None
    font = sized(max(1, int(LARGEST_EM_PIXELS * min(1, INK_PIXELS / largest))))
    left, top, right, bottom = font.getbbox(character)
    paper = Image.new("L", (int(right - left) + 4, int(bottom - top) + 4), 0)
    ImageDraw.Draw(paper).text((2 - left, 2 - top), character, fill=255, font=font)
    return _centered(paper.crop(paper.getbbox())) if ImageStat.Stat(paper).sum[0] >= LEAST_INK else None
