"""Pictures in memory, packed in numpy archives or in separate files, and decoding picture files to plain RGB."""

from __future__ import annotations

import io
import math
import struct
import threading
import zipfile
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from silohash.files import digest_arrays, digest_bytes, digest_json, read_npy
from silohash.forms import reading
from silohash.stamps import file_digests
from silohash.types import Rows, UserError

RESTORE = "Restore the whole folder."
LOCAL_HEADER = "<26xHH"
"""Header of a file in a zip archive. Its last two numbers are the lengths of the name and the extra field that follow."""


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


class PictureContents(ABC):
    """Pictures whose files can be read as bytes, decoded on access."""

    @abstractmethod
    def content(self, row: int) -> bytes:
        """Return the bytes of one picture's file."""

    @abstractmethod
    def _unreadable(self, row: int, error: Exception) -> UserError:
        """Return the error of a picture that cannot be decoded."""

    def content_digest(self, row: int) -> str:
        """Return a digest of one picture's file, without decoding it."""
        return digest_bytes(self.content(row))

    def picture(self, row: int) -> Image.Image:
        """Decode one picture (mode ``RGB``).

        Raises:
            UserError: if there is none, or its file is damaged or can no longer be read.
        """
        try:
            return decode(self.content(row))
        except ValueError as error:
            raise self._unreadable(row, error) from error


class PackedPictures(PictureContents):
    """Pictures packed in ``images-000.npz``, ``images-001.npz``, …, each opened on first access.

    A file holds ``data`` (uint8, picture files end to end) and ``offsets`` (int64, one more than there are pictures).
    Pictures are numbered through the files in the order of their names. Several threads may read at once.

    Args:
        folder: the folder of the packed files.
        known_digest: digest of the pictures; computed from the files where it is empty.
        names: one name per item, by which items of the same picture are told; None if they are not known.
    """

    def __init__(self, folder: Path, known_digest: str = "", names: Sequence[str] | None = None) -> None:
        self.names = None if names is None else tuple(names)
        self._known_digest = known_digest
        self._paths = sorted(folder.glob("images-*.npz"))
        if not self._paths:
            raise UserError(f"{folder / 'images-000.npz'} is missing. Restore the whole folder {folder.name}.")
        self._offsets = [read_array(path, "offsets") for path in self._paths]
        self._starts = [0, *accumulate(len(offsets) - 1 for offsets in self._offsets)]
        self._data: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of pictures."""
        return self._starts[-1]

    def content(self, row: int) -> bytes:
        """Return the bytes of one picture's file.

        Raises:
            IndexError: if there is no such row.
        """
        if not 0 <= row < len(self):
            raise IndexError(f"picture {row} of {len(self)}")
        shard = bisect_right(self._starts, row) - 1
        with self._lock:
            if shard not in self._data:
                self._data[shard] = map_npz(self._paths[shard], "data")
        start, stop = self._offsets[shard][row - self._starts[shard] :][:2]
        return self._data[shard][start:stop].tobytes()

    def _unreadable(self, row: int, error: Exception) -> UserError:
        return UserError(f"Picture {row} of {self._paths[0].parent} is damaged ({error}). Restore the folder.")

    def digest(self) -> str:
        """Return a digest of the content of all packed files."""
        if self._known_digest:
            return self._known_digest
        digests = file_digests(self._paths[0].parent, [path.name for path in self._paths])
        return digest_json([digests[path.name] for path in self._paths])


class PictureFiles(PictureContents):
    """Pictures in the files of one folder, decoded on access.

    Args:
        folder: the folder that the names are relative to.
        names: one file name per item; empty if the item does not have one.
        digests: one digest per file; computed from the files where it is None.
    """

    def __init__(self, folder: Path, names: Sequence[str], digests: Sequence[str] | None = None) -> None:
        self.folder = folder
        self.names = tuple(names)
        self._digests = digests

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.names)

    def taken(self, rows: Rows) -> PictureFiles:
        """Return the pictures of some rows."""
        known = None if self._digests is None else [self._digests[row] for row in rows]
        return PictureFiles(self.folder, [self.names[row] for row in rows], known)

    def content(self, row: int) -> bytes:
        """Return the bytes of one picture's file.

        Raises:
            UserError: if there is none, or its file can no longer be read.
        """
        if not self.names[row]:
            raise UserError(f"Item {row} of {self.folder} has no picture. Select items that have one.")
        try:
            return (self.folder / self.names[row]).read_bytes()
        except OSError as error:
            raise self._unreadable(row, error) from error

    def content_digest(self, row: int) -> str:
        """Return a digest of one picture's file, which is read only if no digest was given."""
        known = self._digests[row] if self._digests is not None else ""
        return known or digest_bytes(self.content(row))

    def _unreadable(self, row: int, error: Exception) -> UserError:
        return UserError(
            f"{self.folder / self.names[row]} can no longer be read ({error}). Restore the file, or open the archive "
            "again without it."
        )

    def digest(self) -> str:
        """Return a digest of the content of all files."""
        if self._digests is not None:
            return digest_json(list(self._digests))
        of_name = {"": "", **file_digests(self.folder, sorted(set(self.names) - {""}))}
        return digest_json([of_name[name] for name in self.names])


def read_array(path: Path, key: str = "", *, mapped: bool = False) -> np.ndarray:
    """Read the array ``key`` of an ``.npz`` file, or read an ``.npy`` file or map it into memory.

    Raises:
        UserError: if the file is missing or damaged, or lacks the array.
    """
    if not key:
        return read_npy(path, mapped=mapped, remedy=RESTORE, missing=RESTORE)
    with reading(path, remedy=RESTORE, missing=RESTORE):
        with zipfile.ZipFile(path):  # an .npy file under this name would be read as one array
            arrays = np.load(path, allow_pickle=False)
        with arrays:
            return np.asarray(arrays[key])


def map_npz(path: Path, name: str) -> np.ndarray:
    """Map an array of an ``.npz`` file into memory where it is stored uncompressed; otherwise read it.

    Raises:
        UserError: if the file is missing or damaged, or lacks the array.
    """
    with reading(path, remedy=RESTORE, missing=RESTORE), path.open("rb") as stream:
        with zipfile.ZipFile(stream) as members:
            member = members.getinfo(f"{name}.npy")
        if member.compress_type == zipfile.ZIP_STORED and member.file_size:
            stream.seek(member.header_offset)
            stream.seek(sum(struct.unpack(LOCAL_HEADER, stream.read(struct.calcsize(LOCAL_HEADER)))), 1)
            if np.lib.format.read_magic(stream) == (1, 0):
                shape, column_order, dtype = np.lib.format.read_array_header_1_0(stream)
                if math.prod(shape) and not column_order and not dtype.hasobject:
                    return np.memmap(path, dtype, "r", stream.tell(), shape)
    return read_array(path, name)
