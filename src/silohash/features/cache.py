"""Decoded pictures on disk, so that an archive is decoded once.

An entry is found by the pictures' content and by what was made of it, so that it never goes stale; it is written beside
its place and renamed, checked against its digest before it is used, and made anew where it is damaged. Where it cannot
be written (a full disk) the work goes on without it.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.cache import cache_folder
from silohash.files import digest_file, folder_beside, read_json, write_json
from silohash.types import Notify, UserError

SCHEMA = 1
LONG_TASK_PICTURES = 2_000

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class DecodedPictures:
    """Every picture of an archive, decoded.

    Attributes:
        pixels: ``(N, c, h, w)`` uint8, mapped from disk; zeros where a picture could not be decoded.
        readable: ``(N,)`` bool.
    """

    pixels: Pixels
    readable: npt.NDArray[np.bool_]


def notify_on_standard_error(line: str) -> None:
    """Print a line where it does not mix with results."""
    print(line, file=sys.stderr)


_lock = threading.Lock()
_checked: dict[tuple[Path, int, int], DecodedPictures] = {}


@dataclass(frozen=True)
class PixelCache:
    """The folder of decoded pictures.

    Attributes:
        folder: where entries stand; default ``pixels`` in the folder that ``SILOHASH_CACHE`` names.
        notify: told when a long decoding starts, and when the cache cannot be used.
    """

    folder: Path = field(default_factory=lambda: cache_folder() / "pixels")
    notify: Notify = notify_on_standard_error

    def decoded(
        self, key: str, shape: tuple[int, int, int, int], draw: Callable[[int], Pixels]
    ) -> DecodedPictures | None:
        """Return an entry, made first if it is not there.

        Args:
            key: digest of the pictures and of what is made of them.
            shape: ``(N, c, h, w)``.
            draw: row -> ``(c, h, w)`` uint8; a row for which it raises `UserError` is remembered as not readable.

        Returns:
            The entry, or None where it could not be written.
        """
        path = self.folder / key
        with _lock:
            found = _open(path, shape)
            if found is None:
                if path.exists():
                    self.notify(f"The decoded pictures in {path} are damaged and are made anew.")
                elif shape[0] >= LONG_TASK_PICTURES:
                    self.notify(f"Decoding {shape[0]:,} pictures, once ...")
                try:
                    with folder_beside(path) as beside:
                        _write(beside, shape, draw)
                except (OSError, UserError) as error:
                    self.notify(f"Going on without a cache of decoded pictures: {error}")
                found = _open(path, shape)
        return found


def _write(folder: Path, shape: tuple[int, int, int, int], draw: Callable[[int], Pixels]) -> None:
    # Written as a stream: on a full disk a mapped file would end the process instead of raising an error.
    readable = np.zeros(shape[0], np.bool_)
    with (folder / "pixels.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for row in range(shape[0]):
            pixels = _drawn(draw, row)
            readable[row] = pixels is not None
            content = bytes(math.prod(shape[1:])) if pixels is None else pixels.tobytes()
            stream.write(content)
    np.save(folder / "readable.npy", readable)
    digests = {name: digest_file(folder / name) for name in ("pixels.npy", "readable.npy")}
    write_json(folder / "about.json", {"schema": SCHEMA, "digests": digests})


def _drawn(draw: Callable[[int], Pixels], row: int) -> Pixels | None:
    try:
        return draw(row)
    except UserError:
        return None


def _open(path: Path, shape: tuple[int, int, int, int]) -> DecodedPictures | None:
    """Return an entry that is whole, or None."""
    try:
        stat = (path / "pixels.npy").stat()
        mark = (path, stat.st_mtime_ns, stat.st_size)
        if mark not in _checked:
            about = read_json(path / "about.json")
            if any(digest_file(path / name) != digest for name, digest in about["digests"].items()):
                return None
            pixels = np.load(path / "pixels.npy", mmap_mode="r", allow_pickle=False)
            readable = np.load(path / "readable.npy", allow_pickle=False)
            if pixels.shape != shape or readable.shape != shape[:1]:
                return None
            _checked[mark] = DecodedPictures(pixels, readable)
        return _checked[mark]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError):
        return None
