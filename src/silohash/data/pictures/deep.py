"""Pictures with more than 8 bits per sample, or with signed samples, become 8 bits.

A file may declare what its samples mean: the range of values (``SMinSampleValue`` and ``SMaxSampleValue`` of TIFF, fewer
bits than are stored, or a color profile), which samples are signed or fractions, that zero is white, and which value stands
for no data. What it declares is used. If nothing declares the range, most pictures do not use all 16 or 32 bits, so the
range is taken from the picture itself: from its 0.5th to its 99.5th percentile in gray, and from 0 to the 99.5th percentile
in color, so that hues are kept. An unsigned picture of 16 bits that spreads over most of its range is shown by all of it.
"""

import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, TiffImagePlugin

from silohash.data.pictures.formats import BITS, EXTRA, PLANES, adapted_pillow, load, open_picture
from silohash.data.pictures.profiles import PROFILE

Samples: TypeAlias = npt.NDArray[Any]
Range: TypeAlias = tuple[float, float]

PERCENTILES = (0.5, 99.5)
LARGEST = 65_535
"""Largest sample of 16 bits."""

WHOLE_GRAY, WHOLE_COLOR = (0.5, 0.75), (0.25, 0.5)
"""Shares of the range of 16 bits up to which a picture is shown by its percentiles, and from which by the whole range. In
between, the range grows from one to the other."""

CEILINGS = (255, 1_023, 4_095, 16_383, LARGEST, 2**24 - 1, 2**32 - 1)
"""Largest values of the usual numbers of bits. They show a picture that has the same value nearly everywhere."""

BLOCK_SAMPLES = 1 << 20
"""Number of samples that are converted at a time, so that a large picture does not take many times its memory."""

SAMPLE_FORMAT, SMIN, SMAX, PHOTOMETRIC, SAMPLES, NODATA = 339, 340, 341, 262, 277, 42113
"""Tags of TIFF files."""

AS_IN_GRAY, PER_PLANE = {256, 257, 259, 266, 278, 317, 322, 323}, {273, 279, 324, 325}
"""Tags of TIFF files with separate planes that describe each of them, and that list the places of their parts."""

PNG_BITS = 24
"""Place of the number of bits per sample in a PNG file."""

APPLIED_LATER = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif", PROFILE)
"""What a picture's ``info`` holds that still has to be applied: its orientation and its color profile."""


@dataclass(frozen=True)
class Deep:
    """The samples of a picture and what its file declares of them.

    Attributes:
        values: ``(height, width)``, or ``(height, width, n)`` with 3 values of RGB or 4 of CMYK, of any type of numbers.
        opacity: ``(height, width)`` uint8; 0 where there is no data, None if the picture is opaque.
        declared: The values of black and white, or None if the file does not declare them.
        white_is_zero: Whether low values are bright.
    """

    values: Samples
    opacity: npt.NDArray[np.uint8] | None = None
    declared: Range | None = None
    white_is_zero: bool = False

    def shown(self) -> Image.Image:
        """Return the picture with 8 bits per channel, in mode ``L``, ``LA``, ``RGB``, ``RGBA`` or ``CMYK``."""
        visible = self.values if self.opacity is None else self.values[self.opacity > 0]
        low, high = self.declared or window(visible, color=self.values.ndim == 3)
        pixels = _scaled(self.values, low, high)
        if self.white_is_zero:
            pixels = 255 - pixels
        picture = Image.fromarray(pixels)
        if picture.mode == "RGBA":
            picture = Image.frombytes("CMYK", picture.size, picture.tobytes())
        if self.opacity is not None:
            picture.putalpha(Image.fromarray(self.opacity))
        return picture


def window(values: Samples, *, color: bool) -> Range:
    """Return the values that become black and white if the file does not declare them. NaN and infinity are ignored."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values.reshape(-1)
    if not finite.size:
        return 0.0, 1.0
    low = 0.0 if color else float(np.percentile(finite, PERCENTILES[0], method="lower"))
    high = float(np.percentile(finite, PERCENTILES[1], method="higher"))
    if low == high:
        return min(low, 0.0), ceiling(high, fractions=values.dtype.kind == "f")
    if values.dtype == np.uint16:
        least, most = WHOLE_COLOR if color else WHOLE_GRAY
        whole = min(1.0, max(0.0, ((high - low) / LARGEST - least) / (most - least)))
        low, high = low * (1 - whole), high + (LARGEST - high) * whole
    return low, high


def ceiling(value: float, *, fractions: bool) -> float:
    """Return the largest value of the smallest usual number of bits that holds a value; 1 for fractions up to 1."""
    return next((float(most) for most in ((1, *CEILINGS) if fractions else CEILINGS) if value <= most), value)


def _scaled(values: Samples, low: float, high: float) -> npt.NDArray[np.uint8]:
    pixels = np.empty(values.shape, np.uint8)
    # Both types are exact for the samples that they take.
    kind = np.float32 if values.dtype.itemsize <= 2 else np.float64
    step = max(1, BLOCK_SAMPLES // (values[:1].size or 1))
    for start in range(0, len(values), step):
        with np.errstate(over="ignore", invalid="ignore"):
            exact: Samples = values[start : start + step].astype(kind)
            scaled = np.rint((exact - float(low)) * (255 / (high - low)))
        pixels[start : start + step] = np.nan_to_num(np.clip(scaled, 0, 255), nan=0)
    return pixels


def deep(opened: Image.Image, content: bytes = b"") -> Deep | None:
    """Return the samples of a loaded picture from a file of this content, or None if it has 8 bits per channel.

    Raises:
        ValueError: If Pillow cannot decode samples of its kind.
    """
    tags = _tags(opened)
    sample, white_is_zero = _first(tags.get(SAMPLE_FORMAT)) or 1, _first(tags.get(PHOTOMETRIC)) == 0
    if opened.mode == "L" and sample == 2:
        values: Samples = np.asarray(opened).view(np.int8)
    elif opened.mode == "L" and NODATA in tags:
        # Pillow has inverted samples of 8 bits, but the value for no data is that of the file.
        values = np.asarray(opened) ^ np.uint8(255 * white_is_zero)
    elif opened.mode in {"I", "F"} or opened.mode.startswith("I;16"):
        values = _typed(np.asarray(opened), int(sample), int(_first(tags.get(BITS)) or 0))
    else:
        return _deep_color(opened, content)
    return Deep(values, _presence(opened, values), _declared(opened, content, values), white_is_zero)


def _typed(values: Samples, sample: int, bits: int) -> Samples:
    """Return samples in the type that a TIFF file declares, of which Pillow knows only the number of bits."""
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if sample == 1 and bits == 32 and values.dtype == np.int32:
        return values.view(np.uint32)
    return values.view(np.float16) if sample == 3 and bits == 16 else values


def _presence(opened: Image.Image, values: Samples) -> npt.NDArray[np.uint8] | None:
    """Return the opacity of a picture with a transparent gray or color, or with the value that GDAL declares for no data."""
    clear, tags = opened.info.get("transparency"), _tags(opened)
    with suppress(TypeError, ValueError, OverflowError):
        if clear is None:
            clear = float(str(tags[NODATA]).strip("\0 ")) if NODATA in tags else None
        if clear is not None:
            absent = np.equal(values, clear) | (np.isnan(values) & np.isnan(clear))
            absent = absent.all(axis=-1) if values.ndim == 3 else absent
            return np.where(absent, 0, 255).astype(np.uint8) if absent.any() else None
    return None


def _declared(opened: Image.Image, content: bytes, values: Samples) -> Range | None:
    tags = _tags(opened)
    low, high = float(_first(tags.get(SMIN)) or 0), _first(tags.get(SMAX))
    if high is not None and low < high and np.isfinite([low, high]).all():
        return low, float(high)
    if values.dtype == np.uint8:
        return 0.0, 255.0
    bits = _significant_bits(opened, content)
    if bits:
        return 0.0, _largest(bits, str(opened.format), values)
    return (0.0, float(LARGEST)) if opened.info.get(PROFILE) and values.dtype == np.uint16 else None


def _largest(bits: int, form: str, values: Samples) -> float:
    """Return the sample of 16 bits that is white if a file declares a smaller number of bits."""
    most = (1 << bits) - 1
    if form == "JPEG2000":
        # Pillow moves the bits to the top.
        return float(most << 16 - bits)
    if form == "TIFF":
        return float(most)
    # In PNG the bits belong at the top, but often they are the lower ones.
    below = values[values <= most]
    usual = np.percentile(values, PERCENTILES[1], method="higher") <= most
    return float(most if usual and (below & (LARGEST >> bits)).any() else LARGEST)


def _significant_bits(opened: Image.Image, content: bytes) -> int:
    """Return the number of bits that a file with samples of 16 bits declares, or 0 if it does not."""
    if opened.format == "PNG":
        place = content.find(b"sBIT", 0, content.find(b"IDAT"))
        length = int.from_bytes(content[place - 4 : place], "big") if place > 0 else 0
        return max(content[place + 4 : place + (7 if length >= 3 else 5)]) if length in {1, 2, 3, 4} else 0
    if opened.format == "JPEG2000":
        depth = _jpeg2000_bits(content)
        return depth if depth < 16 else 0
    bits = int(_first(_tags(opened).get(BITS)) or 0)
    return bits if 8 < bits < 16 else 0


def _jpeg2000_bits(content: bytes) -> int:
    start = content.find(b"\xff\x4f\xff\x51")
    return (content[start + 42] & 0x7F) + 1 if 0 <= start < len(content) - 42 else 0


def _deep_color(opened: Image.Image, content: bytes) -> Deep | None:
    """Return the samples of 16 bits of a picture in color, or in gray with opacity."""
    if opened.format == "JPEG2000" and (bits := _jpeg2000_bits(content)) > 8:
        raise ValueError(
            f"it is a JPEG 2000 file in color with {bits} bits per channel, whose white Pillow decodes as black; save it as "
            "PNG or TIFF"
        )
    samples = _samples(opened, content)
    if samples is None:
        return None
    values = samples[..., :-1] if samples.shape[-1] in {2, 4} and opened.mode != "CMYK" else samples
    opacity = _presence(opened, values)
    values = np.ascontiguousarray(values[..., 0] if values.shape[-1] == 1 else values)
    inverted = values.ndim == 2 and _first(_tags(opened).get(PHOTOMETRIC)) == 0
    declared = _declared(opened, content, values)
    if values.size < samples.size:
        opaque = _opaque(samples, declared)
        opacity = _scaled(samples[..., -1], 0, opaque)
        # The values have been multiplied by the opacity.
        if _first(_tags(opened).get(EXTRA)) == 1:
            shares = np.maximum(samples[..., -1] / np.float32(opaque), 1 / LARGEST)
            shares = shares if values.ndim == 2 else shares[..., None]
            values = np.minimum(values / shares, LARGEST).astype(np.uint16)
    return Deep(values, opacity, declared, inverted)


def _opaque(samples: Samples, declared: Range | None) -> float:
    """Return the opacity that hides what is below. It has as many bits as the colors if it does not need more."""
    most = max(1.0, declared[1]) if declared else ceiling(float(samples[..., :-1].max()), fractions=False)
    return most if samples[..., -1].max() <= most else LARGEST


def _samples(opened: Image.Image, content: bytes) -> Samples | None:
    """Return all samples of 16 bits of a PNG or TIFF file, ``(height, width, n)``; None if it has 8 bits per sample."""
    tags: Any = _tags(opened)
    if not content or (content[PNG_BITS] if opened.format == "PNG" else _first(tags.get(BITS))) != 16:
        return None
    if tags.get(PLANES) == 2:
        return np.stack([_plane(tags, content, number) for number in range(len(opened.getbands()))], axis=-1)
    page = opened.tell()
    samples = _gray_and_opacity(content, page) if opened.mode == "RGBA" else None
    if samples is not None:
        return samples
    high, low = (_bytes_of(content, page, last=last) for last in (False, True))
    return None if high is None or low is None else high.astype(np.uint16) << 8 | low


def _gray_and_opacity(content: bytes, page: int) -> npt.NDArray[np.uint16] | None:
    """Return gray and opacity of 16 bits each, ``(height, width, 2)``; None if it is another picture."""
    opened = _opened_at(content, page)
    order = ">"
    if isinstance(opened, TiffImagePlugin.TiffImageFile):
        if opened.tag_v2.get(BITS) != (16, 16):
            return None
        stored = "<" if opened.tag_v2.prefix == b"II" else ">"
        order = "=" if opened.tile[0].codec_name == "libtiff" else stored
    elif [_raw_mode(tile) for tile in opened.tile] != ["LA;16B"]:
        return None
    else:
        # Pillow would keep one byte per sample. As RGBA, the four bytes of a pixel come as they are stored.
        opened.tile = [tile._replace(args="RGBA") for tile in opened.tile]
    load(opened)
    samples = np.asarray(opened).view(f"{order}u2").astype(np.uint16)
    if isinstance(opened, TiffImagePlugin.TiffImageFile) and _first(opened.tag_v2.get(EXTRA)) == 0:
        # The file says that the second sample is not an opacity.
        samples[..., 1] = LARGEST
    return samples


def _bytes_of(content: bytes, page: int, *, last: bool) -> npt.NDArray[np.uint8] | None:
    """Return the first or the last byte of each sample of 16 bits in color; None if it is not such a picture.

    Pillow keeps the first byte of each sample. It keeps the last one if it is told the opposite order of the bytes.
    """
    opened = _opened_at(content, page)
    tiles = []
    for tile in opened.tile:
        raw, rest = _raw_mode(tile), tile.args[1:] if isinstance(tile.args, tuple) else None
        if not raw.startswith(("RGB;16", "RGBA;16", "RGBX;16", "CMYK;16")):
            return None
        order = raw[-1] if raw[-1] != "N" else "L" if sys.byteorder == "little" else "B"
        raw = raw[:-1] + (order if not last else {"L": "B", "B": "L"}[order])
        tiles.append(tile._replace(args=raw if rest is None else (raw, *rest)))
    if not tiles:
        return None
    opened.tile = tiles
    load(opened)
    return np.asarray(opened)


def _plane(tags: TiffImagePlugin.ImageFileDirectory_v2, content: bytes, number: int) -> Samples:
    """Return the samples of one of the planes of a TIFF file, which is read as a gray file, ``(height, width)``.

    Pillow keeps only the first byte of each sample of separate planes.
    """
    gray: dict[int, tuple[int, ...]] = {BITS: (16,), PHOTOMETRIC: (1,), SAMPLES: (1,)}
    for tag in tags.keys() & AS_IN_GRAY:
        gray[tag] = (tags[tag],)
    for tag in tags.keys() & PER_PLANE:
        length = len(tags[tag]) // tags[SAMPLES]
        gray[tag] = tags[tag][number * length : (number + 1) * length]
    order = "<" if tags.prefix == b"II" else ">"
    start = len(content) + len(content) % 2
    entries, after = struct.pack(f"{order}H", len(gray)), start + 12 * len(gray) + 6
    data = b""
    for tag, values in sorted(gray.items()):
        packed = struct.pack(f"{order}{len(values)}L", *values)
        if len(values) > 1:
            packed, data = struct.pack(f"{order}L", after + len(data)), data + packed
        entries += struct.pack(f"{order}HHL", tag, 4, len(values)) + packed
    head = tags.prefix + struct.pack(f"{order}HL", 42, start)
    plane = open_picture(b"".join((head, content[8:].ljust(start - 8, b"\0"), entries, bytes(4), data)))
    load(plane)
    return np.asarray(plane).astype(np.uint16, copy=False)


def _opened_at(content: bytes, page: int) -> ImageFile.ImageFile:
    opened = open_picture(content)
    with adapted_pillow():
        opened.seek(page)
    return opened


def _raw_mode(tile: ImageFile._Tile) -> str:
    return str(tile.args[0] if isinstance(tile.args, tuple) else tile.args)


def _tags(opened: Image.Image) -> Mapping[int, Any]:
    return opened.tag_v2 if isinstance(opened, TiffImagePlugin.TiffImageFile) else {}


def _first(value: Any) -> Any:  # noqa: ANN401  a number, several, or None
    return value[0] if isinstance(value, tuple) and value else None if isinstance(value, tuple) else value
