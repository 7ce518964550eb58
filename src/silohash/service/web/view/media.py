"""Released pictures in the size of the page, encoded again, so that a browser never receives a file as someone made it."""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from PIL import Image

from silohash.base.errors import UnreadablePicture
from silohash.base.files import digest_json, read_bytes
from silohash.data.pictures.reading import decode

SIZES = (480, 1600)
"""Longest sides of pictures, in pixels: in a grid, and on the page of an item."""

QUALITY = 85
SMALL_PIXELS = 128
"""Pictures with shorter sides are sent as PNG, without loss."""

MOST_BYTES = 64_000_000


class Media:
    """Read, scale and encode pictures, and remember the last ones."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        """Remember at most ``most_bytes`` bytes of encoded pictures."""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[str, tuple[bytes, str]] = OrderedDict()
        self._lock = Lock()

    def picture(self, path: Path, pixels: int) -> tuple[bytes, str]:
        """Return the content and the media type of a picture whose sides are at most ``pixels`` long.

        Raises:
            UserError: If the file cannot be read or decoded.
        """
        try:
            state = path.stat()
            key = digest_json([str(path), state.st_mtime_ns, state.st_size, pixels])
            with self._lock:
                if key in self._known:
                    self._known.move_to_end(key)
                    return self._known[key]
            found = encoded(decode(read_bytes(path), at_least_pixels=pixels), pixels)
        except (OSError, ValueError) as error:
            raise UnreadablePicture(f"The picture cannot be read ({error}). Its silo must restore the file.") from error
        self._remember(key, found)
        return found

    def _remember(self, key: str, found: tuple[bytes, str]) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._bytes += len(found[0])
            while self._bytes > self._most_bytes:
                _, (content, _) = self._known.popitem(last=False)
                self._bytes -= len(content)


def encoded(picture: Image.Image, pixels: int) -> tuple[bytes, str]:
    """Return a picture, scaled down to sides of at most ``pixels``, as a PNG or JPEG file with its media type."""
    picture.thumbnail((pixels, pixels), Image.Resampling.LANCZOS)
    picture.info.clear()  # Pillow would write the comment of a JPEG file again
    content = io.BytesIO()
    if max(picture.size) <= SMALL_PIXELS:
        picture.save(content, "PNG")
        return content.getvalue(), "image/png"
    picture.convert("RGB").save(content, "JPEG", quality=QUALITY, optimize=True)
    return content.getvalue(), "image/jpeg"


def etag(content: bytes) -> str:
    """Return a value for the header ``ETag`` of a content."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
