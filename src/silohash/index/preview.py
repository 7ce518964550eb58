"""Previews: small copies of pictures, which a silo can store beside its codes and show with its hits."""

from __future__ import annotations

import base64
import binascii
import io
import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

PREVIEW_PIXELS = 256
"""Longest side of a preview, in pixels. A card of the search page is 180 to 230 CSS pixels wide, and dense screens show each
of them as two by two pixels."""

LOSSLESS_PIXELS = 64
"""Longest side, in pixels, up to which a gray preview is always a PNG file. Above, it is a JPEG file if that is smaller."""

JPEG_QUALITY = 75

HEADER_BYTES = 24
"""Number of bytes at the beginning of a PNG file. The last eight are the width and the height."""

_MEDIA_TYPES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"))
_URL = re.compile(r"data:(image/png|image/jpeg);base64,([A-Za-z0-9+/]+={0,2})")


def make_preview(picture: Image.Image) -> bytes:
    """Return a small copy of a picture in mode ``L`` or ``RGB`` as a file. A picture that is small already keeps its size.

    Color pictures become JPEG files. Gray pictures become PNG files. Gray photographs of more than `LOSSLESS_PIXELS` become
    JPEG files, because these are smaller.

    Returns:
        The content of a PNG or JPEG file whose sides are at most `PREVIEW_PIXELS` long.
    """
    small = picture.copy()
    small.thumbnail((PREVIEW_PIXELS, PREVIEW_PIXELS))
    # Pillow would write the comment of a JPEG file again, which can tell more than the picture.
    small.info.clear()
    if small.mode != "L":
        return _saved(small.convert("RGB"), "JPEG", quality=JPEG_QUALITY)
    lossless = _saved(small, "PNG", compress_level=1)
    if max(small.size) <= LOSSLESS_PIXELS:
        return lossless
    return min(lossless, _saved(small, "JPEG", quality=JPEG_QUALITY), key=len)


def _saved(picture: Image.Image, kind: str, **options: int) -> bytes:
    content = io.BytesIO()
    picture.save(content, kind, **options)
    return content.getvalue()


def preview_url(content: bytes) -> str:
    r"""Return a preview as a data URL, the form in which it travels with a hit and is shown by a browser.

    Raises:
        ValueError: If the content is neither a PNG nor a JPEG file.

    Example:
        >>> preview_url(b"\xff\xd8\xff")
        'data:image/jpeg;base64,/9j/'
    """
    for start, media_type in _MEDIA_TYPES:
        if content.startswith(start):
            return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
    raise ValueError("A preview is neither a PNG nor a JPEG file.")


def preview_size(url: str) -> tuple[int, int] | None:
    """Return the width and height of a preview in pixels, from the header of its file; None if it is not a PNG file."""
    content = preview_content(url) if url.startswith("data:image/png") else None
    if content is None or len(content) < HEADER_BYTES:
        return None
    width, height = struct.unpack(">II", content[HEADER_BYTES - 8 : HEADER_BYTES])
    return width, height


def preview_content(url: object) -> bytes | None:
    """Return the content of a preview from its data URL; None if the value is not such a URL.

    Previews come from other silos, so anything that is not plain base64 of a PNG or JPEG file is rejected.
    """
    match = _URL.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        return None
    try:
        content = base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return None
    expected = next(start for start, media_type in _MEDIA_TYPES if media_type == match[1])
    return content if content.startswith(expected) else None
