"""Draw the characters of the embedded archive, and write the file that the package contains.

The drawings depend on the versions of Pillow, its FreeType and the fonts, and the names on the version of Unicode. The file
was written once, so that the archive does not depend on them. Another file changes the results of every run on the archive.

    python tests/draw_glyphs.py FILE      writes the file and prints its digest, for silohash.data.glyphs.archive.DIGEST
"""

from __future__ import annotations

import functools
import io
import json
import sys
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import fontTools.unicodedata
import matplotlib
import numpy as np
import PIL
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont, ImageStat, features

from silohash.base.files import digest_arrays, digest_file
from silohash.data.glyphs.archive import FACES, INK_PIXELS, centered
from tests.glyph_kinds import KINDS, Facts, describe

LARGEST_EM_PIXELS = 40
LEAST_INK = 4 * 255
FILES = {
    "dejavu sans": "DejaVuSans",
    "dejavu serif": "DejaVuSerif",
    "stix": "STIXGeneral",
    "dejavu mono": "DejaVuSansMono",
    "dejavu sans bold": "DejaVuSans-Bold",
    "dejavu serif italic": "DejaVuSerif-Italic",
    "dejavu sans oblique": "DejaVuSans-Oblique",
    "stix bold": "STIXGeneralBol",
    "stix italic": "STIXGeneralItalic",
    "dejavu mono bold": "DejaVuSansMono-Bold",
    "dejavu serif bold": "DejaVuSerif-Bold",
    "dejavu serif bold italic": "DejaVuSerif-BoldItalic",
    "dejavu mono oblique": "DejaVuSansMono-Oblique",
    "stix bold italic": "STIXGeneralBolIta",
    "dejavu sans bold oblique": "DejaVuSans-BoldOblique",
    "dejavu mono bold oblique": "DejaVuSansMono-BoldOblique",
}
"""The font of each face, in the folder of fonts that matplotlib installs."""


def versions() -> dict[str, str]:
    """Return the versions that decide the content of the file."""
    return {
        "Pillow": PIL.__version__,
        "FreeType": str(features.version("freetype2")),
        "fonts": f"matplotlib {matplotlib.__version__}",
        "names": f"Unicode {unicodedata.unidata_version}",
        "blocks and scripts": f"fontTools {fontTools.version}",
    }


def font_of(face: str) -> Path:
    """Return the file of a face's font."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{FILES[face]}.ttf"


def drawn(font: Path) -> dict[str, np.ndarray]:
    """Return ``codepoints``, ``(n,)`` int32, and ``pixels``, ``(n, 32, 32)`` uint8, of the characters of a font."""

    @functools.cache
    def sized(em_pixels: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(str(font), em_pixels, layout_engine=ImageFont.Layout.BASIC)

    drawable = sorted(codepoint for codepoint in FT2Font(str(font)).get_charmap() if is_drawable(chr(codepoint)))
    drawings = ((codepoint, draw(chr(codepoint), sized)) for codepoint in drawable)
    found = {codepoint: drawing for codepoint, drawing in drawings if drawing is not None}
    return {"codepoints": np.array(list(found), dtype=np.int32), "pixels": np.stack(list(found.values()))}


def is_drawable(character: str) -> bool:
    """Return whether a character has a name and is a letter, a number, a punctuation mark or a symbol."""
    return unicodedata.category(character)[0] not in "CMZ" and bool(unicodedata.name(character, ""))


def draw(character: str, sized: Callable[[int], ImageFont.FreeTypeFont]) -> np.ndarray | None:
    """Draw a character 28 pixels large, but at no more than 40 pixels per em, so that a full stop stays a dot."""
    left, top, right, bottom = sized(LARGEST_EM_PIXELS).getbbox(character)
    largest = max(right - left, bottom - top)
    if largest <= 0:
        return None
    font = sized(max(1, int(LARGEST_EM_PIXELS * min(1, INK_PIXELS / largest))))
    left, top, right, bottom = font.getbbox(character)
    paper = Image.new("L", (int(right - left) + 4, int(bottom - top) + 4), 0)
    ImageDraw.Draw(paper).text((2 - left, 2 - top), character, fill=255, font=font)
    return centered(paper.crop(paper.getbbox())) if ImageStat.Stat(paper).sum[0] >= LEAST_INK else None


def line_of(character: str) -> str:
    """Return the line of ``characters.tsv`` for a character."""
    name, category = unicodedata.name(character).lower(), unicodedata.category(character)
    block, script = fontTools.unicodedata.block(character), fontTools.unicodedata.script(character)
    *texts, kinds = describe(character, Facts(name, category, block, script))
    return "\t".join([*texts, "|".join(kinds)])


def members() -> dict[str, np.ndarray | bytes]:
    """Return what the file contains, by name."""
    places: dict[bytes, int] = {}
    found: dict[str, np.ndarray | bytes] = {}
    digests: dict[str, str] = {}
    for face in FACES:
        arrays = drawn(font_of(face))
        digests[face] = digest_arrays(arrays)
        known = len(places)
        of_face = [places.setdefault(picture.tobytes(), len(places)) for picture in arrays["pixels"]]
        pictures = np.frombuffer(b"".join(list(places)[known:]), np.uint8).reshape(-1, *arrays["pixels"].shape[1:])
        found |= {f"{face}/codepoints": arrays["codepoints"], f"{face}/places": np.array(of_face, np.uint16)}
        found[f"{face}/pictures"] = pictures
    codepoints = np.unique(np.concatenate([found[f"{face}/codepoints"] for face in FACES]))
    found["characters.tsv"] = "\n".join(line_of(chr(codepoint)) for codepoint in codepoints).encode()
    found["about.json"] = json.dumps({"kinds": KINDS, "digests": digests, "drawn_with": versions()}, indent=1).encode()
    return found


def write(path: Path) -> None:
    """Write the file."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members().items():
            stream = io.BytesIO(content if isinstance(content, bytes) else b"")
            if isinstance(content, np.ndarray):
                name += ".npy"
                np.save(stream, content)
            archive.writestr(zipfile.ZipInfo(name), stream.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    print(digest_file(Path(sys.argv[1])))
