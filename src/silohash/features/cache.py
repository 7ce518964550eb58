"""A cache of decoded pictures on disk, so that an archive is decoded only once.

An entry's key is a digest of the pictures and of the settings of the decoding, so entries never become stale. An entry is
written atomically, checked against its digest before use, and replaced if it is damaged. Only one process decodes an entry,
and others that need it wait. If the cache cannot be written (for example because the disk is full), the work continues
without it.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from silohash.base.cache import private_cache
from silohash.base.errors import UserError
from silohash.base.files import digest_file, folder_beside, open_private, read_json, read_npy, write_json
from silohash.base.locks import locked
from silohash.base.types import Notify
from silohash.base.visible import visible

SCHEMA = 1
WAIT_SECONDS = 3600.0
"""How long to wait for another process that decodes the same pictures."""
LONG_TASK_PICTURES = 2_000

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class DecodedPictures:
    """All pictures of an archive, decoded.

    Attributes:
        pixels: ``(N, c, h, w)`` uint8, memory-mapped. Pictures that could not be decoded are zero.
        readable: ``(N,)`` bool, which pictures could be decoded.
    """

    pixels: Pixels
    readable: npt.NDArray[np.bool_]


def notify_on_standard_error(line: str) -> None:
    """Print a line on standard error, where it does not mix with results."""
    print(visible(line), file=sys.stderr)


_lock = threading.Lock()
_checked: dict[tuple[Path, int, int], DecodedPictures] = {}


@dataclass(frozen=True)
class PixelCache:
    """The folder of decoded pictures.

    Attributes:
        folder: Folder of the entries. The default is ``pixels`` in the folder that ``SILOHASH_CACHE`` names.
        notify: Called with a line when a long decoding starts, and when the cache cannot be used.
    """

    folder: Path = field(default_factory=lambda: private_cache("pixels"))
    notify: Notify = notify_on_standard_error

    def decoded(
        self, key: str, shape: tuple[int, int, int, int], draw: Callable[[int], Pixels]
    ) -> DecodedPictures | None:
        """Return an entry, which is created if it does not exist.

        Args:
            key: Digest of the pictures and of the settings of the decoding.
            shape: Shape of the decoded pictures, ``(N, c, h, w)``.
            draw: Function that maps a row to ``(c, h, w)`` uint8. A row for which it raises `UserError` is stored as
                not readable.

        Returns:
            The entry, or None if it could not be written.
        """
        path = self.folder / key
        with _lock:
            found = _open(path, shape)
            if found is None:
                try:
                    entry = self.folder / f".{key}"
                    with locked(entry, wait_seconds=WAIT_SECONDS, notify=self.notify, temporary=True):
                        found = _open(path, shape) or self._decode(path, shape, draw)
                except (OSError, UserError) as error:
                    self.notify(f"Continuing without a cache of decoded pictures: {error}")
        return found

    def _decode(
        self, path: Path, shape: tuple[int, int, int, int], draw: Callable[[int], Pixels]
    ) -> DecodedPictures | None:
        if path.exists():
            self.notify(f"The decoded pictures in {path} are damaged and will be decoded again.")
        elif shape[0] >= LONG_TASK_PICTURES:
            self.notify(f"Decoding {shape[0]:,} pictures; the result is kept for later runs ...")
        with folder_beside(path, private=True) as beside:
            _write(beside, shape, draw)
        return _open(path, shape)


def _write(folder: Path, shape: tuple[int, int, int, int], draw: Callable[[int], Pixels]) -> None:
    # The file is written as a stream: on a full disk, a memory-mapped file would kill the process without an error.
    readable = np.zeros(shape[0], np.bool_)
    with open(folder / "pixels.npy", "wb", opener=open_private) as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for row in range(shape[0]):
            pixels = _drawn(draw, row)
            readable[row] = pixels is not None
            content = bytes(math.prod(shape[1:])) if pixels is None else pixels.tobytes()
            stream.write(content)
    with open(folder / "readable.npy", "wb", opener=open_private) as stream:
        np.save(stream, readable)
    digests = {name: digest_file(folder / name) for name in ("pixels.npy", "readable.npy")}
    write_json(folder / "about.json", {"schema": SCHEMA, "digests": digests}, private=True)


def _drawn(draw: Callable[[int], Pixels], row: int) -> Pixels | None:
    try:
        return draw(row)
    except UserError:
        return None


@dataclass(frozen=True)
class _Entry:
    """The form of ``about.json``."""

    digests: dict[Literal["pixels.npy", "readable.npy"], str]


def _open(path: Path, shape: tuple[int, int, int, int]) -> DecodedPictures | None:
    """Return an entry, or None if it is missing or damaged."""
    try:
        stat = (path / "pixels.npy").stat()
        version = (path, stat.st_mtime_ns, stat.st_size)
        if version not in _checked:
            about = read_json(path / "about.json", _Entry)
            if any(digest_file(path / name) != digest for name, digest in about.digests.items()):
                return None
            pixels, readable = read_npy(path / "pixels.npy", mapped=True), read_npy(path / "readable.npy")
            if pixels.shape != shape or readable.shape != shape[:1]:
                return None
            _checked[version] = DecodedPictures(pixels, readable)
        return _checked[version]
    except (OSError, UserError):
        return None
