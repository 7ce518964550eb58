"""Uploaded pictures: limits on size and pixels, and refusal of files that are not exactly one picture.

A picture is only decoded to be encoded as a code. It is neither stored as a file nor sent to anyone in the form in which it
came. The checks protect the decoder and the memory of this machine.
"""

import io
import struct
import threading
import zipfile
from collections.abc import Callable, Mapping

from PIL import Image, ImageOps

from silohash.base.errors import UploadRefused
from silohash.data.glyphs.archive import fit
from silohash.data.pictures.formats import MAX_PIXELS, TooManyPixelsError, most_pixels, open_picture
from silohash.data.pictures.reading import decode

MOST_BYTES = 20_000_000
"""Largest picture file, in bytes."""

MOST_PIXELS = 50_000_000
"""Largest picture, in pixels, unless `MAX_PIXELS` is set. A decoded pixel takes three bytes."""

LONGEST_SIDE = 20_000
"""Longest side of a picture, in pixels, unless `MAX_PIXELS` is set."""

MOST_SCANS = 64
"""Largest number of scans of a JPEG file. A progressive JPEG file has about ten; each takes the time of a whole picture."""

MOST_FRAMES = 1_000
"""Largest number of frames of an animation. Only its first frame is searched for."""

GLYPHS = "glyphs"
"""Name of the archive of characters, whose pictures are fitted to their ink."""

DRAWING_PIXELS = 256
"""Side of a drawing, in pixels, for archives other than the characters."""

DRAWING_MARGIN = 0.08
"""Empty margin of a drawing, as a share of its side."""

LEAST_INK = 32
"""Minimum darkness of the ink of a drawing, from 0 to 255."""

_DECODERS = threading.BoundedSemaphore(2)
"""At most two pictures are decoded at the same time, so that uploads cannot exhaust the memory."""

_MARKUP = (b"<script", b"<?php", b"<html", b"<!doctype")
_PDF_WITHIN = 1024
"""Number of first bytes in which readers of PDF files look for the header."""


def read_picture(content: bytes) -> Image.Image:
    """Return a picture file as an upright picture in mode ``RGB``, decoded as `silohash search --image` decodes it.

    Raises:
        UploadRefused: If the file is empty, too large, of another format, damaged, or also a file of another kind.
    """
    if not content:
        raise UploadRefused("The picture file is empty. Choose another file.")
    if len(content) > MOST_BYTES:
        raise UploadRefused(f"The file has {len(content) / 1e6:,.1f} MB. Send at most {MOST_BYTES / 1e6:,.0f} MB.", 413)
    _check_header(content)
    _check_single_kind(content)
    with _DECODERS:
        try:
            return decode(content)
        except ValueError as error:
            raise UploadRefused(f"The picture is damaged ({error}). Choose another file.") from error


def read_drawing(content: bytes, archive: str) -> Image.Image:
    """Return a drawing in the form of the archive's pictures: dark on white, cut to its ink, centered.

    Its picture file is dark on white or on a transparent background. For the archive of characters, it is fitted like them.

    Raises:
        UploadRefused: As `read_picture`, or if nothing is drawn.
    """
    ink = ImageOps.invert(read_picture(content).convert("L"))
    box = ink.point(lambda value: 255 if value >= LEAST_INK else 0).getbbox()
    if box is None:
        raise UploadRefused("The drawing is empty. Draw something first.")
    part = ink.crop(box)
    if archive == GLYPHS:
        return Image.fromarray(fit(part))
    side = round(DRAWING_PIXELS * (1 - 2 * DRAWING_MARGIN))
    return Image.fromarray(fit(part, DRAWING_PIXELS, side)).convert("RGB")


def _check_header(content: bytes) -> None:
    """Check the format and the size that a picture file declares, without decoding its pixels."""
    most, longest_side = most_pixels(MOST_PIXELS), most_pixels(LONGEST_SIDE)
    try:
        with open_picture(content, most) as opened:
            if max(opened.size) > longest_side:
                raise TooManyPixelsError(f"{opened.width:,} x {opened.height:,}", most)
    except TooManyPixelsError as error:
        raise UploadRefused(
            f"The picture has {error.size} pixels. Send at most {most:,} pixels and {longest_side:,} "
            f"per side, or set {MAX_PIXELS} to a higher number where the service runs.",
            413,
        ) from error
    except Exception as error:  # a decoder may fail in any way on a malformed header
        reason = str(error) or type(error).__name__
        raise UploadRefused(
            f"The file is not a picture that can be read: {reason}. Send a PNG or JPEG file.", 415
        ) from error


def _check_single_kind(content: bytes) -> None:
    """Check that a picture file is not also a file of another kind, has few frames, and has nothing after the picture."""
    lowered = content.lower()
    other = b"%pdf-" in lowered[:_PDF_WITHIN] or any(mark in lowered for mark in _MARKUP)
    if other or zipfile.is_zipfile(io.BytesIO(content)):
        raise UploadRefused("The file is a picture and also of another kind. Save the picture again as PNG or JPEG.")
    if content.startswith(b"\xff\xd8") and content.count(b"\xff\xda") > MOST_SCANS:
        raise UploadRefused(f"The JPEG file has more than {MOST_SCANS} scans. Save the picture again as PNG or JPEG.")
    # A JPEG file has no layout here, because phones store a video or a second picture after it.
    layouts = (read(content) for start, read in _LAYOUTS.items() if content.startswith(start))
    end, frames = next(layouts, (len(content), 1))
    if frames > MOST_FRAMES:
        raise UploadRefused(f"The picture has {frames:,} frames. Send at most {MOST_FRAMES:,}.", 413)
    if content[end:].strip(b"\0"):
        raise UploadRefused(
            f"The file has {len(content) - end:,} bytes after the picture. Save the picture again as PNG or JPEG."
        )


def _layout_of_png(content: bytes) -> tuple[int, int]:
    place, frames = 8, 1
    while place + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        if kind == b"acTL":
            frames = int(struct.unpack_from(">I", content, place + 8)[0])
        place += 12 + length
        if kind == b"IEND":
            break
    return min(place, len(content)), frames


def _layout_of_riff(content: bytes) -> tuple[int, int]:
    size = int(struct.unpack_from("<I", content, 4)[0]) if len(content) >= 8 else 0
    end = min(8 + size + size % 2, len(content))
    place, frames = 12, 0
    while place + 8 <= end:
        kind, length = struct.unpack_from("<4sI", content, place)
        frames += kind == b"ANMF"
        place += 8 + length + length % 2
    return end, frames


def _layout_of_gif(content: bytes) -> tuple[int, int]:
    """Return the layout of a GIF file, which ends with the file if its blocks do not lead to a trailer."""
    frames = 0
    try:
        place = 13 + _color_table(content[10])
        while content[place] != 0x3B:
            if content[place] == 0x2C:
                frames += 1
                place += 10 + _color_table(content[place + 9]) + 1
            else:
                place += 2
            while content[place]:
                place += 1 + content[place]
            place += 1
        return place + 1, frames
    except IndexError:
        return len(content), frames


def _color_table(flags: int) -> int:
    """Return the length of a GIF color table, in bytes, from the flags that announce it."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


_LAYOUTS: Mapping[bytes, Callable[[bytes], tuple[int, int]]] = {
    b"\x89PNG": _layout_of_png,
    b"RIFF": _layout_of_riff,
    b"GIF8": _layout_of_gif,
}
"""What returns where a picture file ends, and its number of frames (which a PNG file announces), without decoding it.

It is known by how a file begins, for the formats that have a known end."""
