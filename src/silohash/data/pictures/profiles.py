"""Color profiles: pictures that embed one are converted to sRGB, the color space of everything that reads them here."""

import io
import struct
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

IDENTITY_LEVELS = 2
"""A profile that changes no color by more than this, of 255, is one of the many spellings of sRGB, and is not applied."""

KEPT_PROFILES = 16
MODES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Pillow's modes by the color space of a profile."""

PROFILE = "icc_profile"


def to_srgb(picture: Image.Image) -> Image.Image:
    """Return a decoded picture, 8 bits per channel in any mode, whose color profile has been applied and removed.

    A picture without a profile, and one whose profile is damaged, does not fit its pixels or means sRGB, keeps its pixels.
    """
    profile = picture.info.get(PROFILE)
    if not isinstance(profile, bytes) or not profile or picture.mode == "1":
        return picture
    colors, alpha = _split(picture)
    convert = _conversion(profile, colors.mode)
    if convert is None:
        return picture
    result = convert(colors)
    if alpha is not None:
        result.putalpha(alpha)
    result.info = {name: value for name, value in picture.info.items() if name not in {PROFILE, "transparency"}}
    return result


def jpeg2000_profile(content: bytes) -> bytes | None:
    """Return the profile in the header of a JPEG 2000 file, which Pillow does not read."""
    place = content.find(b"colr\x02", 0, content.find(b"jp2c"))
    if place < 4:
        return None
    (length,) = struct.unpack_from(">I", content, place - 4)
    profile = content[place + 7 : place - 4 + length]
    return profile if profile[36:40] == b"acsp" else None


def _split(picture: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """Return the colors of a picture as L, RGB or CMYK, and its opacity if it has any transparency."""
    clear = picture.has_transparency_data
    if picture.mode in {"L", "LA", "La"}:
        colors = picture.convert("LA" if clear else "L")
    elif picture.mode == "CMYK":
        return picture, None
    else:
        colors = picture.convert("RGBA" if clear else "RGB")
    return (colors.convert(colors.mode.removesuffix("A")), colors.getchannel("A")) if clear else (colors, None)


@lru_cache(KEPT_PROFILES)
def _conversion(profile: bytes, mode: str) -> Callable[[Image.Image], Image.Image] | None:
    """Return what converts pictures of a mode with a profile to sRGB, or None if their pixels are to be kept."""
    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        takes = MODES.get(given.profile.xcolor_space.strip(), "")
        if takes != mode and (takes, mode) != ("RGB", "L"):
            return None
        precise = ImageCms.Flags.NOOPTIMIZE if takes == "L" else ImageCms.Flags.HIGHRESPRECALC
        # Without a cache of the last pixel, because several threads share the transform.
        flags = precise | ImageCms.Flags.NOCACHE
        transform = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), takes, "RGB", flags=flags)
    # A damaged profile must not cost the whole picture.
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None
    if takes == "CMYK":
        return transform.apply
    if takes == "L":
        grays = np.arange(256, dtype=np.uint8)
        table = np.asarray(transform.apply(Image.fromarray(grays[None])))[0, :, 1]
        return None if _is_near(table, grays) else lambda picture: picture.point(table.tolist())
    steps = np.arange(0, 256, 15, dtype=np.uint8)
    grid = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(1, -1, 3)
    if _is_near(np.asarray(transform.apply(Image.fromarray(grid))), grid):
        return None
    return lambda picture: transform.apply(picture.convert("RGB"))


def _is_near(pixels: npt.NDArray[np.uint8], others: npt.NDArray[np.uint8]) -> bool:
    return bool(np.abs(pixels.astype(np.int16) - others).max() <= IDENTITY_LEVELS)
