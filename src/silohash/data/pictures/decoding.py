"""Pictures in memory, and decoding picture files of any mode to plain RGB."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from silohash.files import digest_arrays


@dataclass(frozen=True)
class GreyPictures:
    """Gray pictures of one size, held in memory.

    Attributes:
        pixels: ``(N, height, width)`` uint8.
        known_digest: digest of the pixels; computed where it is empty.
    """

    pixels: npt.NDArray[np.uint8]
    known_digest: str = ""

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.pixels)

    def picture(self, row: int) -> Image.Image:
        """Return one picture (mode ``L``)."""
        return Image.fromarray(self.pixels[row])

    def digest(self) -> str:
        """Return a digest of all pixels."""
        return self.known_digest or digest_arrays({"pixels": self.pixels})


def decode(content: bytes, *, at_least_pixels: int = 0) -> Image.Image:
    """Decode a picture file to RGB: rotated by its EXIF data, transparency over white, 16 bits reduced to 8.

    Args:
        content: the bytes of the file.
        at_least_pixels: shortest side that is needed, or 0 for the full size. A JPEG file is decoded at the smallest of a
            half, a quarter and an eighth of its size that suffices. This is faster and changes the pixels.

    Raises:
        ValueError: if the file is not a picture, is truncated, or cannot be converted to RGB.
    """
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if at_least_pixels:
                opened.draft(None, (at_least_pixels, at_least_pixels))
            return _plain(opened)
    except UnidentifiedImageError as error:
        raise ValueError("it is not a picture of a known format") from error
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _plain(opened: Image.Image) -> Image.Image:
    opened.load()
    picture = opened
    with suppress(Exception):  # damaged EXIF data must not cost the whole picture
        picture = ImageOps.exif_transpose(opened)
    if picture.mode in {"F", "I"} or picture.mode.startswith("I;16"):
        return _from_deep(picture)
    if picture.has_transparency_data:
        background = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(background, picture.convert("RGBA")).convert("RGB")
    return picture.convert("RGB")


def _from_deep(picture: Image.Image) -> Image.Image:
    values = np.nan_to_num(np.asarray(picture, dtype=np.float64))
    if picture.mode == "F":
        low, high = values.min(), values.max()
        values = (values - low) * (255 / (high - low or 1))
    elif values.max() > 255:
        values = values / 257
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8)).convert("RGB")
