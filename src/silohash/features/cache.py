"""Caches on disk: decoded pictures, so that an archive is decoded once, and vectors, so that a network encodes items once.

An entry of decoded pictures is named after a digest of the pictures and of the settings of the decoding, so entries never
become stale. It is written atomically, checked against its digest before use, and replaced if it is damaged. Only one
process decodes an entry, and others that need it wait.

The vectors of a network have a folder, which is named after the digest of everything that affects them. It holds blocks of
vectors with the digests of the items. Each block is written atomically, is named after the digest of its content, and never
changes, so several processes may add blocks. A damaged block is removed, and its items are encoded again.

If a cache cannot be written (for example because the disk is full), the work continues without it.
"""

import math
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from silohash.base import files
from silohash.base.cache import private_cache
from silohash.base.errors import UserError
from silohash.base.locks import locked
from silohash.base.types import Notify
from silohash.base.visible import visible

SCHEMA = 1
WAIT_SECONDS = 3600.0
"""How long to wait for another process that decodes the same pictures."""
LONG_TASK_PICTURES = 2_000

BLOCK_ITEMS = 512
"""Number of items per block, which is also the largest number of items lost when a run is interrupted."""

SUFFIX = ".safetensors"

Pixels = npt.NDArray[np.uint8]
Vectors = npt.NDArray[np.float32]


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
        """Return an entry, which is created if it does not exist, or None if it could not be written.

        Args:
            key: Digest of the pictures and of the settings of the decoding.
            shape: Shape of the decoded pictures, ``(N, c, h, w)``.
            draw: Function that maps a row to ``(c, h, w)`` uint8. A row for which it raises `UserError` is not readable.
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
        with files.folder_beside(path, private=True) as beside:
            _write(beside, shape, draw)
        return _open(path, shape)


def _write(folder: Path, shape: tuple[int, int, int, int], draw: Callable[[int], Pixels]) -> None:
    # The file is written as a stream: on a full disk, a memory-mapped file would kill the process without an error.
    readable = np.zeros(shape[0], np.bool_)
    with open(folder / "pixels.npy", "wb", opener=files.open_private) as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for row in range(shape[0]):
            content = bytes(math.prod(shape[1:]))
            with suppress(UserError):
                content, readable[row] = draw(row).tobytes(), True
            stream.write(content)
    with open(folder / "readable.npy", "wb", opener=files.open_private) as stream:
        np.save(stream, readable)
    digests = {name: files.digest_file(folder / name) for name in ("pixels.npy", "readable.npy")}
    files.write_json(folder / "about.json", {"schema": SCHEMA, "digests": digests}, private=True)


@dataclass(frozen=True)
class _Entry:
    digests: dict[Literal["pixels.npy", "readable.npy"], str]


def _open(path: Path, shape: tuple[int, int, int, int]) -> DecodedPictures | None:
    try:
        stat = (path / "pixels.npy").stat()
        version = (path, stat.st_mtime_ns, stat.st_size)
        if version not in _checked:
            about = files.read_json(path / "about.json", _Entry)
            if any(files.digest_file(path / name) != digest for name, digest in about.digests.items()):
                return None
            pixels, readable = files.read_npy(path / "pixels.npy", mapped=True), files.read_npy(path / "readable.npy")
            if pixels.shape != shape or readable.shape != shape[:1]:
                return None
            _checked[version] = DecodedPictures(pixels, readable)
        return _checked[version]
    except (OSError, UserError):
        return None


class NetworkVectors:
    """The vectors of one network by the digests of the items' content, stored in 16 bits if ``half``.

    New vectors are kept in memory until a block is full, or `flush` is called. A damaged block and a folder that cannot be
    used are reported to ``notify``.
    """

    def __init__(
        self, folder: Path, width: int, *, half: bool = False, notify: Notify = notify_on_standard_error
    ) -> None:
        self.folder = folder
        self.width = width
        self.kept_as: np.dtype[np.floating] = np.dtype(np.float16 if half else np.float32)
        self.notify = notify
        self._places: dict[str, tuple[Path, int]] = {}
        self._pending: dict[str, npt.NDArray[np.floating]] = {}
        self._unwritten: dict[str, npt.NDArray[np.floating]] = {}
        self._writable = True
        self._lock = threading.RLock()
        self._seen: set[Path] = set()

    def missing(self, digests: Sequence[str]) -> list[int]:
        """Return the first position of each distinct item without a vector, in order."""
        with self._lock:
            self._read_new_blocks()
            first: dict[str, int] = {}
            for position, digest in enumerate(digests):
                if digest not in self._places and digest not in self._pending and digest not in self._unwritten:
                    first.setdefault(digest, position)
            return list(first.values())

    def add(self, digests: Sequence[str], vectors: Vectors) -> None:
        """Add vectors, ``(n, width)``, and write all full blocks."""
        kept = self.rounded(vectors)
        with self._lock:
            self._pending.update(zip(digests, kept, strict=True))
            while len(self._pending) >= BLOCK_ITEMS:
                self._write(BLOCK_ITEMS)

    def rounded(self, vectors: Vectors) -> npt.NDArray[np.floating]:
        """Return vectors in the type in which they are stored. Values out of range are clipped."""
        largest = np.finfo(self.kept_as).max
        return np.clip(vectors, -largest, largest).astype(self.kept_as)

    def flush(self) -> None:
        """Write the remaining vectors, which do not fill a block."""
        with self._lock:
            if self._pending:
                self._write(len(self._pending))

    def take(self, digests: Sequence[str]) -> Vectors:
        """Return the vectors of some items, ``(n, width)`` float32.

        Raises:
            KeyError: If an item has no vector. Call `missing` first.
        """
        found = np.empty((len(digests), self.width), np.float32)
        by_block: dict[Path, list[tuple[int, int]]] = {}
        with self._lock:
            for position, digest in enumerate(digests):
                if digest in self._places:
                    block, row = self._places[digest]
                    by_block.setdefault(block, []).append((position, row))
                else:
                    found[position] = self._pending[digest] if digest in self._pending else self._unwritten[digest]
        for block, places in by_block.items():
            positions, rows = np.array(places).T
            found[positions] = files.read_arrays(block)[0]["vectors"][rows]
        return found

    def _write(self, count: int) -> None:
        digests = list(self._pending)[:count]
        vectors = np.stack([self._pending.pop(digest) for digest in digests])
        if self._writable:
            digest_bytes = np.array([list(bytes.fromhex(digest)) for digest in digests], np.uint8)
            arrays = {"digests": digest_bytes, "vectors": vectors}
            path = self.folder / f"{files.digest_arrays(arrays)}{SUFFIX}"
            try:
                files.write_arrays(path, arrays, private=True)
            except (OSError, UserError) as error:
                self._writable = False
                self.notify(f"Continuing without a cache of vectors: {error}")
            else:
                self._register(path, digests)
                return
        self._unwritten.update(zip(digests, vectors, strict=True))

    def _register(self, block: Path, digests: Sequence[str]) -> None:
        self._seen.add(block)
        self._places.update({digest: (block, row) for row, digest in enumerate(digests)})

    def _read_new_blocks(self) -> None:
        """Read the blocks that this process has not seen yet: all of them at first, later those of other processes."""
        for block in sorted(self.folder.glob(f"*{SUFFIX}")):
            if block in self._seen:
                continue
            self._seen.add(block)
            digests = self._digests_of_intact(block)
            if digests is not None:
                self._register(block, digests)

    def _digests_of_intact(self, block: Path) -> list[str] | None:
        try:
            arrays, _ = files.read_arrays(block)
            if files.digest_arrays(arrays) == block.stem and arrays["vectors"].shape[1:] == (self.width,):
                return [bytes(row).hex() for row in arrays["digests"]]
        except (OSError, UserError, KeyError):
            pass
        self.notify(f"The vectors in {block} are damaged, and their items will be encoded again.")
        with suppress(OSError):
            block.unlink()
        return None
