"""Pictures as small arrays of pixels."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps
from PIL import __version__ as pillow_version

from silohash.base import errors
from silohash.base.arrays import whole
from silohash.base.files import digest_json
from silohash.base.stamps import PICTURE_RULE
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Column, Pictures
from silohash.data.pictures.reading import to_rgb
from silohash.features.base import MOMENTS, Value, blocks, known, lacking, mean_and_deviation, stored_sums
from silohash.features.cache import DecodedPictures, PixelCache

BLOCK_ROWS = 1_024
SMALLEST_PIXELS, LARGEST_PIXELS = 8, 512
CACHED_PICTURES = 64
"""Fewer pictures than this are decoded without the cache."""

CACHED_SHARE = 8
"""If fewer than one in this many of an archive's pictures are needed, they are decoded without the cache."""

MODES = {1: "L", 3: "RGB"}

Pixels: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class PixelFeatures:
    """Pictures as ``(c, size, size)`` uint8, resized with antialiasing (bicubic).

    The whole picture is resized to a square, without cropping and without keeping the aspect ratio, so that no part of it
    is lost and no border is added. Pixels stay uint8; the tower subtracts `mean` and divides by `deviation`. Transparent
    pictures are drawn on white. All rows must have a picture.

    Attributes:
        size: Side in pixels, 8 to 512.
        channels: 1 (gray) or 3 (color).
        summed: The added sums of the silos per channel: ``count``, ``sum``, ``sum_squares``, int64 and thus exact.
        cache: The cache of decoded pictures, or None to decode them each time.
    """

    size: int = 32
    channels: int = 3
    summed: Arrays | None = None
    cache: PixelCache | None = field(default_factory=PixelCache, repr=False)

    kind: ClassVar[str] = "pixels"
    modality: ClassVar[Modality] = "image"
    options: ClassVar[Mapping[str, Any]] = {"size": 32, "channels": None, "cache": True}

    def __post_init__(self) -> None:
        whole("[features] size in pixels", self.size, SMALLEST_PIXELS, LARGEST_PIXELS)
        if type(self.channels) is not int or self.channels not in MODES:
            raise errors.WrongChoice(f"[features] channels is {self.channels!r}; it must be 1 (gray) or 3 (color).")

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> Self:
        """Return an unfitted featurizer. By default it is gray if the first picture of the column is gray.

        Raises:
            UserError: If the column does not hold pictures, or if an option is invalid.
        """
        if not isinstance(column, Pictures):
            raise lacking(kind, modality, "pictures")
        channels = options["channels"]
        if channels is None:
            channels = 1 if len(column) and _mode_of_first(column) == "L" else 3
        return cls(options["size"], channels, cache=PixelCache() if options["cache"] else None)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one picture, ``(c, size, size)``."""
        return (self.channels, self.size, self.size)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean per channel, ``(c,)``, on the scale 0 to 255."""
        return mean_and_deviation(known(self.summed, self.kind))[0]

    @property
    def deviation(self) -> npt.NDArray[np.float64]:
        """The standard deviation per channel, ``(c,)``, on the scale 0 to 255, or 1 for a constant channel."""
        deviation = mean_and_deviation(known(self.summed, self.kind))[1]
        return np.where(deviation > 0, deviation, 1.0)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return the exact sums of pixel values per channel: ``count``, ``sum``, ``sum_squares``, each ``(c,)`` int64."""
        read = self._source(column, rows)
        count, total, squares = (np.zeros(self.channels, np.int64) for _ in range(3))
        for _, block in blocks(rows, BLOCK_ROWS):
            pixels = read(block)
            count += len(block) * self.size**2
            total += pixels.sum(axis=(0, 2, 3), dtype=np.int64)
            squares += np.square(pixels, dtype=np.uint16).sum(axis=(0, 2, 3), dtype=np.int64)
        return {"count": count, "sum": total, "sum_squares": squares}

    def fitted(self, summed: Arrays) -> Self:
        """Return a featurizer with the mean and the standard deviation of all silos' pixels."""
        return replace(self, summed=summed)

    def transform(self, column: Column, rows: Rows) -> Pixels:
        """Return the pictures as ``(n, c, size, size)`` uint8."""
        read = self._source(column, rows)
        pixels = np.empty((len(rows), *self.shape), np.uint8)
        for place, block in blocks(rows, BLOCK_ROWS):
            pixels[place] = read(block)
        return pixels

    def encode_one(self, value: Value) -> Pixels:
        """Return one picture, see `query_picture`, as ``(1, c, size, size)`` uint8."""
        return self._draw(query_picture(value))[None]

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums, the ``mean`` and ``deviation`` that the tower needs, and the settings."""
        arrays = {} if self.summed is None else {**self.summed, "mean": self.mean, "deviation": self.deviation}
        settings = {"size": self.size, "channels": self.channels, "rule": PICTURE_RULE}
        return arrays, {"kind": self.kind, "modality": self.modality, **settings}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Self:
        """Return the featurizer with a given state."""
        channels = about["channels"]
        sums = {name: array for name, array in arrays.items() if name in MOMENTS}
        summed = stored_sums(sums, dict.fromkeys(MOMENTS, (channels,)))
        return cls(about["size"], channels, summed)

    def _draw(self, picture: Image.Image) -> Pixels:
        picture = _plain(picture).convert(MODES[self.channels])
        if picture.size != (self.size, self.size):
            picture = picture.resize((self.size, self.size), Image.Resampling.BICUBIC)
        pixels = np.asarray(picture, np.uint8).reshape(self.size, self.size, self.channels)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def _source(self, column: Column, rows: Rows) -> Callable[[Rows], Pixels]:
        """Return a function that reads a block of rows, from the cache if that is worthwhile, else from the pictures."""
        pictures = pictures_of(column)
        if self.cache is None or len(rows) < CACHED_PICTURES or len(rows) * CACHED_SHARE < len(pictures):
            return partial(self._decode, pictures)
        settings = {"pictures": pictures.digest(), "shape": self.shape, "pillow": pillow_version, "rule": PICTURE_RULE}
        shape = (len(pictures), self.channels, self.size, self.size)
        entry = self.cache.decoded(digest_json(settings), shape, partial(self._decode_one, pictures))
        return partial(self._decode, pictures) if entry is None else partial(self._read, pictures, entry)

    def _decode_one(self, column: Pictures, row: int) -> Pixels:
        with explaining_picture(row):
            return self._draw(column.picture(row))

    def _decode(self, column: Pictures, rows: Rows) -> Pixels:
        return np.stack([self._decode_one(column, int(row)) for row in rows])

    def _read(self, column: Pictures, entry: DecodedPictures, rows: Rows) -> Pixels:
        pixels = entry.pixels[rows]
        for place in np.flatnonzero(~entry.readable[rows]):
            pixels[place] = self._decode_one(column, int(rows[place]))
        return np.asarray(pixels)


def pictures_of(column: Column) -> Pictures:
    """Return a column that holds pictures.

    Raises:
        UserError: If the column does not hold pictures.
    """
    if not isinstance(column, Pictures):
        raise errors.ArchiveUnsuitable(
            "The run was trained on pictures, and this archive does not hold any. Use an archive with pictures."
        )
    return column


@contextmanager
def explaining_picture(row: int) -> Iterator[None]:
    """Translate the error of a damaged picture into one that names its row.

    Raises:
        UserError: In place of the decoder's error.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise errors.UnreadablePicture(
            f"The picture in row {row} cannot be decoded ({error}). Replace the file, or leave the item out."
        ) from error


def query_picture(value: Value) -> Image.Image:
    """Return a query as an upright picture of mode ``L`` or ``RGB``, with transparent areas drawn on white.

    Raises:
        UserError: If it is neither a picture nor its pixels as ``(h, w)`` or ``(h, w, 3 or 4)`` uint8.
    """
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in {2, 3} and value.size:
        value = _picture_of(value)
    if not isinstance(value, Image.Image):
        what = "a text" if isinstance(value, str) else "an array that is not a picture"
        raise errors.QueryUnsuitable(f"The run was trained on pictures, and the query is {what}. Pass a picture file.")
    return _plain(value)


def _plain(picture: Image.Image) -> Image.Image:
    if picture.mode in MODES.values():
        return ImageOps.exif_transpose(picture)
    try:
        picture.load()
        return to_rgb(picture)
    except ValueError as error:
        raise errors.UnreadablePicture(
            f"The picture's mode {picture.mode} is not supported. Save it as RGB with 8 bits per channel."
        ) from error


def _mode_of_first(pictures: Pictures) -> str:
    for row in range(min(len(pictures), CACHED_PICTURES)):
        try:
            return pictures.picture(row).mode
        except (OSError, ValueError, errors.UserError):
            continue
    return "RGB"


def _picture_of(pixels: npt.NDArray[Any]) -> Image.Image:
    try:
        return Image.fromarray(pixels)
    except TypeError as error:
        raise errors.WrongShape(
            f"The query has the shape {pixels.shape}, which is not the shape of a picture. Pass a picture file."
        ) from error
