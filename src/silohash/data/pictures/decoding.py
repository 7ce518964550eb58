"""Pictures in memory, and the decoding of picture files of any mode to plain RGB."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from silohash.files import digest_arrays

PAPER = (255, 255, 255)
CHECK_PIXELS = 64


@dataclass(frozen=True)
class GreyPictures:
    """Grey pictures of one size that are held in memory.

    Attributes:
        pixels: ``(N, height, width)`` uint8.
        known_digest: a digest of the pixels where one is known; else they are read through.
    """

    pixels: npt.NDArray[np.uint8]
    known_digest: str = ""

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self.pixels)

    def picture(self, row: int) -> Image.Image:
        """Returns one picture (mode ``L``)."""
        return Image.fromarray(self.pixels[row])

    def digest(self) -> str:
        """Returns a digest of all pixels."""
        return self.known_digest or digest_arrays({"pixels": self.pixels})


def decode(content: bytes, *, at_least_pixels: int = 0) -> Image.Image:
    """Decodes a picture file to RGB: turned as its EXIF says, transparency over white, 16 bits to 8.

    Args:
        content: the file.
        at_least_pixels: where it is not 0, a JPEG file is decoded at a half, a quarter or an eighth of its size, whichever
            is the smallest with both sides at least so long: sooner done, but not the same pixels.

    Raises:
        ValueError: if the file is no picture, is truncated, or is of a kind that cannot be shown in RGB.
    """
    with _damage(), Image.open(io.BytesIO(content)) as opened:
        if at_least_pixels:
            opened.draft(None, (at_least_pixels, at_least_pixels))
        return _plain(opened)


def check(content: bytes) -> None:
    """Reads a picture file to its end, at a reduced size where its format allows.

    Raises:
        ValueError: if the file is no picture, is truncated, or is of a kind that cannot be shown in RGB.
    """
    with _damage(), Image.open(io.BytesIO(content)) as opened:
        opened.draft(None, (CHECK_PIXELS, CHECK_PIXELS))
        _plain(opened)


@contextmanager
def _damage() -> Iterator[None]:
    """Turns whatever the many decoders raise on damaged files into a ValueError."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise ValueError("no picture of a known kind") from error
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _plain(opened: Image.Image) -> Image.Image:
    opened.load()
    picture = _upright(opened)
    if picture.mode in {"F", "I"} or picture.mode.startswith("I;16"):
        return _from_deep(picture)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, (*PAPER, 255))
        return Image.alpha_composite(paper, picture).convert("RGB")
    return picture.convert("RGB")


def _upright(opened: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(opened)
    except Exception:  # damaged EXIF data is no reason to lose a whole picture
        return opened


def _from_deep(picture: Image.Image) -> Image.Image:
    values = np.nan_to_num(np.asarray(picture, dtype=np.float64))
    if picture.mode == "F":
        low, high = values.min(), values.max()
        values = (values - low) * (255 / (high - low or 1))
    elif values.max() > 255:
        values = values / 257
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8)).convert("RGB")
