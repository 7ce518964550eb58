"""Pictures in memory, packed in numpy archives or in separate files, and decoding picture files to plain RGB."""

from __future__ import annotations

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
from PIL import Image, ImageFile, ImageOps, Jpeg2KImagePlugin, TiffImagePlugin

from silohash.base.errors import MissingFile, ModalityNeeded, UnreadablePicture, UserError
from silohash.base.files import digest_arrays, digest_bytes, digest_json, read_bytes, read_npy
from silohash.base.forms import reading
from silohash.base.stamps import PICTURE_RULE, file_digests
from silohash.base.types import Rows
from silohash.data.pictures.deep import APPLIED_LATER, PNG_BITS, deep
from silohash.data.pictures.formats import adapted_pillow, load, open_picture
from silohash.data.pictures.profiles import PROFILE, jpeg2000_profile, to_srgb

RESTORE = "Restore the whole folder."
RULE = "silohash rule"
"""Key of the rule's version in the ``info`` of a picture that has more than 8 bits or a color profile."""

PERCENTILES_USED = "no value range"
"""A note on a picture whose range of values was taken from its own percentiles."""

ORIENTATION = 0x0112
"""Tag of EXIF data."""

SUBFILE_TYPE = 254
"""Tag of TIFF files whose lowest bit marks a page as a reduced form of another."""

GRAY_STEPS = {2: 85, 4: 17}
"""Steps between the grays of a PNG file by its bits per sample. Pillow applies them to the pixels only."""

LOCAL_HEADER = "<26xHH"
"""Header of a file in a zip archive. Its last two numbers are the lengths of the name and the extra field that follow."""


@dataclass(frozen=True)
class GrayPictures:
    """Gray pictures of one size, ``(N, height, width)`` uint8, held in memory; the digest is computed where it is empty."""

    pixels: npt.NDArray[np.uint8]
    known_digest: str = ""

    def __len__(self) -> int:
        return len(self.pixels)

    def picture(self, row: int) -> Image.Image:
        """Return one picture (mode ``L``)."""
        return Image.fromarray(self.pixels[row])

    def digest(self) -> str:
        """Return a digest of all pixels."""
        return self.known_digest or digest_arrays({"pixels": self.pixels})


def decode(content: bytes, *, at_least_pixels: int = 0, notes: list[str] | None = None) -> Image.Image:
    """Decode a picture file to RGB in the color space sRGB: rotated by its EXIF data, with transparency over white.

    Of several frames or pages, the first is decoded. `deep` says how pictures of more than 8 bits are reduced to 8.

    Args:
        content: The bytes of the file.
        at_least_pixels: Shortest side that is needed, or 0 for the full size. Files of JPEG and JPEG 2000 are decoded at the
            smallest of a half, a quarter, … of their size that suffices, and of TIFF, the smallest of the reduced pages
            that follow the first. This is faster and changes the pixels.
        notes: A list to which `PERCENTILES_USED` is added if the file does not declare which values are black and white.

    Raises:
        ValueError: If the file is not a picture of a known format, is truncated, has too many pixels, or cannot be
            converted to RGB.
        UserError: If the limit of pixels cannot be read.
    """
    try:
        with open_picture(content) as opened:
            reduced = at_least_pixels > 0 and _reduce(opened, content, at_least_pixels)
            try:
                load(opened)
            except OSError:
                if not reduced:
                    raise
                # A part of a JPEG 2000 file may have fewer levels than its header says.
                return decode(content, notes=notes)
            return to_rgb(opened, content, notes=notes)
    except UserError:
        raise
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _reduce(opened: ImageFile.ImageFile, content: bytes, least: int) -> bool:
    """Choose the smallest form of a picture that a format offers, and return whether it is not the whole picture."""
    whole = opened.size
    if isinstance(opened, Jpeg2KImagePlugin.Jpeg2KImageFile):
        levels = content[content.find(b"\xff\x52", content.find(b"\xff\x4f\xff\x51")) + 9]
        halvings = max(0, min(levels, (min(whole) // least).bit_length() - 1))
        opened.reduce = halvings
        return halvings > 0
    if isinstance(opened, TiffImagePlugin.TiffImageFile):
        chosen = page = 0
        with adapted_pillow():
            with suppress(EOFError):
                while True:
                    opened.seek(page := page + 1)
                    if not opened.tag_v2.get(SUBFILE_TYPE, 0) & 1 or min(opened.size) < least:
                        break
                    chosen = page
            opened.seek(chosen)
    else:
        opened.draft(None, (least, least))
    return opened.size != whole


def to_rgb(opened: Image.Image, content: bytes = b"", *, notes: list[str] | None = None) -> Image.Image:
    """Return a decoded picture of any mode as `decode` returns a file. ``content`` is empty if it does not come from one."""
    picture, depends = opened, False
    found = deep(opened, content)
    if found is not None:
        picture, depends = found.shown(), True
        picture.info |= {name: value for name, value in opened.info.items() if name in APPLIED_LATER}
        if found.declared is None and notes is not None:
            notes.append(PERCENTILES_USED)
    picture = _upright(picture)
    _complete(picture, opened.format, content)
    colors = to_srgb(picture)
    depends |= colors is not picture
    if colors.has_transparency_data:
        background = Image.new("RGBA", colors.size, "white")
        colors = Image.alpha_composite(background, colors.convert("RGBA"))
    result = colors.convert("RGB")
    result.info.pop(PROFILE, None)
    if depends:
        result.info[RULE] = PICTURE_RULE
    return result


def _upright(picture: Image.Image) -> Image.Image:
    """Return a picture turned as its EXIF data says, in a mode that Pillow can convert."""
    # Damaged EXIF data must not cost the whole picture.
    with suppress(Exception):
        # exif_transpose would copy a picture that is upright.
        if picture.getexif().get(ORIENTATION, 1) != 1:
            picture = ImageOps.exif_transpose(picture)
    return picture.convert("LA") if picture.mode == "La" else picture


def _complete(picture: Image.Image, form: str | None, content: bytes) -> None:
    """Add to a picture what Pillow does not read from its file, and correct what it reads wrongly."""
    clear = picture.info.get("transparency")
    if form == "PNG" and picture.mode == "L" and content and isinstance(clear, int):
        picture.info["transparency"] = clear * GRAY_STEPS.get(content[PNG_BITS], 1)
    if form == "JPEG2000" and (profile := jpeg2000_profile(content)):
        picture.info[PROFILE] = profile


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
            UserError: If there is none, or its file is damaged or can no longer be read.
        """
        try:
            return decode(self.content(row))
        except ValueError as error:
            raise self._unreadable(row, error) from error


class PackedPictures(PictureContents):
    """Pictures packed in ``images-000.npz``, ``images-001.npz``, …, each opened on first access.

    A file holds ``data`` (uint8, picture files end to end) and ``offsets`` (int64, one more than there are pictures).
    Pictures are numbered through the files in the order of their names. Several threads may read at once. The digest is
    computed where it is not known. Items of the same picture are told by their names, if those are known.
    """

    def __init__(self, folder: Path, known_digest: str = "", names: Sequence[str] | None = None) -> None:
        self.names = None if names is None else tuple(names)
        self._known_digest = known_digest
        self._paths = sorted(folder.glob("images-*.npz"))
        if not self._paths:
            raise MissingFile(f"{folder / 'images-000.npz'} is missing. Restore the whole folder {folder.name}.")
        self._offsets = [read_array(path, "offsets") for path in self._paths]
        self._starts = [0, *accumulate(len(offsets) - 1 for offsets in self._offsets)]
        self._data: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._starts[-1]

    def content(self, row: int) -> bytes:
        """Return the bytes of one picture's file.

        Raises:
            IndexError: If there is no such row.
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
        return UnreadablePicture(f"Picture {row} of {self._paths[0].parent} is damaged ({error}). Restore the folder.")

    def digest(self) -> str:
        """Return a digest of the content of all packed files."""
        if self._known_digest:
            return self._known_digest
        digests = file_digests(self._paths[0].parent, [path.name for path in self._paths])
        return digest_json([digests[path.name] for path in self._paths])


class PictureFiles(PictureContents):
    """Pictures in the files of one folder, decoded on access: one file per item; empty if the item does not have one.

    Digests are computed from the files where they are None. Items of the same picture are told by their names, which are the
    files where they are None.
    """

    def __init__(
        self,
        folder: Path,
        files: Sequence[str],
        digests: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.folder = folder
        self.files = tuple(files)
        self.names = self.files if names is None else tuple(names)
        self._digests = digests

    def __len__(self) -> int:
        return len(self.files)

    def taken(self, rows: Rows) -> PictureFiles:
        """Return the pictures of some rows."""
        known = None if self._digests is None else [self._digests[row] for row in rows]
        return PictureFiles(self.folder, [self.files[row] for row in rows], known, [self.names[row] for row in rows])

    def content(self, row: int) -> bytes:
        """Return the bytes of one picture's file.

        Raises:
            UserError: If there is none, or its file can no longer be read.
        """
        if not self.files[row]:
            raise ModalityNeeded(f"Item {row} of {self.folder} has no picture. Select items that have one.")
        try:
            return read_bytes(self.folder / self.files[row])
        except OSError as error:
            raise self._unreadable(row, error) from error

    def content_digest(self, row: int) -> str:
        """Return a digest of one picture's file, which is read only if no digest was given."""
        known = self._digests[row] if self._digests is not None else ""
        return known or digest_bytes(self.content(row))

    def _unreadable(self, row: int, error: Exception) -> UserError:
        return UnreadablePicture(
            f"{self.folder / self.files[row]} can no longer be read ({error}). Restore the file, or open the archive "
            "again without it."
        )

    def digest(self) -> str:
        """Return a digest of the content of all files."""
        if self._digests is not None:
            return digest_json(list(self._digests))
        of_name = {"": "", **file_digests(self.folder, sorted(set(self.files) - {""}))}
        return digest_json([of_name[name] for name in self.files])


def read_array(path: Path, key: str = "", *, mapped: bool = False) -> np.ndarray:
    """Read the array ``key`` of an ``.npz`` file, or read an ``.npy`` file or map it into memory."""
    if not key:
        return read_npy(path, mapped=mapped, remedy=RESTORE, missing=RESTORE)
    with reading(path, remedy=RESTORE, missing=RESTORE):
        # An .npy file under this name would be read as one array.
        with zipfile.ZipFile(path):
            arrays = np.load(path, allow_pickle=False)
        with arrays:
            return np.asarray(arrays[key])


def map_npz(path: Path, name: str) -> np.ndarray:
    """Map an array of an ``.npz`` file into memory where it is stored uncompressed; otherwise read it."""
    with reading(path, remedy=RESTORE, missing=RESTORE), path.open("rb") as stream:
        with zipfile.ZipFile(stream) as members:
            member = members.getinfo(f"{name}.npy")
        # numpy.load does not map members of an archive; the place of this one in the file is known.
        if member.compress_type == zipfile.ZIP_STORED and member.file_size:
            stream.seek(member.header_offset)
            stream.seek(sum(struct.unpack(LOCAL_HEADER, stream.read(struct.calcsize(LOCAL_HEADER)))), 1)
            if np.lib.format.read_magic(stream) == (1, 0):
                shape, column_order, dtype = np.lib.format.read_array_header_1_0(stream)
                if math.prod(shape) and not column_order and not dtype.hasobject:
                    return np.memmap(path, dtype, "r", stream.tell(), shape)
    return read_array(path, name)
