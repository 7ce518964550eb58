"""The picture formats that are read, told by their content, and the one function that opens picture files."""

import io
import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError

from silohash.base.errors import OutOfRange
from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.base.optional import installed, sentence

MAX_PIXELS = "SILOHASH_MAX_PIXELS"
"""Environment variable with the largest number of pixels of a picture."""

DEFAULT_MAX_PIXELS = 178_956_970
"""The limit without the variable. It is Pillow's: half a gigabyte per picture in color."""


class Format(NamedTuple):
    """A picture format: its name for people and in Pillow, how its files begin and end (usual end first), its media type."""

    name: str
    plugin: str
    starts: bytes
    suffixes: tuple[str, ...]
    media_type: str


_KNOWN = read_toml(Path(__file__).with_name("formats.toml"), remedy=REINSTALL, missing=REINSTALL)
FORMATS = tuple(
    Format(name, form["plugin"], form["starts"].encode(), tuple(form["suffixes"]), form["media_type"])
    for name, form in _KNOWN["read"].items()
)
WEBP, TIFF, HEIC = FORMATS[2], FORMATS[5], FORMATS[-1]
HEIC_PACKAGE = "pillow_heif"

NAMES = f"{', '.join(form.name for form in FORMATS[:-1])} or {FORMATS[-1].name}"
SUFFIXES = frozenset(suffix for form in FORMATS for suffix in form.suffixes)
MEDIA_TYPES = ",".join(form.media_type for form in FORMATS)

OTHERS = {name: start.encode() for name, start in _KNOWN["others"].items()}
"""The patterns with which files of other kinds begin."""

BITS, PLANES, EXTRA = 258, 284, 338
"""Tags of TIFF files."""

_ADAPTING = threading.RLock()
"""Held while variables of Pillow's modules are replaced."""

_GRAY_SAMPLES = {
    (1, 12): ("I;16", "I;12", "I;12"), (1, 16): ("I;16", "I;16", "I;16B"), (2, 16): ("I", "I;16S", "I;16BS"),
    (3, 16): ("I;16", "I;16", "I;16B"), (1, 32): ("I", "I;32", "I;32B"), (2, 32): ("I", "I;32S", "I;32BS"),
    (3, 32): ("F", "F;32F", "F;32BF"), (3, 64): ("F", "F;64F", "F;64BF"), (2, 8): ("L", "L", "L"),
}  # fmt: skip
"""Pillow's mode and its raw modes (``II`` and ``MM``) by the sample format and the number of bits of a gray TIFF file."""

_TIFF_KINDS = {
    (order, photometric, (kind,), 1, (bits,), ()): (mode, raw)
    for photometric in (0, 1)
    for (kind, bits), (mode, *raws) in _GRAY_SAMPLES.items()
    for order, raw in zip((b"II", b"MM"), raws, strict=True)
} | {
    # The four bytes of a pixel as they are stored.
    (order, photometric, (1,), 1, (16, 16), (extra,)): ("RGBA", "RGBA")
    for order in (b"II", b"MM")
    for photometric in (0, 1)
    for extra in (0, 1, 2)
}
"""The kinds of gray TIFF files that `silohash.data.pictures.deep` can read. Pillow knows only some of them."""

_OPEN_INFO = _TIFF_KINDS | TiffImagePlugin.OPEN_INFO


class TooManyPixelsError(ValueError):
    """A picture has more pixels, ``size`` as text, than the limit allows."""

    def __init__(self, size: str, limit: int) -> None:
        super().__init__(f"it has {size} pixels, more than {limit:,}; set {MAX_PIXELS} to a higher number to read it")
        self.size = size


def most_pixels(default: int = DEFAULT_MAX_PIXELS) -> int:
    """Return the largest number of pixels that a picture may have; ``default`` if the user did not set one.

    Raises:
        UserError: If the variable that sets it is not a whole number of at least 1.
    """
    value = os.environ.get(MAX_PIXELS, "").strip()
    if not value:
        return default
    digits = value.replace("_", "").replace(",", "")
    if not digits.isascii() or not digits.isdecimal() or not int(digits):
        raise OutOfRange(f'{MAX_PIXELS} is "{value}". Set it to a number of pixels, such as {4 * DEFAULT_MAX_PIXELS}.')
    return int(digits)


def format_of(content: bytes) -> Format | None:
    """Return the format of a picture file by its first bytes; None if it is not of one of the `FORMATS`."""
    return next((form for form in FORMATS if re.match(form.starts, content, re.DOTALL)), None)


def open_picture(content: bytes, limit: int | None = None) -> ImageFile.ImageFile:
    """Open a picture file without decoding its pixels. Its content tells its format; its name does not matter.

    A picture can have as many pixels as ``limit`` says, or `most_pixels` if it is None.

    Raises:
        TooManyPixelsError: If it has more pixels.
        ValueError: If it is not of one of the `FORMATS`, is damaged, or is a HEIC file without the package that reads it.
        UserError: If the limit cannot be read.
    """
    limit = most_pixels() if limit is None else limit
    found = format_of(content)
    if found is None:
        raise ValueError(_other(content))
    if found is HEIC:
        if not installed(HEIC_PACKAGE):
            raise ValueError(sentence(HEIC_PACKAGE, "it is a HEIC file. Reading it"))
        if HEIC.plugin not in Image.OPEN:
            import pillow_heif

            pillow_heif.register_heif_opener()
    try:
        # A WebP file takes the memory of its pixels when it is opened.
        with adapted_pillow(max(limit, DEFAULT_MAX_PIXELS) if found is WEBP else None):
            opened = Image.open(io.BytesIO(content), formats=[found.plugin])
    except UnidentifiedImageError as error:
        raise ValueError(f"it is a {found.name} file that is damaged or of a kind that cannot be decoded") from error
    except Image.DecompressionBombError as error:
        number = re.search(r"\d+", str(error))
        raise TooManyPixelsError(f"{int(number[0]):,}" if number else "too many", limit) from error
    width, height = opened.size
    if width * height > limit:
        opened.close()
        raise TooManyPixelsError(f"{width:,} x {height:,}", limit)
    return opened


@contextmanager
def adapted_pillow(limit: int | None = None) -> Iterator[None]:
    """Let Pillow open what is read here: pictures above its own limit of pixels, and more kinds of TIFF files.

    Pillow raises an error above the ``limit`` of pixels, if there is one. Nothing of it lasts, because other code of the
    process may use Pillow, too.
    """
    with _ADAPTING, warnings.catch_warnings():
        # What matters is raised as an error.
        warnings.simplefilter("ignore")
        before = Image.MAX_IMAGE_PIXELS, TiffImagePlugin.OPEN_INFO
        # Pillow only warns up to twice its limit.
        Image.MAX_IMAGE_PIXELS = None if limit is None else limit // 2
        TiffImagePlugin.OPEN_INFO = _OPEN_INFO
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS, TiffImagePlugin.OPEN_INFO = before


def load(opened: Image.Image) -> None:
    """Decode the pixels of an opened picture. Only one that Pillow would warn of has to wait for others."""
    if isinstance(opened, TiffImagePlugin.TiffImageFile):
        tags = opened.tag_v2
        if tags.get(PLANES) == 2 and (tags.get(BITS) in {(8, 8), (16, 16)} or tags.get(EXTRA, (0,))[0] == 1):
            raise ValueError("it is a TIFF file whose opacity is stored in a plane of its own; save it without planes")
        opened.tile = [tile._replace(args=_native(tile)) for tile in opened.tile]
    usual = DEFAULT_MAX_PIXELS // 2
    if opened.width * opened.height <= min(usual, Image.MAX_IMAGE_PIXELS or usual):
        opened.load()
        return
    with adapted_pillow():
        opened.load()


def _native(tile: ImageFile._Tile) -> tuple[Any, ...] | str | None:
    """Return the arguments of a tile's decoder. libtiff returns samples in the order of this machine, not of the file."""
    if tile.codec_name != "libtiff" or not isinstance(tile.args, tuple):
        return tile.args
    raw = str(tile.args[0])
    return (re.sub(r"^([IF];(?:16|32|64))B?([SF]?)$", r"\1N\2", raw), *tile.args[1:])


def _other(content: bytes) -> str:
    """Return why a file that is not of a known format cannot be read."""
    if not content:
        return "it is empty"
    kind = next(
        (name for name, start in OTHERS.items() if re.match(start, content[:2048], re.DOTALL | re.IGNORECASE)), ""
    )
    return f"it is {kind}, not {NAMES}" if kind else f"it is not a picture of a known format ({NAMES})"
